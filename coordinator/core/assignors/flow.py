"""Divides the partitions of pools among members. A pool has all topics with the same subscribers.
Members and pools are numbers here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace


class Flow:
    """The number of partitions that each member has of each pool.

    At first these are the partitions that the members already own.
    """

    def __init__(
        self,
        member_count: int,
        members: Sequence[Sequence[int]],
        owned: Sequence[Mapping[int, int]],
    ) -> None:
        """Start with the members of each pool (``members``), and with the number of its partitions
        that each member owns (``owned``).
        """
        self.members = members
        self.owned = owned
        self.held = [
            dict.fromkeys(subscribers, 0) | dict(had)
            for subscribers, had in zip(members, owned, strict=True)
        ]
        """For each pool: member -> number of partitions. Zeros are included."""
        self.pools_of: list[set[int]] = [set() for _ in range(member_count)]
        """For each member: the pools of which it has partitions."""
        self.load = [0] * member_count
        """For each member: the number of its partitions in all pools."""
        self._least = [0] * len(members)
        """For each pool: the least load that the last search found among its members
        (``_low_member``).
        """
        for pool, had in enumerate(owned):
            for member, count in had.items():
                if count:
                    self.pools_of[member].add(pool)
                    self.load[member] += count

    def give(self, pool: int, member: int) -> None:
        """Give a member one more partition of a pool. The caller changes the member's load."""
        self.held[pool][member] += 1
        self.pools_of[member].add(pool)

    def take(self, pool: int, member: int) -> None:
        """Take one partition of a pool from a member. The caller changes the member's load."""
        self.held[pool][member] -= 1
        if not self.held[pool][member]:
            self.pools_of[member].remove(pool)

    def deal_free(self, free: Sequence[int]) -> None:
        """Assign the free partitions of each pool, one by one, to its least loaded member. Pools
        with few members come first. ``free`` is the number of free partitions of each pool.
        """
        for pool in sorted(range(len(free)), key=lambda pool: len(self.members[pool])):
            if not free[pool]:
                continue
            least = [(self.load[member], member) for member in self.members[pool]]
            heapify(least)
            for _ in range(free[pool]):
                load, member = least[0]
                self.give(pool, member)
                self.load[member] = load + 1
                heapreplace(least, (load + 1, member))

    def level(self) -> None:
        """Make the loads as even as the subscriptions allow.

        In an exchange, a member passes one partition to another member of the pool. A chain of
        exchanges lowers the load of its first member by one, and raises the load of its last member
        by one. Apply chains until none leads to a member with at least two partitions less than its
        first member (optimal semi-matchings: Harvey, Ladner, Lovasz, Tamir).
        """
        most = [(-load, member) for member, load in enumerate(self.load)]
        heapify(most)
        unsettled = set(range(len(self.load)))
        while most:
            load, start = heappop(most)
            if start not in unsettled or -load != self.load[start]:
                continue
            end = self._shift_down(start, unsettled)
            if end is not None:
                heappush(most, (-self.load[start], start))
                heappush(most, (-self.load[end], end))

    def _shift_down(self, start: int, unsettled: set[int]) -> int | None:
        """Apply a chain of exchanges from ``start`` to a member with at least two partitions less.
        Return that member; None if no chain leads to such a member.

        If None is returned, all members that the search visited are removed from ``unsettled``. No
        unsettled member has a larger load than ``start``. So no chain through a visited member can
        help any of them.
        """
        # member -> the pool and the member from which the search reached it
        came_by: dict[int, tuple[int, int]] = {}
        unmet = unsettled - {start}
        met_pools: set[int] = set()
        met = [start]
        for giver in met:
            gives = sorted(self.pools_of[giver] - met_pools)
            for pool in gives:
                end = self._low_member(pool, self.load[start] - 2)
                if end is not None:
                    came_by[end] = (pool, giver)
                    self._shift_along(came_by, end, start)
                    return end
            met_pools.update(gives)
            for pool in gives:
                # an intersection walks through the smaller set, and soon few members are unvisited
                fresh = sorted(self.held[pool].keys() & unmet)
                unmet.difference_update(fresh)
                came_by.update(dict.fromkeys(fresh, (pool, giver)))
                met += fresh
                if not unmet:
                    break
            if not unmet:
                break
        unsettled.difference_update(met)
        return None

    def _low_member(self, pool: int, highest: int) -> int | None:
        """Return the least loaded member of a pool; None if its load is above ``highest``.

        ``_least`` has the least load that an earlier call found in each pool. With it, most pools
        are excluded without a look at their members. The value may be out of date, but this does no
        harm. ``level`` begins with the members that have the largest loads. So the least load of a
        pool only grows, or it is so near the largest load that no exchange would help.
        """
        if self._least[pool] > highest:
            return None
        member = min(self.members[pool], key=self.load.__getitem__)
        self._least[pool] = self.load[member]
        return member if self.load[member] <= highest else None

    def _shift_along(self, came_by: Mapping[int, tuple[int, int]], end: int, start: int) -> None:
        self.load[start] -= 1
        self.load[end] += 1
        taker = end
        while taker != start:
            pool, giver = came_by[taker]
            self.take(pool, giver)
            self.give(pool, taker)
            taker = giver
