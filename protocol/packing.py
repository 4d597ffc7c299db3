"""Reads and packs strings, counts and senders for ``protocol.packed``, by plain struct code.

The functions that read accept only the common form, and raise one of ``GIVE_UP`` for anything else.
The caller then reads the message again with ``protocol.reader``. No slice is longer than the frame,
so a large announced length reserves no memory.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, error
from typing import Final

from groupkeeper.protocol.last_requests import MAX_REPEATED_BYTES, LastRequests, Sender


class Odd(Exception):
    """The bytes do not have the common form, so the safe reader must read them."""


GIVE_UP: Final = (Odd, IndexError, error, UnicodeDecodeError)
"""The errors that reading functions raise if the bytes do not have the common form.

Positions only increase, and at least one byte is read after every string. So a length beyond the
end is noticed by the next read."""

INT16: Final = Struct(">h").unpack_from
INT32: Final = Struct(">i").unpack_from
INT64: Final = Struct(">q").unpack_from


# --- strings and counts ---------------------------------------------------------------------------


def compact(frame: bytes, position: int) -> tuple[str, int]:
    """Return a compact string and the position after it."""
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
    """Return a nullable compact string and the position after it."""
    if frame[position] == 0:
        return None, position + 1
    return compact(frame, position)


def compact_count(frame: bytes, position: int) -> tuple[int, int]:
    """Return the number of elements of a non-null compact array and the position after it."""
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
    """Return a classic string and the position after it."""
    (size,) = INT16(frame, position)
    if size < 0:
        raise Odd
    position += 2
    stop = position + size
    if stop > len(frame):
        raise Odd
    return frame[position:stop].decode(), stop


def classic_or_none(frame: bytes, position: int) -> tuple[str | None, int]:
    """Return a nullable classic string and the position after it.

    The caller checks that this position is in the frame.
    """
    if frame[position] == 0xFF:
        return None, position + 2
    return classic(frame, position)


def classic_count(frame: bytes, position: int) -> tuple[int, int]:
    """Return the number of elements of a non-null classic array and the position after it."""
    (count,) = INT32(frame, position)
    if count < 0:
        raise Odd
    return count, position + 4


def printed_topic_id(raw: bytes) -> str:
    """Return a topic id in Kafka's printed form from its 16 bytes; "" for the zero id."""
    if len(raw) != 16:
        raise Odd
    return urlsafe_b64encode(raw)[:22].decode() if any(raw) else ""


def no_tags(frame: bytes, position: int) -> int:
    """Check that there are no tagged fields, and return the position after them."""
    if frame[position] != 0:
        raise Odd
    return position + 1


# --- who sends --------------------------------------------------------------------------------


def read_sender(frame: bytes, start: int, last: LastRequests) -> tuple[Sender, int]:
    """Return the sender of a flexible Heartbeat or OffsetCommit, and the position after it.

    ``last`` remembers the sender. If the next request has the same bytes, they are not decoded.
    """
    raw = last.raw
    stop = start + len(raw)
    if frame[start:stop] == raw:
        return last.fields, stop
    group_id, position = compact(frame, start)
    (generation_id,) = INT32(frame, position)
    member_id, position = compact(frame, position + 4)
    instance_id, position = compact_or_none(frame, position)
    fields = group_id, generation_id, member_id, instance_id
    # A slice beyond the frame is cut off. The caller's next read finds that.
    if position - start <= MAX_REPEATED_BYTES and position <= len(frame):
        last.fields = fields
        last.raw = frame[start:position]
    return fields, position


# --- pieces of replies ----------------------------------------------------------------------------

_V0_HEAD: Final = Struct(">ii").pack
_V0_HEAD_THROTTLE: Final = Struct(">iii").pack
FLEXIBLE_HEAD: Final = Struct(">iixi").pack
"""Packs the head of a reply of a flexible version: the length, the correlation id, no tags, and the
throttle time."""
FLEXIBLE_HEAD_BYTES: Final = 9
"""The size of ``FLEXIBLE_HEAD`` without the length at its beginning."""
PACK_INT16: Final = Struct(">h").pack
PACK_INT32: Final = Struct(">i").pack
NO_TAGS: Final = b"\0"
MAX_STRING_BYTES: Final = 0x7FFF
"""Kafka's generated code refuses longer strings, in compact form too (MessageDataGenerator)."""


