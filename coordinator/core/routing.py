"""Which shard a group belongs to: Kafka's own mapping of groups to ``__consumer_offsets``."""

from __future__ import annotations

from typing import Final

_INT_MIN: Final = -(2**31)
_MASK: Final = 0xFFFFFFFF

SHORT_UNITS: Final = 64
"""Up to here a loop over the UTF-16 units is as fast as whole-number arithmetic over all of them.
"""


def java_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 units, so a character beyond the BMP counts as two."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = _folded(units) if len(units) > 2 * SHORT_UNITS else _looped(units)
    return value - 2**32 if value & 0x80000000 else value


def shard_of(group_id: str, shards: int) -> int:
    """The shard of a group; ``Utils.abs`` makes 0 of the one integer that has no absolute value."""
    value = java_hash(group_id)
    return 0 if value == _INT_MIN else abs(value) % shards


def _looped(units: bytes) -> int:
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _MASK
    return value


def _folded(units: bytes) -> int:
    """The hash of a long text, by arithmetic on all of its units at once, which Python does in C: a
    group id may have 32,767 bytes, and a loop over them takes milliseconds.

    The hash of two texts in a row is ``hash(first) * 31**len(second) + hash(second)``. The units
    are one number with 16 bits for each. First neighbours are put together, until each value has
    64 bits of its own; then the first half of the values and the second, until one is left.
    """
    count = 1 << (len(units) // 2 - 1).bit_length()
    size = 2 * count
    values = int.from_bytes(units, "big")  # units of 0 in front change nothing
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
