"""Reconciliation: how one member moves from its assignment to the target, one heartbeat after the
other.

See docs/spec/consumer-groups.md#reconciliation; Kafka's CurrentAssignmentBuilder. A member gets a
partition only after the previous owner has acknowledged that it gave the partition up.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Set
from enum import IntEnum
from itertools import repeat
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

import msgspec

from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    PartitionEpochs,
    Partitions,
)

OfTopic: TypeAlias = tuple[tuple[int, int], ...]
"""The partitions of one topic, sorted, each with the epoch at which the member got it."""

_NUMBER: Final = itemgetter(0)


class ReconciliationState(IntEnum):
    """How far a member is on the way to its target. Kafka calls this MemberState; the numbers are
    the same.
    """

    STABLE = 0
    """The member has all partitions of its target. There may be a newer target."""
    UNREVOKED_PARTITIONS = 1
    """The member has to give up partitions, and has not acknowledged this yet."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that other members still own."""


class MemberTarget(NamedTuple):
    """The partitions that a member should have, and the epoch of the target assignment."""

    epoch: int
    partitions: Partitions
    topics: Set[str]
    """The topics that the member subscribes to now. ``partitions`` of other topics are ignored."""


def reconcile(
    current: AssignedFields,
    target: MemberTarget,
    owned: Mapping[str, Set[int]] | None,
    taken: Mapping[str, Collection[int]],
    *,
    subscription_changed: bool,
) -> AssignedFields:
    """Return the assignment of a member after a heartbeat. If nothing changed, return the same
    object.

    ``owned`` has the partitions that the heartbeat reports, by topic id; None if it reports
    nothing. ``taken`` has the partitions that any member owns, by topic id. A member owns the
    partitions that are assigned to it, and those that it has not yet given up.

    The topics are handled one by one, and the tuple of a topic that does not change is used again.
    A member may have 100,000 partitions or 20,000 topics, and must not block the loop for more than
    100 ms.
    """
    state = current.state
    if state == ReconciliationState.STABLE and current.epoch == target.epoch:
        return _cut(current, target, owned) if subscription_changed else current
    if state == ReconciliationState.UNREVOKED_PARTITIONS and _still_owns(owned, current.revoking):
        return _cut(current, target, owned) if subscription_changed else current
    return _advance(current, target, owned, taken)


def numbers_by_topic(by_topic: PartitionEpochs) -> Partitions:
    """Return the partitions without their epochs, by topic id. Often many topics share one tuple of
    partitions: it is converted only once.
    """
    if not by_topic:  # most members have nothing to give up
        return {}
    different = {id(parts): parts for parts in by_topic.values()}
    numbers = {key: tuple(map(_NUMBER, parts)) for key, parts in different.items()}
    return {topic: numbers[id(parts)] for topic, parts in by_topic.items()}


def _still_owns(owned: Mapping[str, Set[int]] | None, revoking: PartitionEpochs) -> bool:
    """Return True if the member has not yet acknowledged that it gave up these partitions: it
    reports one of them, or reports nothing.
    """
    return owned is None or any(
        topic in owned and not owned[topic].isdisjoint(numbers)
        for topic, numbers in numbers_by_topic(revoking).items()
    )


def _cut(
    current: AssignedFields, target: MemberTarget, owned: Mapping[str, Set[int]] | None
) -> AssignedFields:
    """Return the assignment without topics to which the member no longer subscribes. If the member
    still owns partitions of them, it has to give them up.
    """
    gone = {t: parts for t, parts in current.assigned.items() if t not in target.topics}
    if not gone and (target.topics or current.revoking):
        return current
    kept = {t: parts for t, parts in current.assigned.items() if t not in gone}
    revoking = {**current.revoking, **gone}
    for topic in current.revoking.keys() & gone.keys():
        revoking[topic] = _merged(current.revoking[topic], gone[topic])
    # Kafka writes a record for a member without topics even if it had nothing.
    if not revoking or not _still_owns(owned, revoking):
        return msgspec.structs.replace(current, previous_epoch=current.epoch, assigned=kept)
    return AssignedFields(
        ReconciliationState.UNREVOKED_PARTITIONS,
        current.epoch,
        current.epoch,
        kept,
        _sorted(revoking),
    )