def framed(
    correlation_id: int, throttle_time_ms: int, body: bytes, *, flexible: bool, throttle: bool
) -> bytes:
    """Return a frame: length, response header, throttle time, body.

    ``throttle`` is False for versions without a throttle time. Every flexible version has one.
    """
    if flexible:
        return (
            FLEXIBLE_HEAD(len(body) + FLEXIBLE_HEAD_BYTES, correlation_id, throttle_time_ms) + body
        )
    if throttle:
        return _V0_HEAD_THROTTLE(len(body) + 8, correlation_id, throttle_time_ms) + body
    return _V0_HEAD(len(body) + 4, correlation_id) + body


MANY_PIECES: Final = 256
"""If there are at least this many pieces, ``framed_pieces`` does not join them before it adds the
header.
"""


def framed_pieces(
    correlation_id: int,
    throttle_time_ms: int,
    pieces: list[bytes],
    *,
    flexible: bool,
    throttle: bool,
) -> bytes:
    """Return a frame whose body is given in pieces.

    Fewer than ``MANY_PIECES`` are joined first. This copies them twice, but is faster.
    """
    if len(pieces) < MANY_PIECES:
        body = b"".join(pieces)
        if flexible:
            return (
                FLEXIBLE_HEAD(len(body) + FLEXIBLE_HEAD_BYTES, correlation_id, throttle_time_ms)
                + body
            )
        return framed(correlation_id, throttle_time_ms, body, flexible=False, throttle=throttle)
    return framed_large(
        correlation_id, throttle_time_ms, pieces, flexible=flexible, throttle=throttle
    )


def framed_large(
    correlation_id: int,
    throttle_time_ms: int,
    pieces: Sequence[bytes | bytearray],
    *,
    flexible: bool,
    throttle: bool,
) -> bytes:
    """Return a frame whose body is given in pieces. Each piece is copied only once, because a reply
    may have 64 MiB.
    """
    size = sum(map(len, pieces))
    if flexible:
        head = FLEXIBLE_HEAD(size + FLEXIBLE_HEAD_BYTES, correlation_id, throttle_time_ms)
    elif throttle:
        head = _V0_HEAD_THROTTLE(size + 8, correlation_id, throttle_time_ms)
    else:
        head = _V0_HEAD(size + 4, correlation_id)
    return b"".join([head, *pieces])


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


def varint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    return bytes((value & 0x7F | 0x80,)) + varint(value >> 7)


def compact_string(text: str) -> bytes:
    """Return a string as flexible versions send it: the length + 1 as a varint, then UTF-8."""
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
    """Return a string as older versions send it: the length in two bytes, then UTF-8."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raw = _encoded(text)
    if len(raw) > MAX_STRING_BYTES:
        raw = _encoded(text)
    return PACK_INT16(len(raw)) + raw


def _encoded(text: str) -> bytes:
    """Encode a text that has a lone surrogate, or is longer than ``MAX_STRING_BYTES``. A lone
    surrogate becomes "?", as in Java. A text that is too long is cut.

    A valid request can cause such a text, because invalid UTF-8 grows threefold when it is decoded.
    Without the cut, a strange instance id of one member would make the leader's reply fail.
    """
    raw = text.encode("utf-8", "replace")
    return raw[:MAX_STRING_BYTES].decode("utf-8", "ignore").encode()


def compact_bytes(raw: bytes) -> bytes:
    """Return bytes as flexible versions send them: the length + 1 as a varint, then the bytes."""
    return varint(len(raw) + 1) + raw


def classic_bytes(raw: bytes) -> bytes:
    """Return bytes as older versions send them: the length in four bytes, then the bytes."""
    return PACK_INT32(len(raw)) + raw


@lru_cache(maxsize=4096)
def raw_topic_id(topic_id: str) -> bytes:
    """Return the 16 bytes of a topic id in Kafka's printed form; "" is the zero id."""
    return urlsafe_b64decode(topic_id + "==") if topic_id else bytes(16)
