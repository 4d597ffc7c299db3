"""Running counts of groups, members and their metadata. So no code has to iterate over the groups
to count them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from groupkeeper.coordinator.core.group_state import STATES_OF, GroupState
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.groups.subscribers import Subscribers
from groupkeeper.coordinator.core.limits import MAX_METADATA_BYTES

CHARS_OF_A_GROUP: Final = 512
"""A group counts as one group, and as one more for each ``CHARS_OF_A_GROUP`` characters of its id.
512 characters take up to 2 KB, as much as a group costs. An id may have 32,767 bytes.
"""

SMALL_METADATA_BYTES: Final = 1_024
"""Metadata of one member up to this size is never refused because of other members.

The member itself costs at least as much memory.
"""
LARGE_METADATA_BYTES: Final = 16_384
"""Metadata of one member above this size may use only ``LARGE_SHARE`` of the limit.

Consumers of a hundred topics send less than this.
"""
LARGE_SHARE: Final = 0.5

SMALL_ASSIGNMENT_BYTES: Final = 1_024
LARGE_ASSIGNMENT_BYTES: Final = 262_144
"""The same two bounds for the assignments of one group. 500 members with 10 partitions each have
less than the second bound. Assignments and metadata are counted apart. So groups can still assign
when subscriptions have used their limit.
"""


Limit: TypeAlias = Literal["groups", "metadata", "assignments"]
"""The things that a census limits, for all shards together."""


class Tally:
    """The counts of one shard, which its groups update.

    It counts the groups (also by state), the members, the bytes of their metadata, and the room for
    their assignments. It also has the topics to which consumer groups subscribe.
    """

    def __init__(self) -> None:
        self.by_state: dict[tuple[GroupType, GroupState], int] = dict.fromkeys(
            [(group_type, state) for group_type, states in STATES_OF.items() for state in states], 0
        )
        self.groups = 0
        self.for_long_ids = 0
        """How many groups the long ids count as, in addition to the groups themselves
        (``CHARS_OF_A_GROUP``).
        """
        self.members = 0
        self.metadata_bytes = 0
        self.reserved_bytes = 0
        """The room for assignments that the groups have."""
        self.subscribers = Subscribers()


class Census:
    """The limits of all shards of one coordinator together, and the sums of their tallies.

    A group costs about 2 KB of memory, and any client can create groups. A member's metadata may
    have megabytes, and stays until its session ends, even after its connection is closed.
    """

    def __init__(
        self,
        max_groups: int,
        max_metadata_bytes: int = MAX_METADATA_BYTES,
        on_refusal: Callable[[Census, Limit, int], None] = lambda *_: None,
    ) -> None:
        """``on_refusal`` is called for each refusal with the size in bytes that was asked for, or
        with 0 for a group.
        """
        self._on_refusal = on_refusal
        self.max_groups = max_groups
        self.max_metadata_bytes = max_metadata_bytes
        self.refused = 0
        """Requests refused because ``max_groups`` was reached."""
        self.tallies: dict[int, Tally] = {}
        """Shard id -> the newest tally of the shard."""

    def count(self, shard_id: int, tally: Tally) -> None:
        """Count this tally for the shard from now on. Call this when the shard is loaded.

        During the load the previous tally of the shard still counts, because the groups still
        exist.
        """
        self.tallies[shard_id] = tally

    def forget(self, shard_id: int) -> None:
        """Stop counting a shard, because another process has its groups now."""
        self.tallies.pop(shard_id, None)

    @property
    def groups(self) -> int:
        return sum([tally.groups for tally in self.tallies.values()])

    @property
    def for_long_ids(self) -> int:
        """How many groups the long ids count as, in addition to the groups themselves."""
        return sum([tally.for_long_ids for tally in self.tallies.values()])

    @property
    def metadata_bytes(self) -> int:
        """The size of the metadata of all members."""
        return sum([tally.metadata_bytes for tally in self.tallies.values()])

    @property
    def reserved_bytes(self) -> int:
        """The sum of the room that all groups reserve for assignments. A classic group reserves the
        size of its encoded assignments. A consumer group also reserves room for moves of its
        partitions.
        """
        return sum([tally.reserved_bytes for tally in self.tallies.values()])

    def admits_metadata(self, size_bytes: int, added_bytes: int) -> bool:
        """Return True if the metadata of a member may grow by ``added_bytes`` to ``size_bytes``.
        Otherwise report the refusal. ``ShardState.admits_metadata`` allows small metadata without
        this call.
        """
        share = 1.0 if size_bytes <= LARGE_METADATA_BYTES else LARGE_SHARE
        if self.metadata_bytes + added_bytes <= self.max_metadata_bytes * share:
            return True
        self._on_refusal(self, "metadata", size_bytes)
        return False

    def admits_assignment(self, size_bytes: int, added_bytes: int) -> bool:
        """Return True if the room for the assignments of a group may grow by ``added_bytes`` to
        ``size_bytes``. Otherwise report the refusal. ``ShardState.admits_assignment`` allows small
        assignments without this call.
        """
        share = 1.0 if size_bytes <= LARGE_ASSIGNMENT_BYTES else LARGE_SHARE
        if self.reserved_bytes + added_bytes <= self.max_metadata_bytes * share:
            return True
        self._on_refusal(self, "assignments", size_bytes)
        return False

    def admits(self) -> bool:
        """Return True if one more group may be created. Otherwise count and report the refusal."""
        if self.groups + self.for_long_ids < self.max_groups:
            return True
        self.refused += 1
        self._on_refusal(self, "groups", 0)
        return False
