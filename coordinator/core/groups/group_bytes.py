"""What a group's saved state takes when it is encoded, and what no longer fits into its bound.

The sums are upper bounds that are kept up to date by ``ShardState.apply``: a commit costs the same
however large its group is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from groupkeeper.coordinator.core.records import CommittedTopic, SavedOffset

SAVED_OFFSET_BYTES: Final = 128
"""An upper bound of one saved offset, its metadata not counted."""

_SAVED_TOPIC_BYTES: Final = 16
"""The same for a topic beside its name and its offsets."""

_SHORT_CHARS: Final = 32
_LONGEST_ESCAPE: Final = 6
"""Bytes that one character may take in JSON."""
_ESCAPED: Final = bytes(range(32)) + b'"\\\x7f'
"""Characters that JSON may write in another way than UTF-8 does."""

OffsetKey: TypeAlias = tuple[str, int]
"""(topic, partition)."""


def text_bytes(text: str) -> int:
    """An upper bound of what a text takes in JSON; close to it where the text is long."""
    if len(text) <= _SHORT_CHARS:
        return _LONGEST_ESCAPE * len(text)
    data = text.encode()
    escaped = len(data) - len(data.translate(None, _ESCAPED))
    return len(data) + (_LONGEST_ESCAPE - 1) * escaped


def topic_bytes(topic: str) -> int:
    """An upper bound of what a topic takes in a saved group, its offsets not counted."""
    return _SAVED_TOPIC_BYTES + _LONGEST_ESCAPE * len(topic)


def offset_bytes(metadata: str) -> int:
    """An upper bound of what an offset takes in a saved group."""
    return SAVED_OFFSET_BYTES + text_bytes(metadata)


def too_much(
    stored: dict[str, dict[int, SavedOffset]], topics: Iterable[CommittedTopic], room_bytes: int
) -> set[OffsetKey]:
    """Find the offsets of a commit that make the group larger than there is room for.

    They are looked at in their order. An offset that takes no more than the one that it replaces
    always fits. One that is named twice counts with its largest from the first: what a small one
    frees must not be taken by others before the large one comes.
    """
    growth: dict[OffsetKey, int] = {}
    for topic in topics:
        before = stored.get(topic.topic)
        if before is None:
            room_bytes -= topic_bytes(topic.topic)
        for part in topic.partitions:
            key = (topic.topic, part.partition)
            held = None if before is None else before.get(part.partition)
            grows_by = offset_bytes(part.metadata) - (
                0 if held is None else offset_bytes(held.metadata)
            )
            growth[key] = max(grows_by, growth.get(key, grows_by))
    refused: set[OffsetKey] = set()
    for key, grows_by in growth.items():
        if grows_by > 0 and room_bytes < grows_by:
            refused.add(key)
        else:
            room_bytes -= grows_by
    return refused
