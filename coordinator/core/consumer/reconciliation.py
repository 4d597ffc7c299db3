"""Reconciliation: how one member moves from its assignment to the target, heartbeat by heartbeat.

See docs/spec/consumer-groups.md#reconciliation; Kafka's CurrentAssignmentBuilder. No member gets a
partition before its previous owner acknowledged that it gave it up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from enum import IntEnum
from typing import NamedTuple, TypeAlias

Partition: TypeAlias = tuple[str, int]
"""(topic id, number)."""


class ReconciliationState(IntEnum):
    """How far a member has come. Kafka calls it MemberState; the numbers are the same."""

    STABLE = 0
    """It has all that its target gives it, unless there is a newer target."""
    UNREVOKED_PARTITIONS = 1
    """It has to give up partitions, and has not acknowledged it."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members still own."""


class CurrentAssignment(NamedTuple):
    """What a member has, and at which epoch."""

    state: ReconciliationState
    epoch: int
    previous_epoch: int
    """The epoch before the last change: a reply that told of the change may be lost."""
    assigned: Mapping[Partition, int]
    """Partition -> the epoch at which the member got it."""
    revoking: Mapping[Partition, int]
    """Partitions that the member has to give up. It owns them until it acknowledges."""


class MemberTarget(NamedTuple):
    """What a member shall have."""

    epoch: int
    partitions: Set[Partition]
    topics: Set[str]
    """The topics that it subscribes to now. All others count as if the target had none of them."""


def reconcile(
    current: CurrentAssignment,
    target: MemberTarget,
    owned: Set[Partition] | None,
    is_owned: Callable[[Partition], bool],
    *,
    subscription_changed: bool,
) -> CurrentAssignment:
    """Return the assignment of a member after a heartbeat; the same object if nothing changed.

    ``owned`` is what the heartbeat reports; None: nothing. ``is_owned`` tells whether any member
    owns a partition, be it assigned or not yet given up.
    """
    state = current.state
    if state is ReconciliationState.STABLE and current.epoch == target.epoch:
        return _cut(current, target, owned) if subscription_changed else current
    if state is ReconciliationState.UNREVOKED_PARTITIONS and _still_owns(owned, current.revoking):
        return _cut(current, target, owned) if subscription_changed else current
    return _advance(current, target, owned, is_owned)


def _still_owns(owned: Set[Partition] | None, revoking: Mapping[Partition, int]) -> bool:
    """Return whether the member has not acknowledged that it gave up these partitions."""
    return owned is None or not owned.isdisjoint(revoking)


def _cut(
    current: CurrentAssignment, target: MemberTarget, owned: Set[Partition] | None
) -> CurrentAssignment:
    """Take away the partitions of topics that the member no longer subscribes to."""
    gone = {p: epoch for p, epoch in current.assigned.items() if p[0] not in target.topics}
    if not gone:
        return current
    kept = {p: epoch for p, epoch in current.assigned.items() if p not in gone}
    revoking = {**current.revoking, **gone}
    if not _still_owns(owned, revoking):
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
    """Apply the first rule that fits (docs/spec/consumer-groups.md#reconciliation)."""
    wanted = {p for p in target.partitions if p[0] in target.topics}
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
