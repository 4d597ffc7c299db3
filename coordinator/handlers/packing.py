"""Packing of replies that can be long: one pass into one bytearray.

kio's writers take about 12 us an element, which for an answer of 50,000 elements would hold the
loop for half a second; these take well below one. The tests read every version back with kio's own
reader.
"""

from __future__ import annotations

import base64
import functools
import struct

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_HEAD = struct.Struct(">ii")

ZERO_UUID = bytes(16)
MAX_STRING_BYTES = 0x7FFF
NO_OPERATIONS = -(2**31)
"""Kafka's "authorized operations were not asked for"."""


@functools.lru_cache(maxsize=4096)
def topic_id_bytes(topic_id: str) -> bytes:
    """Turn Kafka's printed form of a topic id into its 16 bytes; "" is the zero id."""
    return base64.urlsafe_b64decode(topic_id + "==") if topic_id else ZERO_UUID


def topic_id_text(raw: bytes) -> str:
    """Turn 16 bytes into Kafka's printed form; the zero id is ""."""
    return "" if raw == ZERO_UUID else base64.urlsafe_b64encode(raw)[:22].decode()


def varint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def wire_string(text: str | None, flexible: bool) -> bytes:
    """Encode a string; None only where the field may be null.

    A lone surrogate becomes "?", as Java's encoder writes it. What is too long to be encoded is
    cut: bytes that are not UTF-8 grow threefold when they are read, and one member's strange
    instance id must not cost the leader its reply.
    """
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    raw = text.encode("utf-8", "replace")
    if len(raw) > MAX_STRING_BYTES:
        raw = raw[:MAX_STRING_BYTES].decode("utf-8", "ignore").encode()
    return (varint(len(raw) + 1) if flexible else _INT16.pack(len(raw))) + raw


def wire_bytes(raw: bytes, flexible: bool) -> bytes:
    """Encode bytes that are not null."""
    return (varint(len(raw) + 1) if flexible else _INT32.pack(len(raw))) + raw


def wire_count(count: int, flexible: bool) -> bytes:
    """Encode the number of elements of an array that is not null."""
    return varint(count + 1) if flexible else _INT32.pack(count)


def begin(correlation_id: int, flexible_header: bool) -> bytearray:
    """Begin a reply frame: room for the length, then the response header."""
    out = bytearray(_HEAD.pack(0, correlation_id))
    if flexible_header:
        out.append(0)
    return out


def finish(out: bytearray) -> bytes:
    """Set the length and give the frame."""
    _INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)
