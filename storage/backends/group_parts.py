"""Split the saved state of a large group into parts that are quick to encode (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from groupkeeper.coordinator.core.groups.group import offset_bytes, topic_bytes
from groupkeeper.coordinator.core.records import SavedGroup, SavedOffset

MAX_PART_BYTES: Final = 512 * 1024
"""The largest number of bytes in a part. Encoding them takes up to 5 ms on the loop."""

_MEMBER_BYTES: Final = 4_096
"""An estimate of a member's size. Most members are smaller, so a group may be split although it
would fit into one part."""

Offsets: TypeAlias = dict[str, dict[int, SavedOffset]]


def is_one_part(group: SavedGroup, part_bytes: int) -> bool:
    """Return True if the group fits into one part. The size is estimated without encoding the
    group.
    """
    members = () if group.metadata is None else group.metadata.members
    left = part_bytes - _MEMBER_BYTES * len(members)
    for topic, partitions in group.offsets.items():
        left -= topic_bytes(topic) + offset_bytes("") * len(partitions)
        if left < 0:
            return False
        for stored in partitions.values():
            if stored.metadata:
                left -= 6 * len(stored.metadata)
    return left >= 0


class GroupWalk:
    """A walk over the offsets of one group. Each call of ``take`` returns some of them.

    The group may change during the walk, and may even be deleted and created again. The walk
    returns each offset that exists during the whole walk exactly once.
    """

    def __init__(self) -> None:
        self._offsets: Mapping[str, Mapping[int, SavedOffset]] = {}
        self._keys: Iterator[tuple[str, int]] | None = None
        self.is_done = False

    def take(self, group: SavedGroup, part_bytes: int) -> Offsets:
        """Return the next offsets with their present values, up to about ``part_bytes``.

        It returns at least one offset, unless none is left.
        """
        self._offsets = group.offsets
        if self._keys is None:
            self._keys = self._walk()
        taken: Offsets = {}
        size = 0
        for topic, partition in self._keys:
            stored = self._offsets.get(topic, {}).get(partition)
            if stored is None:
                continue  # the offset was deleted during the walk
            if topic not in taken:
                taken[topic] = {}
                size += topic_bytes(topic)
            taken[topic][partition] = stored
            size += offset_bytes(stored.metadata)
            if size >= part_bytes:
                return taken
        self.is_done = True
        return taken

    def _walk(self) -> Iterator[tuple[str, int]]:
        for topic in list(self._offsets):
            for partition in list(self._offsets.get(topic, ())):
                yield topic, partition
