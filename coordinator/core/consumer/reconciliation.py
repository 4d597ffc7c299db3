"""Reconciliation: how one member moves from its assignment to the target, one heartbeat after the
other.

See docs/spec/consumer-groups.md#reconciliation; Kafka's CurrentAssignmentBuilder. A member gets a
partition only after the previous owner has acknowledged that it gave it up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from enum import IntEnum
from typing import NamedTuple, TypeAlias

Partition: TypeAlias = tuple[str, int]
"""(topic id, number)."""


class ReconciliationState(IntEnum):
    """The state of a member on the way to its target. Kafka calls it MemberState; the numbers are
    the same.
    """

    STABLE = 0
    """It has everything that its target gives it. There may be a newer target."""
    UNREVOKED_PARTITIONS = 1
    """It has to give up partitions, and has not acknowledged this yet."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members still own."""


class CurrentAssignment(NamedTuple):
    """The partitions that a member has, and its epoch."""

    state: ReconciliationState
    epoch: int
    previous_epoch: int
    """The epoch before the last change. The member may not know of the change, because a reply may
    be lost."""
    assigned: Mapping[Partition, int]
    """Partition -> the epoch at which the member got it."""
    revoking: Mapping[Partition, int]
    """Partitions that the member has to give up. It owns them until it acknowledges this."""


class MemberTarget(NamedTuple):
    """The partitions that a member should have, and the epoch of the target assignment."""

    epoch: int
    partitions: Set[Partition]
    topics: Set[str]
    """The topics that the member subscribes to now. Partitions of other topics do not count."""


def reconcile(
    current: CurrentAssignment,
    target: MemberTarget,
    owned: Set[Partition] | None,
    is_owned: Callable[[Partition], bool],
    *,
    subscription_changed: bool,
) -> CurrentAssignment:
    """Return the assignment of a member after a heartbeat. If nothing changed, it is the same
    object.

    ``owned`` has the partitions that the heartbeat reports; None if it reports nothing.
    ``is_owned`` returns True if any member owns a partition: it is assigned to a member, or not yet
    given up.
    """
    state = current.state
    if state is ReconciliationState.STABLE and current.epoch == target.epoch:
        return _cut(current, target, owned) if subscription_changed else current
    if state is ReconciliationState.UNREVOKED_PARTITIONS and _still_owns(owned, current.revoking):
        return _cut(current, target, owned) if subscription_changed else current
    return _advance(current, target, owned, is_owned)


def _still_owns(owned: Set[Partition] | None, revoking: Mapping[Partition, int]) -> bool:
    """Return True if the member has not yet acknowledged that it gave up these partitions."""
    return owned is None or not owned.isdisjoint(revoking)


def _cut(
    current: CurrentAssignment, target: MemberTarget, owned: Set[Partition] | None
) -> CurrentAssignment:
    """Remove the partitions of topics that the member no longer subscribes to."""
    gone = {p: epoch for p, epoch in current.assigned.items() if p[0] not in target.topics}
    if not gone and (target.topics or current.revoking):
        return current
    kept = {p: epoch for p, epoch in current.assigned.items() if p not in gone}
    revoking = {**current.revoking, **gone}
    # Kafka writes a record for a member without topics even if it had nothing.
    if not revoking or not _still_owns(owned, revoking):
        return current._replace(previous_epoch=current.epoch, assigned=kept)
    return CurrentAssignment(
        ReconciliationState.UNREVOKED_PARTITIONS, current.epoch, current.epoch, kept, revoking
    )


def _advance(
    current: CurrentAssignment,
    target: MemberTarget,
    owned: Set[Partition] | None,
    is_owned: Callable[[Partition], bool],
) -> CurrentAssignment:
    """Apply the first rule that matches (docs/spec/consumer-groups.md#reconciliation)."""
    # dicts and lists, which keep the order: 50,000 partitions would take long to sort again
    wanted = dict.fromkeys([p for p in target.partitions if p[0] in target.topics])
    kept = {p: epoch for p, epoch in current.assigned.items() if p in wanted}
    revoking = {p: epoch for p, epoch in current.assigned.items() if p not in wanted}
    if revoking and _still_owns(owned, revoking):
        return CurrentAssignment(
            ReconciliationState.UNREVOKED_PARTITIONS, current.epoch, current.epoch, kept, revoking
        )
    missing = [p for p in wanted if p not in kept]
    # what the member itself was giving up is free for it
    free = [p for p in missing if p in current.revoking or not is_owned(p)]
    is_complete = len(free) == len(missing)
    return CurrentAssignment(
        ReconciliationState.STABLE if is_complete else ReconciliationState.UNRELEASED_PARTITIONS,
        target.epoch,
        current.epoch,
        kept | dict.fromkeys(free, target.epoch),
        {},
    )
