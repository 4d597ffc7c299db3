"""Finds the end of a day that new events about members and rebalances can change (small data only).

A *rebalance* is a row of ``silver/rebalances``. The start of a rebalance in a group always begins a
new row. So if all new events of a group are later than its known events, no row from before its
last start changes. Only the events from this start on are computed again. If new events are
earlier than known ones, or a known row cannot be told from another, there is no such end, and the
whole day is computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from groupkeeper.pipeline.tables.rebalances import MOVED
from groupkeeper.pipeline.tables.small import joined

if TYPE_CHECKING:
    import pyarrow as pa

Group = tuple[str, str | None]
"""A store, and the name of a group; None in an event of no group."""
Order = tuple[int, int]
"""The lease epoch and the seq of an event, which sort the events of a group."""

_START: Final = "rebalance_start"
_LATER_STEPS: Final = ("rebalance_end", "assignment")
_FROM_FIRST: Final = (-1, -1)


class Tail(NamedTuple):
    """The part of a day that is computed again."""

    steps: pa.Table
    """The known and new events since the last start of a rebalance, of groups with new events."""
    told: pa.Table
    """All events of these groups that give partitions to members, or name a static member."""
    kept: pa.Table
    """The rows of ``silver/rebalances`` that do not change."""


def tail(known: pa.Table, new: pa.Table, rebalances: pa.Table) -> Tail | None:
    """Return the part of the day to compute again if the day gets ``new`` events. Return None if
    the whole day must be computed again.

    ``known`` has the earlier events of the day (``silver.lives``), and those that the day before
    carries. ``rebalances`` has the rows of silver that were computed from them.
    """
    groups = _first_orders(new)
    ends = _Ends()
    for group, order, kind, ts_ms in _events(known):
        if group not in groups:
            continue
        if order >= groups[group]:
            return None
        ends.add(group, order, kind, ts_ms)
    if ends.are_ambiguous():
        return None
    both = joined(known, new)
    is_step, is_told = [], []
    names = both["instance_id"].to_pylist()
    for (group, order, kind, _), name in zip(_events(both), names, strict=True):
        is_touched = group in groups
        is_step.append(is_touched and order >= ends.starts.get(group, _FROM_FIRST))
        is_given = kind in ("assignment", MOVED) or (kind == "member_join" and name is not None)
        is_told.append(is_touched and is_given)
    kept = [
        group not in groups or ends.is_before(group, seq, ended_ms)
        for group, seq, ended_ms in _rows(rebalances)
    ]
    return Tail(_only(both, is_step), _only(both, is_told), _only(rebalances, kept))


def _only(rows: pa.Table, mask: list[bool]) -> pa.Table:
    import pyarrow as pa

    return rows.filter(pa.array(mask, pa.bool_()))  # an empty list has no type


class _Ends:
    """The last start of a rebalance in each group, and the later events."""

    def __init__(self) -> None:
        self.starts: dict[Group, Order] = {}
        self._steps: dict[Group, list[tuple[Order, str, int]]] = defaultdict(list)
        self._times_of: dict[Group, frozenset[int]] = {}

    def add(self, group: Group, order: Order, kind: str, ts_ms: int) -> None:
        if kind == _START:
            self.starts[group] = max(order, self.starts.get(group, order))
        if kind == _START or kind in _LATER_STEPS:
            self._steps[group].append((order, kind, ts_ms))

    def are_ambiguous(self) -> bool:
        """Return True if an event before the last start of its group looks in a row like a later
        one: a start has the same seq, or another step the same time.
        """
        return any(
            (order[1] == start[1] if kind == _START else ts_ms in self._times(group))
            for group, start in self.starts.items()
            for order, kind, ts_ms in self._steps[group]
            if order < start
        )

    def is_before(self, group: Group, seq: int | None, ended_ms: int | None) -> bool:
        """Return True if a row of a rebalance has no event since the last start of its group. The
        row of a rebalance with an unknown start has no seq.
        """
        if group not in self.starts:
            return False
        if seq is not None:
            return seq != self.starts[group][1]
        return ended_ms not in self._times(group)

    def _times(self, group: Group) -> frozenset[int]:
        if group not in self._times_of:
            start = self.starts[group]
            times = (ts_ms for order, _, ts_ms in self._steps[group] if order > start)
            self._times_of[group] = frozenset(times)
        return self._times_of[group]


def _first_orders(events: pa.Table) -> dict[Group, Order]:
    first: dict[Group, Order] = {}
    for group, order, _, _ in _events(events):
        if group[1] is None:  # an event of a shard or of the whole coordinator
            continue
        first[group] = min(order, first.get(group, order))
    return first


def _events(events: pa.Table) -> Iterator[tuple[Group, Order, str, int]]:
    names = ("store", "group", "lease_epoch", "seq", "kind", "ts_ms")
    for store, group, *order, kind, ts_ms in zip(
        *(events[name].to_pylist() for name in names), strict=True
    ):
        yield (store, group), (order[0], order[1]), kind, ts_ms


def _rows(rebalances: pa.Table) -> Iterator[tuple[Group, int | None, int | None]]:
    names = ("store", "group", "seq", "completed_ms", "assigned_ms")
    for store, group, seq, completed_ms, assigned_ms in zip(
        *(rebalances[name].to_pylist() for name in names), strict=True
    ):
        yield (store, group), seq, assigned_ms if completed_ms is None else completed_ms
