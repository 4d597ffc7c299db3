"""How many groups and members there are, and what their metadata takes, counted as they come and
go: nobody has to walk them.
"""

from __future__ import annotations

from typing import Final

from groupkeeper.coordinator.core.limits import MAX_METADATA_BYTES
from groupkeeper.coordinator.core.requests import GroupState

SMALL_METADATA_BYTES: Final = 1_024
"""Of one member. Never refused for what others have: it is no more than a member costs anyway."""
LARGE_METADATA_BYTES: Final = 16_384
"""Of one member. Consumers of a hundred topics send less; larger ones cannot take the room that is
kept for these."""
LARGE_SHARE: Final = 0.5

SMALL_ASSIGNMENT_BYTES: Final = 1_024
LARGE_ASSIGNMENT_BYTES: Final = 262_144
"""The same of the assignments of one group, with room of their own: what subscriptions take must
not stop groups that assign. 500 members with 10 partitions each have less.
"""


class Tally:
    """The groups of one shard by state, their members, and what these subscribed with."""

    __slots__ = ("assigned_bytes", "by_state", "members", "metadata_bytes")

    def __init__(self) -> None:
        """Count nothing yet."""
        self.by_state: dict[GroupState, int] = dict.fromkeys(GroupState, 0)
        self.members = 0
        self.metadata_bytes = 0
        self.assigned_bytes = 0
        """Of the assignments that are saved, encoded."""

    def move(self, old: GroupState, new: GroupState) -> None:
        """Count a group that changed its state."""
        self.by_state[old] -= 1
        self.by_state[new] += 1


class Census:
    """The groups of all shards of one coordinator, which share it, and how many there may be.

    A group costs about 2 KB of memory, and any peer can name new ones. A member's metadata may take
    megabytes, and stays until its session ends, though its connection is long gone.
    """

    __slots__ = (
        "_assigned_of_shard",
        "_metadata_of_shard",
        "_of_shard",
        "assigned_bytes",
        "groups",
        "max_groups",
        "max_metadata_bytes",
        "metadata_bytes",
        "refused",
    )

    def __init__(self, max_groups: int, max_metadata_bytes: int = MAX_METADATA_BYTES) -> None:
        """Begin without groups."""
        self.max_groups = max_groups
        self.max_metadata_bytes = max_metadata_bytes
        self.metadata_bytes = 0
        self._metadata_of_shard: dict[int, int] = {}
        self.assigned_bytes = 0
        self._assigned_of_shard: dict[int, int] = {}
        self.groups = 0
        self.refused = 0
        """Requests that would have created one group more than there may be."""
        self._of_shard: dict[int, int] = {}

    def note(self, shard_id: int, groups: int) -> None:
        """Take the number of groups of one shard. The last one counts while it is loaded again: its
        groups still exist.
        """
        self.groups += groups - self._of_shard.get(shard_id, 0)
        self._of_shard[shard_id] = groups

    def note_metadata(self, shard_id: int, metadata_bytes: int) -> None:
        """Take what the metadata of all members of one shard takes."""
        self.metadata_bytes += metadata_bytes - self._metadata_of_shard.get(shard_id, 0)
        self._metadata_of_shard[shard_id] = metadata_bytes

    def admits_metadata(self, size_bytes: int, added_bytes: int) -> bool:
        """Return whether a member may have metadata of this size, so much more than it had."""
        if size_bytes <= SMALL_METADATA_BYTES or added_bytes <= 0:
            return True
        share = 1.0 if size_bytes <= LARGE_METADATA_BYTES else LARGE_SHARE
        return self.metadata_bytes + added_bytes <= self.max_metadata_bytes * share

    def note_assigned(self, shard_id: int, assigned_bytes: int) -> None:
        """Take what the assignments of all groups of one shard take."""
        self.assigned_bytes += assigned_bytes - self._assigned_of_shard.get(shard_id, 0)
        self._assigned_of_shard[shard_id] = assigned_bytes

    def admits_assignment(self, size_bytes: int, added_bytes: int) -> bool:
        """Return whether a group may have assignments of this size, so much more than it had."""
        if size_bytes <= SMALL_ASSIGNMENT_BYTES or added_bytes <= 0:
            return True
        share = 1.0 if size_bytes <= LARGE_ASSIGNMENT_BYTES else LARGE_SHARE
        return self.assigned_bytes + added_bytes <= self.max_metadata_bytes * share

    def of_shard(self, shard_id: int) -> int:
        """Return the number that was last noted for one shard."""
        return self._of_shard.get(shard_id, 0)

    def admits(self) -> bool:
        """Return whether one more group may be created; count the refusal if not."""
        if self.groups < self.max_groups:
            return True
        self.refused += 1
        return False
