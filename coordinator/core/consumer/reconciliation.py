"""Reconciliation: how one member moves from its assignment to the target, one heartbeat after the
other.

See docs/spec/consumer-groups.md#reconciliation; Kafka's CurrentAssignmentBuilder. A member gets a
partition only after the previous owner has acknowledged that it gave it up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from enum import IntEnum
from typing import NamedTuple, TypeAlias

HeldPartitions: TypeAlias = Mapping[str, Mapping[int, int]]
"""Topic id -> partition -> the epoch at which the member got it. No topic is without partitions.

All work goes topic by topic: a tuple for each of 50,000 partitions would hold the loop for longer
than 100 ms.
"""


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
    assigned: HeldPartitions
    revoking: HeldPartitions
    """Partitions that the member has to give up. It owns them until it acknowledges this."""


class MemberTarget(NamedTuple):
    """The partitions that a member should have, and the epoch of the target assignment."""

    epoch: int
    partitions: Mapping[str, Collection[int]]
    """Topic id -> partitions."""
    topics: Set[str]
    """The topics that the member subscribes to now. Partitions of other topics do not count."""


def reconcile(
    current: CurrentAssignment,
    target: MemberTarget,
    owned: Mapping[str, Set[int]] | None,
    taken: Mapping[str, Collection[int]],
    *,
    subscription_changed: bool,
) -> CurrentAssignment:
    """Return the assignment of a member after a heartbeat. If nothing changed, it is the same
    object.

    ``owned`` has the partitions that the heartbeat reports, by topic; None if it reports nothing.
    ``taken`` has the partitions that any member owns: they are assigned to a member, or not yet
    given up.
    """
    state = current.state
    if state is ReconciliationState.STABLE and current.epoch == target.epoch:
        return _cut(current, target, owned) if subscription_changed else current
    if state is ReconciliationState.UNREVOKED_PARTITIONS and _still_owns(owned, current.revoking):
        return _cut(current, target, owned) if subscription_changed else current
    return _advance(current, target, owned, taken)


def _still_owns(owned: Mapping[str, Set[int]] | None, revoking: HeldPartitions) -> bool:
    """Return True if the member has not yet acknowledged that it gave up these partitions."""
    return owned is None or any(
        not parts.keys().isdisjoint(owned.get(topic, ())) for topic, parts in revoking.items()
    )


def _cut(
    current: CurrentAssignment, target: MemberTarget, owned: Mapping[str, Set[int]] | None
) -> CurrentAssignment:
    """Remove the partitions of topics that the member no longer subscribes to."""
    gone = {t: parts for t, parts in current.assigned.items() if t not in target.topics}
    if not gone and (target.topics or current.revoking):
        return current
    kept = {t: parts for t, parts in current.assigned.items() if t not in gone}
    revoking = _merged(current.revoking, gone)
    # Kafka writes a record for a member without topics even if it had nothing.
    if not revoking or not _still_owns(owned, revoking):
        return current._replace(previous_epoch=current.epoch, assigned=kept)
    return CurrentAssignment(
        ReconciliationState.UNREVOKED_PARTITIONS, current.epoch, current.epoch, kept, revoking
    )


def _advance(
    current: CurrentAssignment,
    target: MemberTarget,
    owned: Mapping[str, Set[int]] | None,
    taken: Mapping[str, Collection[int]],
) -> CurrentAssignment:
    """Apply the first rule that matches (docs/spec/consumer-groups.md#reconciliation)."""
    wanted = {t: numbers for t, numbers in target.partitions.items() if t in target.topics}
    kept: dict[str, Mapping[int, int]] = {}
    revoking: dict[str, Mapping[int, int]] = {}
    for topic, parts in current.assigned.items():
        numbers = frozenset(wanted.get(topic, ()))
        if parts.keys() <= numbers:
            kept[topic] = parts
            continue
        revoking[topic] = {n: epoch for n, epoch in parts.items() if n not in numbers}
        if stays := {n: epoch for n, epoch in parts.items() if n in numbers}:
            kept[topic] = stays
    if revoking and _still_owns(owned, revoking):
        return CurrentAssignment(
            ReconciliationState.UNREVOKED_PARTITIONS, current.epoch, current.epoch, kept, revoking
        )
    got: dict[str, dict[int, int]] = {}
    is_complete = True
    for topic, numbers_wanted in wanted.items():
        has, others = kept.get(topic, {}), taken.get(topic, ())
        own = current.revoking.get(topic, {})  # free for the member that was giving it up
        missing = [n for n in numbers_wanted if n not in has] if has else numbers_wanted
        free = [n for n in missing if n in own or n not in others] if others else missing
        is_complete = is_complete and len(free) == len(missing)
        if free:
            got[topic] = dict.fromkeys(free, target.epoch)
    return CurrentAssignment(
        ReconciliationState.STABLE if is_complete else ReconciliationState.UNRELEASED_PARTITIONS,
        target.epoch,
        current.epoch,
        _merged(kept, got),
        {},
    )


def _merged(some: HeldPartitions, others: HeldPartitions) -> HeldPartitions:
    """Return the partitions of both."""
    both = {topic: {**some[topic], **parts} for topic, parts in others.items() if topic in some}
    return {**some, **others, **both}
