"""Which shard a group belongs to: Kafka's own mapping of groups to ``__consumer_offsets``."""

from __future__ import annotations

_INT_MIN = -(2**31)


def java_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 units, so a character beyond the BMP counts as two."""
    value = 0
    units = text.encode("utf-16-le", "surrogatepass")
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - 2**32 if value & 0x80000000 else value


def shard_of(group_id: str, shards: int) -> int:
    """The shard of a group; ``Utils.abs`` makes 0 of the one integer that has no absolute value."""
    value = java_hash(group_id)
    return 0 if value == _INT_MIN else abs(value) % shards
