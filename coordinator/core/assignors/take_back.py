"""Take back moves without touching the balance: the negative cycles of a flow, cancelled.

A cycle goes from a member to a pool (it gives one up: a move if it had it before), from a pool to a
member (it gets one: a move less if it had it before), and from a member to one that holds exactly
one more than it, whose loads the rest of the cycle swaps. As long as a cycle saves a move there is
a better flow, and once none does there is not (Klein). Found as in Bellman and Ford, but only from
where a move can be saved at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from groupkeeper.coordinator.core.assignors.flow import Flow


def take_back_moves(flow: Flow, effort: int) -> None:
    """Cancel cycles until none saves a move, or until that many exchanges were looked at."""
    while effort > 0:
        search = _Search(flow)
        cycles = search.cycles(effort)
        effort -= search.looked_at
        if not cycles:
            return
        for cycle in cycles:
            search.cancel(cycle)


class _Search:
    """One search for cycles. Members, pools and levels of load are nodes, in this order."""

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
        self.looked_at = 0

    def cycles(self, effort: int) -> list[list[int]]:
        """Return cycles that save moves, no node in two of them; none if no cycle saves any."""
        flow = self._flow
        active = [
            self._first_pool + pool
            for pool, owned in enumerate(flow.owned)
            if any(flow.held[pool][member] < count for member, count in owned.items())
        ]
        while active and self.looked_at < effort:
            met: dict[int, None] = {}
            for node in active:
                for to, cost in self._exchanges(node):
                    self.looked_at += 1
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
        """Name the nodes that an exchange may go on to, and how many moves each step costs."""
        flow = self._flow
        if node < self._first_pool:
            for pool in flow.pools_of[node]:
                held = flow.held[pool][node]
                if held:
                    yield self._first_pool + pool, int(held <= flow.owned[pool].get(node, 0))
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
        """Follow the nodes back to where they came from; whoever comes by twice is on a cycle."""
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
        """Make the exchanges of a cycle."""
        flow = self._flow
        for node, to in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            if node < self._first_pool <= to < self._first_level:
                flow.held[to - self._first_pool][node] -= 1
                flow.load[node] -= 1
            elif self._first_pool <= node < self._first_level:
                flow.held[node - self._first_pool][to] += 1
                flow.load[to] += 1
