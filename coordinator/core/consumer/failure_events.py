"""The events about failures: a consumer group gets no new target, or cannot use a pattern."""

from __future__ import annotations

from collections.abc import Sequence

from groupkeeper.coordinator.core.consumer.computation import TargetComputation
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.events import (
    AssignmentFailed,
    PatternRefused,
    of_client,
    quoted,
)
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.requests.consumer import ConsumerGroupHeartbeat
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.work import WorkFailed


def add_assignment_failed(
    shard: ShardState, group: ConsumerGroup, computation: TargetComputation, failed: WorkFailed
) -> None:
    """Add the event that no new target could be computed or stored. The group keeps its old
    target.
    """
    shard.event(
        AssignmentFailed(
            group_id=group.group_id,
            group_type=group.group_type,
            generation_id=computation.epoch,
            assignor=computation.assignor,
            reason=failed.failure.value,
            detail=quoted(failed.message),
            members=len(group.members),
        )
    )


def add_pattern_refused(
    shard: ShardState, request: ConsumerGroupHeartbeat, group_type: GroupType, detail: str
) -> None:
    """Add the event that a member was refused because of its pattern. The group need not exist."""
    shard.event(
        PatternRefused(
            group_id=request.group_id,
            group_type=group_type,
            generation_id=request.member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            **of_client(request.client),
            api="ConsumerGroupHeartbeat",
            pattern=quoted(request.subscribed_topic_regex or ""),
            detail=quoted(detail),
        )
    )


def add_not_resolved(
    shard: ShardState, group: ConsumerGroup, patterns: Sequence[str], detail: str
) -> None:
    """Add one event for all these patterns, whose topics could not be found for the reason
    ``detail``. The event names the first pattern. Without patterns, add no event.
    """
    if patterns:
        shard.event(
            PatternRefused(
                group_id=group.group_id,
                group_type=group.group_type,
                generation_id=group.epochs.group,
                pattern=quoted(patterns[0]),
                detail=quoted(detail),
                count=len(patterns),
            )
        )
