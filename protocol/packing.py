"""Pieces of hot messages: strings and counts, by plain struct code for ``protocol.packed``.

The readers here take the common shape alone and raise one of ``GIVE_UP`` on anything else; the
caller then starts over with ``protocol.reader``. No slice is longer than the frame, so nothing is
reserved on the word of a length.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from struct import Struct, error
from typing import Final


class Odd(Exception):
    """Not the common shape: the careful reader takes over."""


GIVE_UP: Final = (Odd, IndexError, error, UnicodeDecodeError)
"""What reading the common shape may end in. Positions only grow, and every string is followed by at
least one byte that is looked at, so a length beyond the end is found by the next look."""

INT16: Final = Struct(">h").unpack_from
INT32: Final = Struct(">i").unpack_from
INT64: Final = Struct(">q").unpack_from


# --- strings and counts ---------------------------------------------------------------------------


def compact(frame: bytes, position: int) -> tuple[str, int]:
    """Read a compact string, and where it ends."""
    size = frame[position]
    if size >= 0x80:
        position += 1
        size = size & 0x7F | frame[position] << 7
        if size >= 0x4000:
            raise Odd
    if size == 0:
        raise Odd
    stop = position + size
    return frame[position + 1 : stop].decode(), stop


def compact_or_none(frame: bytes, position: int) -> tuple[str | None, int]:
    """Read a nullable compact string, and where it ends."""
    if frame[position] == 0:
        return None, position + 1
    return compact(frame, position)


def compact_count(frame: bytes, position: int) -> tuple[int, int]:
    """Read the number of elements of a compact array that may not be null."""
    count = frame[position]
    if count >= 0x80:
        position += 1
        count = count & 0x7F | frame[position] << 7
        if count >= 0x4000:
            raise Odd
    if count == 0:
        raise Odd
    return count - 1, position + 1


def classic(frame: bytes, position: int) -> tuple[str, int]:
    """Read a classic string, and where it ends."""
    (size,) = INT16(frame, position)
    if size < 0:
        raise Odd
    position += 2
    stop = position + size
    if stop > len(frame):
        raise Odd
    return frame[position:stop].decode(), stop


def classic_or_none(frame: bytes, position: int) -> tuple[str | None, int]:
    """Read a nullable classic string; the caller checks that its end is in the frame."""
    if frame[position] == 0xFF:
        return None, position + 2
    return classic(frame, position)


def classic_count(frame: bytes, position: int) -> tuple[int, int]:
    """Read the number of elements of a classic array that may not be null."""
    (count,) = INT32(frame, position)
    if count < 0:
        raise Odd
    return count, position + 4


def printed_topic_id(raw: bytes) -> str:
    """Turn 16 bytes into Kafka's printed form of a topic id."""
    if len(raw) != 16:
        raise Odd
    return urlsafe_b64encode(raw)[:22].decode() if any(raw) else ""


def no_tags(frame: bytes, position: int) -> int:
    """Pass over the byte that says that there are no tagged fields."""
    if frame[position] != 0:
        raise Odd
    return position + 1


# --- pieces of replies ----------------------------------------------------------------------------

_V0_HEAD: Final = Struct(">ii").pack
_V0_HEAD_THROTTLE: Final = Struct(">iii").pack
_V1_HEAD_THROTTLE: Final = Struct(">iixi").pack
PACK_INT16: Final = Struct(">h").pack
PACK_INT32: Final = Struct(">i").pack
NO_TAGS: Final = b"\0"
MAX_STRING_BYTES: Final = 0x7FFF
"""Kafka's generated code refuses longer strings in compact form too (MessageDataGenerator)."""


def framed(
    correlation_id: int, throttle_time_ms: int, body: bytes, *, flexible: bool, throttle: bool
) -> bytes:
    """Put length, response header and throttle time in front."""
    if flexible:
        return _V1_HEAD_THROTTLE(len(body) + 9, correlation_id, throttle_time_ms) + body
    if throttle:
        return _V0_HEAD_THROTTLE(len(body) + 8, correlation_id, throttle_time_ms) + body
    return _V0_HEAD(len(body) + 4, correlation_id) + body


MANY_PIECES: Final = 256


def framed_pieces(
    correlation_id: int,
    throttle_time_ms: int,
    pieces: list[bytes],
    *,
    flexible: bool,
    throttle: bool,
) -> bytes:
    """Do the same for a body in pieces, and copy them once: a reply may have 64 MiB. To add up the
    lengths of a few costs more than to copy them twice.
    """
    if len(pieces) < MANY_PIECES:
        body = b"".join(pieces)
        if flexible:
            return _V1_HEAD_THROTTLE(len(body) + 9, correlation_id, throttle_time_ms) + body
        return framed(correlation_id, throttle_time_ms, body, flexible=False, throttle=throttle)
    size = sum(map(len, pieces))
    if flexible:
        head = _V1_HEAD_THROTTLE(size + 9, correlation_id, throttle_time_ms)
    elif throttle:
        head = _V0_HEAD_THROTTLE(size + 8, correlation_id, throttle_time_ms)
    else:
        head = _V0_HEAD(size + 4, correlation_id)
    return b"".join([head, *pieces])


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


def varint(value: int) -> bytes:
    """Write an unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    return bytes((value & 0x7F | 0x80,)) + varint(value >> 7)


def compact_string(text: str) -> bytes:
    """Write a compact string."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raw = _encoded(text)
    if len(raw) < 0x7F:
        return _ONE_BYTE[len(raw) + 1] + raw
    if len(raw) > MAX_STRING_BYTES:
        raw = _encoded(text)
    return varint(len(raw) + 1) + raw


def classic_string(text: str) -> bytes:
    """Write a classic string."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raw = _encoded(text)
    if len(raw) > MAX_STRING_BYTES:
        raw = _encoded(text)
    return PACK_INT16(len(raw)) + raw


def _encoded(text: str) -> bytes:
    """Encode a text that UTF-8 or a string of Kafka's has no room for.

    A lone surrogate becomes "?", as in Java. A text that is too long is cut: bytes that are not
    UTF-8 grow threefold when they are read, and one member's strange instance id must not cost the
    leader its reply.
    """
    raw = text.encode("utf-8", "replace")
    return raw[:MAX_STRING_BYTES].decode("utf-8", "ignore").encode()


def compact_bytes(raw: bytes) -> bytes:
    """Write compact bytes."""
    return varint(len(raw) + 1) + raw


def classic_bytes(raw: bytes) -> bytes:
    """Write classic bytes."""
    return PACK_INT32(len(raw)) + raw


@lru_cache(maxsize=4096)
def raw_topic_id(topic_id: str) -> bytes:
    """Turn Kafka's printed form of a topic id into its 16 bytes; "" is the zero id."""
    return urlsafe_b64decode(topic_id + "==") if topic_id else bytes(16)
