"""The events about the partitions that members of a consumer group get, lose, or have as their
target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.member import (
    NOT_ASSIGNED,
    ConsumerGroupMember,
    moved_partitions,
)
from groupkeeper.coordinator.core.consumer_records import AssignedFields, Partitions
from groupkeeper.coordinator.core.events import PartitionsMoved, TargetAssignment
from groupkeeper.coordinator.core.state import ShardState

MAX_LISTED_BYTES: Final = 256 * 1024
"""If the changed targets are larger, the event has only the number of changed members. A list of
all their partitions would delay all other requests.
"""

LISTED_GROWTH: Final = 8
"""How many times longer than its record a listed target can be. The list has the names of topics,
which are longer than their ids.
"""


def add_target(
    shard: ShardState,
    group: ConsumerGroup,
    assignor: str,
    changed: Mapping[str, Partitions],
    size_bytes: int,
) -> None:
    """Add the event of a new target. ``changed`` is member id -> new target, only for members whose
    target changed. ``size_bytes`` is their size in a record.
    """
    targets = None
    room = shard.limits.max_step_bytes - group.size_bytes - size_bytes
    if size_bytes <= min(MAX_LISTED_BYTES, room // LISTED_GROWTH):
        targets = {
            member_id: {_name(shard, topic): [*numbers] for topic, numbers in target.items()}
            for member_id, target in changed.items()
        }
    shard.event(
        TargetAssignment(
            group_id=group.group_id,
            group_type=group.group_type,
            generation_id=group.epochs.target,
            assignor=assignor,
            members=len(group.members),
            changed_members=len(changed),
            targets=targets,
        )
    )


def add_moved(
    shard: ShardState,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    before: AssignedFields,
    reason: str,
) -> None:
    """Add the event of the partitions that a member got and lost since it had ``before``. If there
    are none, add no event.
    """
    _add(shard, group, member, before, member.current, reason)


def add_all_lost(
    shard: ShardState, group: ConsumerGroup, member: ConsumerGroupMember, reason: str
) -> None:
    """Add the event that a member lost all its partitions, if it had any. The caller removes the
    member afterwards.
    """
    _add(shard, group, member, member.current, NOT_ASSIGNED, reason)


def _add(
    shard: ShardState,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    before: AssignedFields,
    after: AssignedFields,
    reason: str,
) -> None:
    gained, lost = moved_partitions(before, after)
    if not gained and not lost:  # the member only has to give up partitions later
        return
    shard.event(
        PartitionsMoved(
            **group.event_fields(member, member.client),
            reason=reason,
            gained_partitions=_by_name(shard, gained),
            lost_partitions=_by_name(shard, lost),
        )
    )


def _by_name(shard: ShardState, by_id: Mapping[str, list[int]]) -> dict[str, list[int]]:
    by_name: dict[str, list[int]] = {}
    for topic_id, numbers in by_id.items():
        name = _name(shard, topic_id)
        # A deleted topic may have the same name.
        by_name[name] = [*by_name[name], *numbers] if name in by_name else numbers
    return by_name


def _name(shard: ShardState, topic_id: str) -> str:
    """Return the name of a topic. If the topic was deleted and the shard does not remember its
    name, return the id (``ShardState.deleted_names``).
    """
    topic = shard.image.by_id.get(topic_id)
    return shard.deleted_names.get(topic_id, topic_id) if topic is None else topic.name
