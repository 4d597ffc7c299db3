"""The invariants of a consumer group between any two calls: its counts equal a new count.

They are code of the tests, not of the core: one check reads the whole group, so a daemon could not
make it after each step.
"""

from __future__ import annotations

from collections import Counter

from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.member import (
    ConsumerGroupMember,
    current_bytes,
    fields_bytes,
    owned_partitions,
    partition_count,
    target_bytes,
    target_room_bytes,
)
from groupkeeper.coordinator.core.consumer.reconciliation import ReconciliationState
from groupkeeper.coordinator.core.consumer.subscriptions import (
    _hash_of,
    names_bytes,
    pattern_bytes,
    subscription_of,
)
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.groups.group import GROUP_OVERHEAD_BYTES, repeated_id_bytes
from groupkeeper.coordinator.core.requests.consumer import STATIC_LEAVE_EPOCH


def check_consumer_group(group: ConsumerGroup) -> None:
    """Assert every invariant of one consumer group."""
    where = f"consumer group {group.group_id} in {group.state}"
    _check_epochs(group, where)
    _check_owners(group, where)
    _check_state(group, where)
    _check_subscriptions(group, where)
    _check_sizes(group, where)
    for member in group.members.values():
        _check_member(group, member, where)


def _check_epochs(group: ConsumerGroup, where: str) -> None:
    assert 1 <= group.epochs.target <= group.epochs.group, where
    for member in group.members.values():
        epoch = member.current.epoch
        assert epoch == STATIC_LEAVE_EPOCH or 0 <= epoch <= group.epochs.target, (
            f"{where}: {member.member_id} is at epoch {epoch}"
        )


def _check_owners(group: ConsumerGroup, where: str) -> None:
    owners: dict[tuple[str, int], str] = {}
    for member in group.members.values():
        for topic, numbers in owned_partitions(member.current).items():
            for number in numbers:
                assert (topic, number) not in owners, f"{where}: {topic}-{number} has two members"
                owners[topic, number] = member.member_id
    assert all(group.owners.values()), f"{where}: a topic without partitions"
    found = {(t, n): owner for t, owns in group.owners.items() for n, owner in owns.items()}
    assert found == owners, where
    targets = [
        (topic, number)
        for member in group.members.values()
        for topic, numbers in member.target.items()
        for number in numbers
    ]
    assert len(targets) == len({*targets}), f"{where}: a partition is in two targets"


def _check_state(group: ConsumerGroup, where: str) -> None:
    members = group.members.values()
    if not members:
        state = GroupState.EMPTY
    elif group.epochs.target < group.epochs.group:
        state = GroupState.ASSIGNING
    elif all(m.current.state == 0 and m.current.epoch == group.epochs.target for m in members):
        state = GroupState.STABLE
    else:
        state = GroupState.RECONCILING
    assert group.state is state, where


def _check_subscriptions(group: ConsumerGroup, where: str) -> None:
    members = group.members.values()
    lists = {m.fields.subscribed_topic_names for m in members}
    topics = {name for names in lists for name in names}
    subscriptions = group.subscriptions
    for resolved in subscriptions.resolved.values():
        topics |= {*resolved.topics}
    assert subscriptions.topics() == topics, where
    patterns = Counter(m.fields.subscribed_topic_regex for m in members)
    del patterns[None]
    assert subscriptions.patterns() == sorted(patterns), where
    assert subscriptions.resolved.keys() <= patterns.keys(), where
    assert {*subscriptions.different()} == {subscription_of(m.fields) for m in members}, where
    image = subscriptions._existing_image
    if image is not None:
        existing = [image.by_name[topic] for topic in sorted(topics) if topic in image.by_name]
        assert subscriptions.existing(image) == existing, where
        assert subscriptions._hash == _hash_of(existing), where
        unresolved = subscriptions.pattern_counts.keys() - subscriptions.resolved.keys()
        is_due = not (group.is_stale or group.resolving or unresolved)
        if group.members and is_due:
            assert group.epochs.metadata_hash == _hash_of(existing), f"{where}: old hash"
    for topic in topics:
        assert group.group_id in group.tally.subscribers.of([topic]), where
    names = sum(map(len, lists)) + sum(len(each.topics) for each in subscriptions.resolved.values())
    assert subscriptions.name_count == names, where
    size = sum(map(names_bytes, lists))
    size += sum(pattern_bytes(*each) for each in subscriptions.resolved.items())
    assert subscriptions.size_bytes == size, where


def _check_sizes(group: ConsumerGroup, where: str) -> None:
    members = group.members.values()
    metadata = sum(fields_bytes(m.fields) for m in members) + group.subscriptions.size_bytes
    metadata += len(members) * repeated_id_bytes(group.group_id)
    assert group.metadata_bytes() == metadata, where
    assert group.size_bytes == GROUP_OVERHEAD_BYTES + 6 * len(group.group_id) + metadata, where
    assert all(m.target_partitions == partition_count(m.target) for m in members), where
    topics = sum(len(m.target) for m in members)
    partitions = sum(m.target_partitions for m in members)
    assert (group.target_topics, group.target_partitions) == (topics, partitions), where
    current = sum(current_bytes(m.current) for m in members)
    assert group.assigned_bytes == target_bytes(topics, partitions) + current, where
    assert group.may_move(partitions), where
    assert group.reserved_bytes >= target_room_bytes(topics, partitions), where
    assert members or group.reserved_bytes == 0, where


def _check_member(group: ConsumerGroup, member: ConsumerGroupMember, where: str) -> None:
    where = f"{where}: {member.member_id}"
    assert group.members[member.member_id] is member, where
    if member.group_instance_id is not None:
        assert group.static_members[member.group_instance_id] == member.member_id, where
    assert member.fields.member_id == member.member_id, where
    assert member.fields.group_instance_id == member.group_instance_id, where
    assert member.session.at is not None or member.parked is not None, where
    is_revoking = member.current.state == ReconciliationState.UNREVOKED_PARTITIONS
    has_left = member.current.epoch == STATIC_LEAVE_EPOCH
    must_give_up = is_revoking and not has_left
    if member.fields.classic is None:
        assert (member.rebalance.at is not None) == must_give_up, where
    else:  # it has the time of its joins and syncs
        assert member.rebalance.at is None or must_give_up, where
    assert bool(member.current.revoking) <= is_revoking, where
    if member.fields.classic is None:
        assert member.join_phase.at is None, where
        assert member.sync_phase.at is None, where
