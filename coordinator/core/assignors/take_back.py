"""Undoes needless moves of partitions and keeps the balance: cancels the negative cycles of a flow.

A cycle has three kinds of edges:

- Member to pool: the member gives up a partition. This is a move if the member owned it before.
- Pool to member: the member gets a partition. This undoes a move if the member owned one before.
- Member to a member with exactly one partition more: the other edges of the cycle swap the loads of
  the two.

If a cycle saves a move, a better flow exists. If no cycle does, no better flow exists (Klein). The
search is the algorithm of Bellman and Ford, but it begins only where a move can be saved.
"""

from __future__ import annotations

from collections.abc import Iterator

from groupkeeper.coordinator.core.assignors.flow import Flow


def take_back_moves(flow: Flow, effort: int) -> None:
    """Apply cycles of exchanges that undo moves, until there are none. Stop after ``effort``
    exchanges were examined.
    """
    while effort > 0:
        search = _Search(flow)
        cycles = search.cycles(effort)
        effort -= search.count_examined
        if not cycles:
            return
        for cycle in cycles:
            search.cancel(cycle)


class _Search:
    """One search for cycles in a flow. The nodes are numbered: first members, then pools, then
    loads.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._first_pool = len(flow.load)
        self._first_level = self._first_pool + len(flow.held)
        nodes = self._first_level + max(flow.load, default=0) + 2
        self._cost = [0] * nodes
        self._came_from = [-1] * nodes
        self._at_level: dict[int, list[int]] = {}
        for member, load in enumerate(flow.load):
            self._at_level.setdefault(load, []).append(member)
        self.count_examined = 0

    def cycles(self, effort: int) -> list[list[int]]:
        """Return disjoint cycles that each save a move. Return an empty list if there are none, or
        after ``effort`` exchanges were examined.
        """
        flow = self._flow
        active = [
            self._first_pool + pool
            for pool, owned in enumerate(flow.owned)
            if any(flow.held[pool][member] < count for member, count in owned.items())
        ]
        while active and self.count_examined < effort:
            met: dict[int, None] = {}
            for node in active:
                for to, cost in self._exchanges(node):
                    self.count_examined += 1
                    if self._cost[node] + cost < self._cost[to]:
                        self._cost[to] = self._cost[node] + cost
                        self._came_from[to] = node
                        met[to] = None
            found = self._closed(met)
            if found:
                return found
            active = list(met)
        return []

    def _exchanges(self, node: int) -> Iterator[tuple[int, int]]:
        """Yield the nodes that can follow a node in a cycle, each with the number of moves that the
        edge costs. -1 means that it undoes a move.
        """
        flow = self._flow
        if node < self._first_pool:
            for pool in sorted(flow.pools_of[node]):
                is_move = flow.held[pool][node] <= flow.owned[pool].get(node, 0)
                yield self._first_pool + pool, int(is_move)
            yield self._first_level + flow.load[node] + 1, 0
        elif node < self._first_level:
            pool = node - self._first_pool
            owned = flow.owned[pool]
            for member, held in flow.held[pool].items():
                yield member, -int(held < owned.get(member, 0))
        else:
            for member in self._at_level.get(node - self._first_level, ()):
                yield member, 0

    def _closed(self, met: dict[int, None]) -> list[list[int]]:
        """Walk back from each of these nodes to its predecessors, and return the cycles on these
        walks. A node that one walk visits twice is on a cycle.
        """
        walk_of: dict[int, int] = {}
        cycles = []
        for walk, start in enumerate(met):
            node = start
            while node != -1 and node not in walk_of:
                walk_of[node] = walk
                node = self._came_from[node]
            if node != -1 and walk_of[node] == walk:
                cycle = [node]
                while self._came_from[cycle[-1]] != node:
                    cycle.append(self._came_from[cycle[-1]])
                cycles.append(cycle[::-1])
        return cycles

    def cancel(self, cycle: list[int]) -> None:
        """Apply the exchanges of a cycle."""
        flow = self._flow
        for node, to in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            if node < self._first_pool <= to < self._first_level:
                flow.take(to - self._first_pool, node)
                flow.load[node] -= 1
            elif self._first_pool <= node < self._first_level:
                flow.give(node - self._first_pool, to)
                flow.load[to] += 1
