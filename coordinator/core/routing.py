"""Maps groups to shards as Kafka maps them to partitions of ``__consumer_offsets``."""

from __future__ import annotations

from typing import Final

_INT_MIN: Final = -(2**31)
_MASK: Final = 0xFFFFFFFF

SHORT_UNITS: Final = 64
"""For texts of up to this many UTF-16 units, a loop over the units is as fast as arithmetic with
one large integer.
"""


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``. It counts UTF-16 units, so a character beyond the BMP is
    two.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = _folded(units) if len(units) > 2 * SHORT_UNITS else _looped(units)
    return value - 2**32 if value & 0x80000000 else value


def shard_of(group_id: str, shards: int) -> int:
    """Return the number of the shard of a group, from 0 to ``shards - 1``. If the hash is the least
    32-bit integer, which has no absolute value, the shard is 0, as in Kafka's ``Utils.abs``.
    """
    value = java_hash(group_id)
    return 0 if value == _INT_MIN else abs(value) % shards


def _looped(units: bytes) -> int:
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _MASK
    return value


def _folded(units: bytes) -> int:
    """Return the hash of a long text as an unsigned integer of 32 bits. A loop over up to 32,767
    bytes would need milliseconds, so Python computes with all units at once, in C.

    The hash of two concatenated texts is ``hash(first) * 31**len(second) + hash(second)``. All
    units are one integer with 16 bits each. First, neighbours are combined until each value has 64
    bits. Then the first half of the values is combined with the second half, until one value is
    left.
    """
    count = 1 << (len(units) // 2 - 1).bit_length()
    size = 2 * count
    values = int.from_bytes(units, "big")  # leading units of 0 do not change the hash
    for width, factor in ((2, 31), (4, 31**2)):
        mask = int.from_bytes((bytes(width) + b"\xff" * width) * (size // (2 * width)), "big")
        values = (values >> 8 * width & mask) * factor + (values & mask)
    mask = int.from_bytes((bytes(4) + b"\xff" * 4) * (size // 8), "big")
    units_of_half = count
    while size > 8:
        size //= 2
        units_of_half //= 2
        lower = (1 << 8 * size) - 1
        mask &= lower
        factor = pow(31, units_of_half, 2**32)
        values = ((values >> 8 * size) * factor + (values & lower)) & mask
    return values & _MASK