def _advance(
    current: AssignedFields,
    target: MemberTarget,
    owned: Mapping[str, Set[int]] | None,
    taken: Mapping[str, Collection[int]],
) -> AssignedFields:
    """Return the assignment by the first rule that matches
    (docs/spec/consumer-groups.md#reconciliation). If the member must give up partitions, it keeps
    its epoch. Otherwise it moves to the target's epoch and gets the free partitions of its target.
    """
    wanted = {t: numbers for t, numbers in target.partitions.items() if t in target.topics}
    kept: PartitionEpochs = {}
    revoking: PartitionEpochs = {}
    has = numbers_by_topic(current.assigned)
    for topic, parts in current.assigned.items():
        numbers = wanted.get(topic)
        if numbers is None:
            revoking[topic] = parts
        elif numbers == has[topic]:
            kept[topic] = parts
        else:
            _divide(topic, parts, frozenset(numbers), kept, revoking)
    if revoking and _still_owns(owned, revoking):
        return AssignedFields(
            ReconciliationState.UNREVOKED_PARTITIONS, current.epoch, current.epoch, kept, revoking
        )
    got, is_complete = _available(current, target, wanted, kept, taken)
    return AssignedFields(
        ReconciliationState.STABLE if is_complete else ReconciliationState.UNRELEASED_PARTITIONS,
        target.epoch,
        current.epoch,
        _sorted({**kept, **got}),
    )


def _divide(
    topic: str, parts: OfTopic, wanted: Set[int], kept: PartitionEpochs, revoking: PartitionEpochs
) -> None:
    """Add the wanted partitions of one topic to ``kept``, and the others to ``revoking``."""
    goes = tuple([part for part in parts if part[0] not in wanted])
    stays = tuple([part for part in parts if part[0] in wanted]) if goes else parts
    if goes:
        revoking[topic] = goes
    if stays:
        kept[topic] = stays


def _available(
    current: AssignedFields,
    target: MemberTarget,
    wanted: Partitions,
    kept: PartitionEpochs,
    taken: Mapping[str, Collection[int]],
) -> tuple[PartitionEpochs, bool]:
    """Return the topics of which the member gets more partitions now, each with all partitions that
    the member then has. Also return True if the member then has its whole target.
    """
    got: PartitionEpochs = {}
    alike: dict[tuple[int, ...], OfTopic] = {}  # topics that are divided alike share a tuple
    is_complete = True
    for topic, numbers in wanted.items():
        has, others = kept.get(topic, ()), taken.get(topic)
        if len(has) == len(numbers):
            continue
        free = missing = _without(numbers, {number for number, _ in has}) if has else numbers
        if others:
            own = {number for number, _ in current.revoking.get(topic, ())}
            # The partitions that the member was giving up are free for the member itself.
            free = _without(missing, frozenset(others) - own if own else others)
            is_complete = is_complete and len(free) == len(missing)
        new = alike.get(free)
        if new is None:
            new = alike[free] = tuple(zip(free, repeat(target.epoch)))
        if new:
            got[topic] = _merged(has, new) if has else new
    return got, is_complete


def _without(numbers: Iterable[int], others: Container[int]) -> tuple[int, ...]:
    return tuple([number for number in numbers if number not in others])


def _merged(some: OfTopic, others: OfTopic) -> OfTopic:
    """Return the partitions of one topic from both tuples, sorted."""
    return tuple(sorted((*some, *others)))


def _sorted(by_topic: PartitionEpochs) -> PartitionEpochs:
    return {topic: by_topic[topic] for topic in sorted(by_topic)}
