"""Frames changed at random; most of what comes out still gets past its length and header."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.fuzz.target import split

Change = Callable[[random.Random, bytearray], None]

NUMBERS = (0, 1, 0x7F, 0x80, 0xFF)
WIDE = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff\x0f",
)


def _flip(rng: random.Random, data: bytearray) -> None:
    position = rng.randrange(len(data))
    data[position] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] = rng.choice(NUMBERS)


def _widen(rng: random.Random, data: bytearray) -> None:
    position = rng.randrange(len(data))
    new = rng.choice(WIDE)
    data[position : position + len(new)] = new


def _insert(rng: random.Random, data: bytearray) -> None:
    position = rng.randrange(len(data) + 1)
    data[position:position] = rng.randbytes(rng.randint(1, 8))


def _remove(rng: random.Random, data: bytearray) -> None:
    position = rng.randrange(len(data))
    del data[position : position + rng.randint(1, 8)]


def _cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def _repeat(rng: random.Random, data: bytearray) -> None:
    start = rng.randrange(len(data))
    piece = data[start : start + rng.randint(1, 64)]
    data[start:start] = piece * rng.randint(1, 4)


CHANGES: tuple[Change, ...] = (_flip, _flip, _set, _widen, _insert, _remove, _cut, _repeat)


def changed(rng: random.Random, frame: bytes, most: int = 4) -> bytes:
    """The frame with some of its bytes changed, and a length in front that fits."""
    body = bytearray(frame[4:])
    for _ in range(rng.randint(1, most)):
        if not body:
            break
        rng.choice(CHANGES)(rng, body)
    return len(body).to_bytes(4, "big") + body


def mixed(rng: random.Random, data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A conversation with one frame changed, dropped, doubled or moved; now and then its raw bytes,
    lengths and all. ``change`` makes bytes of bytes.
    """
    frames = split(data)
    if not frames or rng.random() < 0.1:
        return change(data)
    position = rng.randrange(len(frames))
    kind = rng.random()
    if kind < 0.7:
        body = change(frames[position][4:])
        frames[position] = len(body).to_bytes(4, "big") + body
    elif kind < 0.8:
        del frames[position]
    elif kind < 0.9:
        frames.insert(rng.randrange(len(frames) + 1), frames[position])
    else:
        rng.shuffle(frames)
    return b"".join(frames)
