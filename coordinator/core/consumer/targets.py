"""The target assignment of a consumer group: what an assignor is given, and what becomes of its
result.

See docs/spec/consumer-groups.md#heartbeat, step 8. A small one is computed at once. A large one, or
that of somebody else's assignor, is work for the runtime (``assignment_work``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.consumer.assigning import GroupSpec, Target
from groupkeeper.coordinator.core.consumer.computation import TargetComputation
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer_records import Partitions


def begin(group: ConsumerGroup, image: TopicImage, assignor: str) -> TargetComputation:
    """Return what the assignor is given for the group as it is now."""
    known = [image.by_name.get(name) for name in sorted(group.subscriptions.topics())]
    topics = [topic for topic in known if topic is not None]
    position = {topic.topic_id: at for at, topic in enumerate(topics)}
    different = list(group.subscriptions.different())
    place_of = {subscription: at for at, subscription in enumerate(different)}
    members = sorted(group.members.values(), key=lambda member: member.place)
    firsts = [0, *accumulate([topic.partitions for topic in topics])]
    return TargetComputation(
        group.epochs.group,
        assignor,
        GroupSpec(
            [topic.partitions for topic in topics],
            [
                sorted([position[each] for each in group.subscriptions.ids_of(subscription, image)])
                for subscription in different
            ],
            [place_of[member.subscription] for member in members],
            [_numbers(member.target, topics, position, firsts) for member in members],
        ),
        [(member.member_id, member.group_instance_id) for member in members],
        topics,
    )


def _numbers(
    target: Partitions,
    topics: Sequence[TopicInfo],
    position: Mapping[str, int],
    firsts: Sequence[int],
) -> list[int]:
    """Return a previous target as numbers. What does not exist any more is left out."""
    return [
        firsts[at] + number
        for topic_id, numbers in target.items()
        if (at := position.get(topic_id)) is not None
        for number in numbers
        if number < topics[at].partitions
    ]


def changed_targets(
    group: ConsumerGroup, result: Mapping[tuple[str, str | None], Partitions]
) -> dict[str, Partitions]:
    """Return the targets that differ from those that the members have.

    Members may have left since the computation began. The target of a static member is for whoever
    has its instance id now. Members that have joined since keep theirs, which is empty.
    """
    changed: dict[str, Partitions] = {}
    for (member_id, instance_id), target in result.items():
        member = group.members.get(member_id)
        if member is None and instance_id is not None:
            member = group.members.get(group.static_members.get(instance_id, ""))
        if member is not None and member.target != target:
            changed[member.member_id] = target
    return changed


def is_disjoint(target: Target) -> bool:
    """Return whether no partition has two members."""
    numbers = [number for numbers in target for number in numbers]
    return len(numbers) == len(set(numbers))
