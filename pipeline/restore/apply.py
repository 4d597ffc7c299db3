"""Applies a plan group by group. For each group, the offsets are checked, written and read back.

If a group is refused, none of its offsets is changed. The committed offsets at the coordinator show
which changes are done, so an interrupted run can be repeated. A second run after a complete run
changes nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

import msgspec

from groupkeeper.pipeline.restore.cluster import (
    GROUPS_A_REQUEST,
    Cluster,
    ClusterError,
    ClusterGroup,
    GroupBusy,
)
from groupkeeper.pipeline.restore.plan import (
    Change,
    Clamp,
    Committed,
    Content,
    GroupPlan,
    Log,
    Partition,
    Plan,
    PlanKind,
    State,
    partitions_of,
    plan_group,
    progress,
    sealed,
)

NAMED: Final = 3
"""The largest number of items that a message names."""


class Result(StrEnum):
    """The result of a plan for one group."""

    APPLIED = "applied"
    """The offsets were changed, and were read back as planned."""
    DONE_BEFORE = "done_before"
    """The offsets were already as planned. Nothing was changed."""
    PENDING = "pending"
    """The offsets are as they were when the plan was made, so the plan can be applied. Only
    ``check`` returns this result.
    """
    REFUSED = "refused"
    """Nothing was changed. The message gives the reason."""
    FAILED = "failed"
    """The changes could not be completed. The message says how to continue."""


class Outcome(msgspec.Struct, frozen=True):
    """The result of one group, with its message."""

    group: str
    result: Result
    changed: int = 0
    """The number of changed partitions. If the group is pending, the number of partitions to
    change. In a comparison (``verify``, ``drift``), the number of partitions that differ."""
    message: str = ""
    """One line: what happened, the reason, and what to do next. Empty if nothing needs action."""

    @property
    def is_well(self) -> bool:
        """Return False if the group was refused or has failed, so that a person must act."""
        return self.result not in (Result.REFUSED, Result.FAILED)


# --- planning -------------------------------------------------------------------------------------


Removes: TypeAlias = Callable[[Partition], bool]
"""Called with a partition that has a committed offset but no wanted offset. If the result is True,
the plan deletes the committed offset."""


class Purpose(NamedTuple):
    """The purpose of a plan, for example to restore the offsets of a past moment. ``Content``
    explains each field.
    """

    kind: PlanKind
    source: str
    created_ms: int
    as_of_ms: int | None = None
    topics: Mapping[str, str] = {}


def make_plan(
    coordinator: Cluster,
    wanted: Mapping[str, Mapping[Partition, Committed]],
    data: Cluster | None,
    purpose: Purpose,
    *,
    removes: Removes = lambda partition: True,
) -> Plan:
    """Plan the change of each group to its wanted offsets.

    ``data`` is the cluster that has the records, or None. An offset that is not wanted is deleted
    if ``removes`` returns True. Otherwise it stays.
    """
    groups, clamps = plan_groups(coordinator, wanted, data, removes)
    return make_sealed(
        groups, coordinator.address, data.address if data and clamps else None, purpose
    )


def plan_groups(
    coordinator: Cluster,
    wanted: Mapping[str, Mapping[Partition, Committed]],
    data: Cluster | None,
    removes: Removes,
) -> tuple[list[GroupPlan], bool]:
    """Return the plans of the groups (see ``make_plan``). The second result is True if the log end
    of at least one partition is known. Then a target outside its log is clamped: it becomes the
    start or the end of the log.
    """
    current = {
        group: {
            each: value for each, value in offsets.items() if each in wanted[group] or removes(each)
        }
        for group, offsets in coordinator.offsets(list(wanted)).items()
    }
    logs = logs_for(coordinator, data, [*wanted.values(), *current.values()])
    clamps = any(log.end is not None for log in logs.values())
    return [plan_group(group, current[group], wanted[group], logs) for group in wanted], clamps


def make_sealed(
    groups: Iterable[GroupPlan], server: str, data: str | None, purpose: Purpose
) -> Plan:
    """Return a plan of these groups. ``server`` is the address of the coordinator to change.
    ``data`` is the address of the cluster with the records, or None if no log end was known.
    """
    return sealed(
        Content(
            kind=purpose.kind,
            created_ms=purpose.created_ms,
            source=purpose.source,
            server=server,
            data=data or "not clamped: no cluster with the records was named",
            groups=tuple(groups),
            as_of_ms=purpose.as_of_ms,
            topics=dict(purpose.topics),
        )
    )


def logs_for(
    coordinator: Cluster,
    data: Cluster | None,
    groups: Iterable[Collection[Partition]],
) -> dict[Partition, Log]:
    """Return the log start and end of every partition of the groups that exists.

    Partitions that do not exist in the cluster with the records are left out, since nobody could
    read them there. Without ``data``, the starts and ends are None.
    """
    partitions = partitions_of(groups)
    if data is coordinator:
        return coordinator.logs(partitions)
    there = coordinator.existing(partitions)
    return dict.fromkeys(there, Log()) if data is None else data.logs(there)


# --- looking, without changing --------------------------------------------------------------------


def check(coordinator: Cluster, groups: Sequence[GroupPlan]) -> Iterator[Outcome]:
    """Yield the outcome for each group: ``PENDING``, ``DONE_BEFORE``, or ``REFUSED`` with the
    reason. Nothing is changed.
    """
    for group, listed, now in _looked_at(coordinator, groups):
        refused = _refusal(coordinator, group, listed, now)
        if refused is not None:
            yield refused
            continue
        pending = progress(group, now)[State.PENDING]
        result = Result.PENDING if pending else Result.DONE_BEFORE
        yield Outcome(group.group, result, len(pending))


def verify(coordinator: Cluster, groups: Sequence[GroupPlan]) -> Iterator[Outcome]:
    """Compare the present offsets of each group with its plan. Yield ``DONE_BEFORE`` for a group if
    they are as planned, otherwise ``REFUSED``. The group may have members.
    """
    for group, _, now in _looked_at(coordinator, groups):
        found = progress(group, now)
        other = [*found[State.PENDING], *found[State.DRIFTED]]
        if not other:
            yield Outcome(group.group, Result.DONE_BEFORE)
            continue
        yield Outcome(
            group.group,
            Result.REFUSED,
            len(other),
            f"{_partitions(len(other), 'is', 'are')} not as planned: "
            f"{_values(other, now)}. Running consumers keep committing; if none runs, apply the "
            "plan, or make a new one",
        )


def _looked_at(
    coordinator: Cluster, groups: Sequence[GroupPlan]
) -> Iterator[tuple[GroupPlan, ClusterGroup | None, dict[Partition, Committed]]]:
    """Yield each group with its entry in the server's list (None if it is not listed) and its
    committed offsets. The list and the offsets are read once for many groups.
    """
    for at in range(0, len(groups), GROUPS_A_REQUEST):
        some = groups[at : at + GROUPS_A_REQUEST]
        listed = coordinator.groups()
        offsets = coordinator.offsets([each.group for each in some])
        for each in some:
            yield each, listed.get(each.group), offsets[each.group]


# --- applying -------------------------------------------------------------------------------------


def apply(coordinator: Cluster, groups: Sequence[GroupPlan]) -> Iterator[Outcome]:
    """Apply the plan of each group, and yield the outcome. If a group is refused or fails, the
    plans of the other groups are still applied.
    """
    for group, listed, now in _looked_at(coordinator, groups):
        try:
            yield _apply_group(coordinator, group, listed, now)
        except GroupBusy:
            yield _busy(coordinator, group, "", written=True)
        except ClusterError as error:
            yield Outcome(
                group.group,
                Result.FAILED,
                0,
                f"{error}. Some of it may be done: run this again to continue",
            )


def _apply_group(
    coordinator: Cluster,
    group: GroupPlan,
    listed: ClusterGroup | None,
    now: Mapping[Partition, Committed],
) -> Outcome:
    if not progress(group, now)[State.PENDING]:
        refused = _refusal(coordinator, group, listed, now)
        return refused or Outcome(group.group, Result.DONE_BEFORE)
    # read again: many groups were read together, and others have been written since then
    now = coordinator.offsets([group.group])[group.group]
    refused = _refusal(coordinator, group, listed, now)
    if refused is not None:
        return refused
    pending = progress(group, now)[State.PENDING]
    # deletes last: a group without offsets could be deleted before it gets its new ones
    offsets = {_key(each): each.target for each in pending if each.target is not None}
    deleted = [_key(each) for each in pending if each.target is None]
    if offsets:
        coordinator.commit(group.group, offsets)
    if deleted:
        coordinator.delete(group.group, deleted)
    return _read_back(coordinator, group, len(pending))


def _read_back(coordinator: Cluster, group: GroupPlan, changed: int) -> Outcome:
    now = coordinator.offsets([group.group])[group.group]
    found = progress(group, now)
    other = [*found[State.PENDING], *found[State.DRIFTED]]
    if not other:
        return Outcome(group.group, Result.APPLIED, changed)
    return Outcome(
        group.group,
        Result.FAILED,
        changed,
        f"written, but {_partitions(len(other), 'has', 'have')} other values now: "
        f"{_values(other, now)}. A client commits to this group: stop it, and make a new plan",
    )


# --- refusing -------------------------------------------------------------------------------------


def _refusal(
    coordinator: Cluster,
    group: GroupPlan,
    listed: ClusterGroup | None,
    now: Mapping[Partition, Committed],
) -> Outcome | None:
    found = progress(group, now)
    drifted, pending = found[State.DRIFTED], found[State.PENDING]
    if drifted:
        return Outcome(
            group.group,
            Result.REFUSED,
            0,
            f"{_partitions(len(drifted), 'has', 'have')} changed since the plan was made: "
            f"{_values(drifted, now)}. "
            "Nothing was changed; find the client that commits there, and make a new plan",
        )
    if pending and listed is not None and listed.state and not listed.is_idle:
        return _busy(coordinator, group, listed.state)
    return None


def _busy(coordinator: Cluster, group: GroupPlan, state: str, *, written: bool = False) -> Outcome:
    try:
        members = coordinator.members(group.group)
    except ClusterError:
        members = []
    who = f" ({_some(members)})" if members else ""
    so_far = "It stopped when a member joined" if written else "Nothing was changed"
    return Outcome(
        group.group,
        Result.REFUSED,
        0,
        f"the group has members{who}{f', it is {state}' if state else ''}; they would "
        f"overwrite the offsets. {so_far}; stop every consumer of the group, wait "
        f"until `{_describe(coordinator, group)}` says Empty, and run this again",
    )


def _describe(coordinator: Cluster, group: GroupPlan) -> str:
    server = coordinator.address.partition(",")[0].strip()
    return f"groupkeeper group describe {shlex.quote(group.group)} --server {server}"


def _values(changes: Sequence[Change], now: Mapping[Partition, Committed]) -> str:
    """Return a text about some partitions: ``orders-3 has 17, the plan knows 12 and 5``. The plan's
    numbers are ``current`` and ``target``.
    """
    return _some(
        [
            f"{each.topic}-{each.partition} has {_value(now.get(_key(each)))}, the plan knows "
            f"{_value(each.current)} and {_value(each.target)}"
            for each in changes
        ],
        "; ",
    )


def _value(committed: Committed | None) -> str:
    if committed is None:
        return "none"
    return f"{committed.offset}" + (f" {committed.metadata!r}" if committed.metadata else "")


def _some(texts: Sequence[str], between: str = ", ") -> str:
    more = f"{between}and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return between.join(texts[:NAMED]) + more


def _partitions(number: int, one: str, many: str) -> str:
    return f"1 partition {one}" if number == 1 else f"{number:,} partitions {many}"


def _key(each: Change) -> Partition:
    return Partition(each.topic, each.partition)


# --- summing up -----------------------------------------------------------------------------------


def clamped(plan: Plan) -> list[tuple[GroupPlan, Change]]:
    """Return every partition whose target differs from the requested offset."""
    return [
        (group, each)
        for group in plan.content.groups
        for each in group.changes
        if each.clamp is not Clamp.NONE
    ]
