"""How many groups and members there are, counted as they come and go: nobody has to walk them."""

from __future__ import annotations

from coordinator.core.requests import GroupState


class Tally:
    """The groups of one shard by state, and their members."""

    __slots__ = ("by_state", "members")

    def __init__(self) -> None:
        """Count nothing yet."""
        self.by_state: dict[GroupState, int] = dict.fromkeys(GroupState, 0)
        self.members = 0

    def move(self, old: GroupState, new: GroupState) -> None:
        """Count a group that changed its state."""
        self.by_state[old] -= 1
        self.by_state[new] += 1


class Census:
    """The groups of all shards of one coordinator, which share it, and how many there may be.

    A group costs about 2 KB of memory, and any peer can name new ones.
    """

    __slots__ = ("_of_shard", "groups", "max_groups", "refused")

    def __init__(self, max_groups: int) -> None:
        """Begin without groups."""
        self.max_groups = max_groups
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

    def of_shard(self, shard_id: int) -> int:
        """Return the number that was last noted for one shard."""
        return self._of_shard.get(shard_id, 0)

    def admits(self) -> bool:
        """Return whether one more group may be created; count the refusal if not."""
        if self.groups < self.max_groups:
            return True
        self.refused += 1
        return False
