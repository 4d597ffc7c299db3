"""The target assignment of a consumer group: makes the input for the assignor, and compares the
result with what the members have.

See docs/spec/consumer-groups.md#heartbeat, step 8. A small target is computed at once. The runtime
computes a large one in another process (``assignment_work``), and every target of an assignor that
is not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    )


def changed_targets(
    group: ConsumerGroup, result: Mapping[tuple[str, str | None], Partitions]
) -> dict[str, Partitions]:
    """Return member id -> new target, only for members whose target has changed.

    Members may have joined or left since the computation began. The target of a static member goes
    to the member that now has its instance id. A member that has joined since then keeps its empty
    target.
    """
    changed: dict[str, Partitions] = {}
    for (member_id, instance_id), target in result.items():
        holder_id = group.static_members.get(instance_id or "", member_id)
        member = group.members.get(holder_id)
        if member is not None and member.target != target:
            changed[member.member_id] = target
    return changed


def is_disjoint(target: Target) -> bool:
    """Return True if no partition is assigned to two members."""
    return sum([len(numbers) for numbers in target]) == len({*chain.from_iterable(target)})
