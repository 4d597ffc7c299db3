"""The checks of a ConsumerGroupHeartbeat that depend on its group: may this client send it, and is
there room?

See docs/spec/consumer-groups.md#heartbeat, steps 2 to 5, and #static-members. The checks change
nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from groupkeeper.coordinator.core.consumer import static_members
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.member import (
    ConsumerGroupMember,
    fields_bytes,
    room_bytes,
)
from groupkeeper.coordinator.core.consumer_records import ConsumerMemberFields, PartitionEpochs
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.groups.group import repeated_id_bytes
from groupkeeper.coordinator.core.requests.consumer import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeat,
    TopicPartitions,
)
from groupkeeper.coordinator.core.state import ShardState


class HeartbeatRefusal(NamedTuple):
    """The reason why a heartbeat is refused."""

    error: ErrorCode
    message: str | None
    detail: str = ""
    """The error of the pattern, if the pattern is the reason; else ""."""


def refusal(
    shard: ShardState,
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeat,
    fields: ConsumerMemberFields,
    converted_bytes: int = 0,
) -> HeartbeatRefusal | None:
    """Run the checks of steps 2 to 5. Return the refusal of the heartbeat, or None if it is
    accepted. ``fields`` are the fields that the member gets with this heartbeat
    (``updated_fields``). ``converted_bytes`` is not 0 if the group is converted for this heartbeat:
    the growth of the metadata of its other members, without the small size that each may always
    have.
    """
    if request.member_epoch < 0:
        return _identity_refusal(group, request)
    member_id = request.member_id
    if member_id not in group.members and len(group.members) >= shard.limits.consumer_max_size:
        most = shard.limits.consumer_max_size
        message = f"The consumer group has reached its maximum capacity of {most} members."
        return HeartbeatRefusal(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
    if request.member_epoch == JOIN_EPOCH:
        wrong = _static_join_refusal(group, request)
    else:
        wrong = _identity_refusal(group, request) or _epoch_refusal(group, request)
    return (
        wrong
        or _pattern_refusal(shard, group, request)
        or room_refusal(shard, group, fields, converted_bytes)
    )


def absent(group_id: str) -> HeartbeatRefusal:
    """Return the refusal for a group that does not exist."""
    return HeartbeatRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")


def _identity_refusal(
    group: ConsumerGroup, request: ConsumerGroupHeartbeat
) -> HeartbeatRefusal | None:
    member_id, instance_id = request.member_id, request.group_instance_id
    error = static_members.identity_error(group, member_id, instance_id)
    if error is ErrorCode.FENCED_INSTANCE_ID:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member "
        return HeartbeatRefusal(error, f"{message}{group.static_members[instance_id or '']}.")
    if error:
        who = f"Member {member_id}" if instance_id is None else f"Instance id {instance_id}"
        message = f"{who} is not a member of group {group.group_id}."
        return HeartbeatRefusal(error, message)
    return None


def _static_join_refusal(
    group: ConsumerGroup, request: ConsumerGroupHeartbeat
) -> HeartbeatRefusal | None:
    """Return a refusal if a member that has not left has this instance id. Return None if that
    member uses the classic protocol: the new member then replaces it.
    """
    instance_id = request.group_instance_id
    owner = group.members.get(group.static_members.get(instance_id or "", ""))
    if owner is None or static_members.has_left(owner) or owner.fields.classic is not None:
        return None
    message = (
        f"Static member {request.member_id} with instance id {instance_id} cannot join the group "
        f"because the instance id is owned by member {owner.member_id}."
    )
    return HeartbeatRefusal(ErrorCode.UNRELEASED_INSTANCE_ID, message)


def _epoch_refusal(
    group: ConsumerGroup, request: ConsumerGroupHeartbeat
) -> HeartbeatRefusal | None:
    """Return a refusal if the epoch of the request is not the member's current one.

    The previous epoch is accepted if the member reports only partitions that are assigned to it.
    The answer with the current epoch may have been lost.
    """
    member = group.members[request.member_id]
    epoch, current = request.member_epoch, member.current
    if epoch == current.epoch:
        return None
    if epoch > current.epoch:
        relation = "greater"
    elif epoch == current.previous_epoch and _owns_only(request.owned, current.assigned):
        return None
    else:
        relation = "smaller"
    message = (
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({current.epoch}). The member must abandon all its partitions and "
        "rejoin."
    )
    return HeartbeatRefusal(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _owns_only(owned: tuple[TopicPartitions, ...] | None, assigned: PartitionEpochs) -> bool:
    """Return True if a member reports owned partitions, and all of them are assigned to it.

    As in Kafka, the result is False if the member reports a topic of which it has no assigned
    partition, even if it reports no partition of this topic.
    """
    return owned is not None and all(
        topic in assigned and {*numbers} <= {number for number, _ in assigned[topic]}
        for topic, numbers in owned
    )


def _pattern_refusal(
    shard: ShardState, group: ConsumerGroup, request: ConsumerGroupHeartbeat
) -> HeartbeatRefusal | None:
    """Return a refusal if a new pattern does not compile, or if the group has no room for it."""
    pattern = request.subscribed_topic_regex
    if not pattern or group.subscriptions.pattern_count(pattern):
        return None
    wrong = request.pattern_error
    most = shard.limits.max_group_patterns
    if wrong is None and len(group.subscriptions.pattern_counts) >= most:
        wrong = f"the members of a group have {most} different patterns at most"
    if wrong is None:
        return None
    message = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {wrong}."
    return HeartbeatRefusal(ErrorCode.INVALID_REGULAR_EXPRESSION, message, wrong)


def room_refusal(
    shard: ShardState, group: ConsumerGroup, fields: ConsumerMemberFields, converted_bytes: int = 0
) -> HeartbeatRefusal | None:
    """Return a refusal if the group would be too large to store with this member, or if the
    coordinator has no room for it (docs/design.md#bounds).

    Only growth needs room. A list of names that the group has already needs none. The room of the
    member's former fields is subtracted. If it replaces a static member, that member's room is.
    """
    member = group.members.get(fields.member_id)
    if member is not None and fields == member.fields:
        return None
    owner = group.members.get(group.static_members.get(fields.group_instance_id or "", ""))
    before = member if owner is None else owner
    subscriptions, names = group.subscriptions, fields.subscribed_topic_names
    needed = subscriptions.needed(names)
    size_bytes = fields_bytes(fields) + needed.size_bytes
    added_bytes, added_names, id_bytes = size_bytes, needed.names, 0
    if before is None:
        id_bytes = repeated_id_bytes(group.group_id)
    else:
        given_back = subscriptions.given_back(before.subscription, names)
        added_bytes -= before.size_bytes + given_back.size_bytes
        added_names -= given_back.names
    limits = shard.limits
    most_bytes = min(limits.max_group_bytes, limits.max_step_bytes)
    fits = room_bytes(fields) <= limits.max_step_bytes and (
        added_bytes + id_bytes <= 0 or group.size_bytes + added_bytes + id_bytes <= most_bytes
    )
    if not fits or not subscriptions.admits(added_names):
        message = "The group would be too large to store with this member."
        return HeartbeatRefusal(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
    may_exist = group.group_id in shard.groups or shard.census.admits()
    size_bytes, added_bytes = size_bytes + converted_bytes, added_bytes + converted_bytes
    if not may_exist or not shard.admits_metadata(size_bytes, added_bytes):
        return no_room()
    return None


def no_room() -> HeartbeatRefusal:
    """Return the refusal if a limit for all groups together has no more room."""
    message = "The coordinator has no more room."
    return HeartbeatRefusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)


# --- what a heartbeat contains ---


def instance_owner(
    group: ConsumerGroup, request: ConsumerGroupHeartbeat
) -> ConsumerGroupMember | None:
    """Return the static member that this join replaces, or None."""
    if request.member_epoch != JOIN_EPOCH or request.group_instance_id is None:
        return None
    return group.members.get(group.static_members.get(request.group_instance_id, ""))


def updated_fields(group: ConsumerGroup, request: ConsumerGroupHeartbeat) -> ConsumerMemberFields:
    """Return the member's fields as they are after this heartbeat (step 5)."""
    known = group.members.get(request.member_id) or instance_owner(group, request)
    fields = ConsumerMemberFields(request.member_id) if known is None else known.fields
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return ConsumerMemberFields(
        request.member_id,
        _or(request.group_instance_id, fields.group_instance_id),
        _or(request.rack_id, fields.rack_id),
        request.client.client_id,
        request.client.client_host,
        fields.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        fields.subscribed_topic_names if names is None else tuple(dict.fromkeys(sorted(names))),
        fields.subscribed_topic_regex if pattern is None else pattern or None,
        _or(request.server_assignor, fields.server_assignor),
    )


def _or(sent: str | None, known: str | None) -> str | None:
    return known if sent is None else sent


def owned_set(owned: tuple[TopicPartitions, ...]) -> dict[str, set[int]]:
    """Return the partitions that a member reports as its own, by topic id."""
    found: dict[str, set[int]] = {}
    for topic, numbers in owned:
        found.setdefault(topic, set()).update(numbers)
    return found
