"""Deleted offsets for the event log. Their last values are kept, so they can be restored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from groupkeeper.coordinator.core.events import LostPartition, LostTopic
from groupkeeper.coordinator.core.groups.group import text_bytes
from groupkeeper.coordinator.core.records import SavedOffset

StoredOffset: TypeAlias = tuple[str, int, SavedOffset]
"""(topic, partition, stored offset)."""


def lost_topics(offsets: Iterable[StoredOffset]) -> list[LostTopic]:
    """Group deleted offsets by topic. Topics with the same name but different ids stay apart."""
    topics: dict[tuple[str, str], list[LostPartition]] = {}
    for topic, partition, stored in offsets:
        topics.setdefault((topic, stored.topic_id), []).append(
            LostPartition(
                partition,
                stored.offset,
                stored.leader_epoch,
                stored.metadata,
                stored.commit_time_ms,
            )
        )
    return [LostTopic(topic, topic_id, parts) for (topic, topic_id), parts in topics.items()]


OFFSET_BYTES = 320
"""An upper bound of the size that a deleted offset adds to a step, without its strings."""

GROUP_BYTES = 1_024
"""An upper bound of the size that one group with deleted offsets adds to a step, without its
strings.
"""


class Portion:
    """The room that is left in a step that deletes offsets or adds their topic ids."""

    def __init__(self, max_offsets: int, max_bytes: int) -> None:
        self._offsets = max_offsets
        self._bytes = max_bytes
        self._is_empty = True

    def has_room(self) -> bool:
        """Return whether the step has room for one more group."""
        return self._offsets > 0 and self._bytes > 0

    def count_examined(self, count: int) -> None:
        """Count examined offsets against the limit of the step, because examination takes time."""
        self._offsets -= count

    def count_bytes(self, size_bytes: int) -> None:
        """Count bytes that the step writes in addition to the deleted offsets."""
        self._bytes -= size_bytes

    def take(self, group_id: str, lost: Sequence[StoredOffset]) -> Sequence[StoredOffset]:
        """Return those offsets of a group that fit into the step. At least one offset of the first
        group fits, so every step makes progress.
        """
        self._bytes -= GROUP_BYTES + 12 * len(group_id)
        for at, (topic, _, stored) in enumerate(lost):
            size = OFFSET_BYTES + 12 * len(topic) + text_bytes(stored.metadata)
            if size > self._bytes and not self._is_empty:
                self._bytes = 0
                return lost[:at]
            self._bytes -= size
            self._is_empty = False
        return lost
