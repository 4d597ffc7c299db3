"""The encoded size of a group's saved state, and which offsets would exceed its limit.

``ShardState.apply`` updates these upper bounds, so a commit costs the same in a group of any size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from groupkeeper.coordinator.core.records import CommittedTopic, SavedOffset

SAVED_OFFSET_BYTES: Final = 128
"""An upper bound of one saved offset, without its metadata."""

_SAVED_TOPIC_BYTES: Final = 16
"""An upper bound of one saved topic, without its name and its offsets."""

_SHORT_CHARS: Final = 32
_LONGEST_ESCAPE: Final = 6
"""Bytes that one character can have in JSON."""
_ESCAPED: Final = bytes(range(32)) + b'"\\\x7f'
"""Characters whose JSON may differ from their UTF-8."""

OffsetKey: TypeAlias = tuple[str, int]
"""(topic, partition)."""


def text_bytes(text: str) -> int:
    """Return an upper bound of a text's size in JSON. For long texts it is close."""
    if len(text) <= _SHORT_CHARS:
        return _LONGEST_ESCAPE * len(text)
    data = text.encode()
    escaped = len(data) - len(data.translate(None, _ESCAPED))
    return len(data) + (_LONGEST_ESCAPE - 1) * escaped


def topic_bytes(topic: str) -> int:
    """Return an upper bound of a topic's size in a saved group, without its offsets."""
    return _SAVED_TOPIC_BYTES + _LONGEST_ESCAPE * len(topic)


def offset_bytes(metadata: str) -> int:
    """Return an upper bound of an offset's size in a saved group."""
    return SAVED_OFFSET_BYTES + text_bytes(metadata)


def too_much(
    stored: dict[str, dict[int, SavedOffset]], topics: Iterable[CommittedTopic], room_bytes: int
) -> set[OffsetKey]:
    """Return the offsets of a commit that would make the group larger than ``room_bytes`` allows.

    They are checked in their order. An offset that is no larger than the one it replaces always
    fits. If a commit names a partition twice, the larger size counts from the first mention on.
    Otherwise other offsets could use the room that a small one frees, before the large one is
    stored.
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
