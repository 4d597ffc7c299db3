"""Computes how many partitions of each pool every member gets: first balance, then few moves.

A pool has all topics with the same subscribers. If no member is in two pools, each pool is simply
divided evenly. Otherwise the partitions flow from pools to members, and we search the flow of least
cost. The cost is the sum of the squared loads, and then the number of moved partitions.

In an exchange, a member passes a partition to another member of the pool. A flow has the least cost
exactly if no cycle of exchanges lowers the cost. So there are three passes: assign the free
partitions, make the loads even by chains of exchanges, and undo moves by cycles of exchanges. Such
a cycle keeps the balance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from groupkeeper.coordinator.core.assignors.flow import Flow
from groupkeeper.coordinator.core.assignors.take_back import take_back_moves

EFFORT: Final = 2_000_000
"""The largest number of exchanges that the last pass examines: they take about a second. The limit
is a count and not a time, because every process must compute the same assignment.
"""


@dataclass(frozen=True, slots=True)
class Pool:
    """The number of partitions of all topics that have the same subscribers."""

    subscribers: Sequence[str]
    """The ids of the subscribers, in the order of the members. Never empty."""
    size: int
    """Number of partitions to assign."""
    owned: Mapping[str, int]
    """Member id -> how many of the partitions the subscriber already has. The sum is never more
    than ``size``.
    """


def shares_of(pools: Sequence[Pool]) -> list[dict[str, int]]:
    """Return for each pool: member id -> how many of its partitions the member gets."""
    seats = [member_id for pool in pools for member_id in pool.subscribers]
    if len(set(seats)) == len(seats):
        return [_even_shares(pool) for pool in pools]
    names = sorted(set(seats))
    number_of = {name: number for number, name in enumerate(names)}
    flow = Flow(
        len(names),
        [[number_of[name] for name in pool.subscribers] for pool in pools],
        [{number_of[name]: count for name, count in pool.owned.items()} for pool in pools],
    )
    flow.deal_free([pool.size - sum(pool.owned.values()) for pool in pools])
    flow.level()
    take_back_moves(flow, EFFORT)
    return [{names[member]: count for member, count in held.items()} for held in flow.held]


def _even_shares(pool: Pool) -> dict[str, int]:
    """Return the shares of a pool whose members are in no other pool. If the division has a
    remainder, members that already have more partitions get it first.
    """
    share, extra = divmod(pool.size, len(pool.subscribers))
    by_need = sorted(pool.subscribers, key=lambda member_id: pool.owned.get(member_id, 0) <= share)
    gets_more = set(by_need[:extra])
    return {member_id: share + (member_id in gets_more) for member_id in pool.subscribers}
