"""The target assignment of a consumer group: makes the input for the assignor, and compares the
result with what the members have.

See docs/spec/consumer-groups.md#heartbeat, step 8. A small target is computed at once. The runtime
computes a large one in another process (``assignment_work``), and every target of an assignor that
is not ours.
"""

from __future__ import annotations

from itertools import chain

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.consumer.assigning import GroupSpec, Target
from groupkeeper.coordinator.core.consumer.computation import TargetComputation
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer_records import Partitions


def begin(group: ConsumerGroup, image: TopicImage, assignor: str) -> TargetComputation:
    """Return the computation of a target for the group as it is now."""
    subscriptions = group.subscriptions
    numbered = subscriptions.numbered(image)
    at_name = numbered.at_name
    different = list(subscriptions.different())
    place_of = {subscription: at for at, subscription in enumerate(different)}
    members = sorted(group.members.values(), key=lambda member: member.place)
    return TargetComputation(
        group.epochs.group,
        assignor,
        GroupSpec(
            numbered.counts,
            [
                [at for at in map(at_name.get, subscriptions.topics_of(each)) if at is not None]
                for each in different
            ],
            [place_of[member.subscription] for member in members],
            [numbered.numbers(member.target) if member.target else [] for member in members],
        ),
        [(member.member_id, member.group_instance_id) for member in members],
        numbered.topics,
        [member.target for member in members],
    )


def changed_targets(
    group: ConsumerGroup, computation: TargetComputation, result: Target
) -> dict[str, Partitions]:
    """Return member id -> new target, only for members whose target has changed.

    Members may have joined or left since the computation began. The target of a static member that
    was replaced goes to the member that now has its instance id. A member that has joined since
    then gets nothing. It may have a target already: that of a static member that it replaced before
    it changed its instance id. Others may have these partitions now.
    """
    changed: dict[str, Partitions] = {}
    converted = computation.converter()
    previous = zip(computation.spec.previous, computation.targets, strict=True)
    computed = {member_id for member_id, _ in computation.members}
    others = {**group.members}
    for identity, numbers, known in zip(computation.members, result, previous, strict=True):
        member_id, instance_id = identity
        before, target_before = known
        member = others.get(member_id)
        if instance_id is not None and (member is None or not member.target):
            heir_id = group.static_members.get(instance_id, member_id)
            if heir_id not in computed:
                member = others.get(heir_id)
        # The same target need not be converted, which takes most of the time if a group has 10,000
        # members. The count differs if a partition does not exist any more. The object differs if
        # the member is new, or has replaced another one: no target is installed meanwhile.
        if member is None:
            continue
        del others[member.member_id]
        is_same = numbers == before and member.target is target_before
        if is_same and len(numbers) == member.target_partitions:
            continue
        target = converted(numbers)
        if member.target != target:
            changed[member.member_id] = target
    changed.update({member_id: {} for member_id, each in others.items() if each.target})
    return changed


def is_disjoint(target: Target) -> bool:
    """Return True if no partition is assigned to two members."""
    return sum([len(numbers) for numbers in target]) == len({*chain.from_iterable(target)})
