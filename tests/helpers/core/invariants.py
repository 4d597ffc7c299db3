"""Assertions that hold for a shard between any two calls, and functions to read its state for them.

A failed assertion here is a bug of the core. Its message names the group.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from groupkeeper.coordinator.core.classic.group import MAX_GENERATION, ClassicGroup
from groupkeeper.coordinator.core.classic.member import encoded_bytes, metadata_bytes
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.deadlines import Deadline
from groupkeeper.coordinator.core.group_state import STATES_OF, GroupState
from groupkeeper.coordinator.core.groups.census import CHARS_OF_A_GROUP
from groupkeeper.coordinator.core.groups.group import (
    SAVED_OFFSET_BYTES,
    Group,
    text_bytes,
    topic_bytes,
)
from groupkeeper.coordinator.core.groups.pendings import Pendings
from groupkeeper.coordinator.core.requests.consumer import ConsumerGroupHeartbeat
from groupkeeper.coordinator.core.requests.membership import Heartbeat
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Reply, Step, Ticket
from tests.helpers.core.consumer_invariants import check_consumer_group

_WITH_MEMBERS = frozenset({GroupState.COMPLETING_REBALANCE, GroupState.STABLE})


def check(shard: ShardState) -> None:
    """Assert every invariant of every group of a shard."""
    for group_id, group in shard.groups.items():
        assert group.group_id == group_id, f"{group.group_id} is kept as {group_id}"
        check_group(group)
        for topic, partitions in group.offsets.items():
            assert partitions, f"{group_id}: topic {topic} without partitions is stored"
    held = sum(group.offset_count() for group in shard.groups.values())
    assert shard.offsets_held == held, (
        f"shard {shard.shard_id}: {shard.offsets_held} offsets are counted, {held} are held"
    )
    _check_counts(shard)
    for group in shard.groups.values():
        _check_bytes(group)
    _check_ends(shard)
    _check_ids(shard)
    _check_pendings(shard)


def _check_pendings(shard: ShardState) -> None:
    pendings = shard.pendings
    arrivals = [each.arrival for each in pendings.by_id.values()]
    assert len(set(arrivals)) == len(arrivals), "two pending offsets arrived at the same time"
    assert all(arrival <= pendings.last_arrival for arrival in arrivals)
    again = Pendings()
    for pending_id, each in pendings.by_id.items():
        assert each.pending_id == pending_id
        assert each.group_id in shard.groups, f"{pending_id} is pending in no group"
        assert each.topics, f"{pending_id} has no topics"
        for topic in each.topics:
            assert topic.partitions, f"{pending_id}: topic {topic.topic} without partitions"
            numbers = [row[0] for row in topic.partitions]
            assert len(set(numbers)) == len(numbers), f"{pending_id} has a partition twice"
        again.apply(each)
    for group_id in shard.groups:
        held = [each for each in pendings.by_id.values() if each.group_id == group_id]
        assert pendings.of_group(group_id) == sorted(held, key=lambda each: each.arrival)
        assert pendings.has_group(group_id) is bool(held)
        assert pendings.unstable(group_id) == again.unstable(group_id)
        assert pendings.group_bytes(group_id) == again.group_bytes(group_id)


def spelled_out(step: Step, ticket: Ticket) -> Step:
    """Return a step with its bare answer as a reply. Assert that it does nothing else."""
    if step.answer is None:
        return step
    assert not step.replies, step
    assert not step.records, step
    assert not step.events, step
    assert not step.work, step
    reply = Reply(ticket, step.answer, waits=False)
    return msgspec.structs.replace(step, replies=[reply], answer=None)


def _check_counts(shard: ShardState) -> None:
    states = Counter((group.group_type, group.state_name()) for group in shard.groups.values())
    where = f"shard {shard.shard_id}"
    assert shard.tally.by_state == {
        (each, state): states[each, state]
        for each, of_type in STATES_OF.items()
        for state in of_type
    }, f"{where}: {shard.tally.by_state} is counted, {states} are held"
    known = shard.tally.groups
    assert known == len(shard.groups), f"{where}: {known} of {len(shard.groups)} groups are counted"
    long_ids = sum(len(group_id) // CHARS_OF_A_GROUP for group_id in shard.groups)
    assert shard.tally.for_long_ids == long_ids, where
    assert shard.census.tallies[shard.shard_id] is shard.tally, f"{where}: another tally counts"
    members = sum(len(group.members) for group in shard.groups.values())
    assert shard.tally.members == members, (
        f"{where}: {shard.tally.members} members are counted, {members} are held"
    )
    metadata = sum(group.metadata_bytes() for group in shard.groups.values())
    reserved = sum(group.reserved_bytes for group in shard.groups.values())
    assert shard.tally.reserved_bytes == reserved, where
    assert shard.tally.metadata_bytes == metadata, (
        f"{where}: {shard.tally.metadata_bytes} bytes of metadata are counted, {metadata} are held"
    )


def check_group(group: Group) -> None:
    """Assert every invariant of one group."""
    if isinstance(group, ConsumerGroup):
        check_consumer_group(group)
        return
    assert isinstance(group, ClassicGroup)
    _check_state(group)
    _check_members(group)
    _check_parked(group)
    _check_deadlines(group)
    _check_saved(group)


def parked_tickets(shard: ShardState) -> list[Ticket]:
    """Return the tickets of parked requests. Each still needs an answer."""
    return [ticket for group in shard.groups.values() for ticket in group.parked()]


def due_at(shard: ShardState, request: Request) -> tuple[int | None, int | None]:
    """Return the heap times of the session that a heartbeat names, and of the first deadline.

    None stands for no session or no deadline.
    """
    session = None
    if isinstance(request, Heartbeat | ConsumerGroupHeartbeat) and request.group_id in shard.groups:
        member = shard.groups[request.group_id].members.get(request.member_id)
        session = None if member is None else member.session.queued_at
    return session, shard.deadlines.next_at()


def check_alarm(
    shard: ShardState, request: Request, before: tuple[int | None, int | None], step: Step
) -> None:
    """Assert that the runtime will notice each deadline that a request moved to an earlier time.

    ``before`` is what ``due_at`` returned before the request.
    """
    after = due_at(shard, request)
    for what, was_ms, is_ms in zip(
        ("its session", "the first deadline"), before, after, strict=True
    ):
        is_earlier = is_ms is not None and (was_ms is None or is_ms < was_ms)
        assert step.sets_alarm or not is_earlier, f"{request}: no alarm is set for {what}"


def _check_state(group: ClassicGroup) -> None:
    where = f"{group.group_id} in {group.state}"
    assert group.state is not GroupState.DEAD, f"{where}: a Dead group is kept"
    assert 0 <= group.generation_id <= MAX_GENERATION, where
    if group.state is GroupState.EMPTY:
        assert not group.members, f"{where} has members"
    if group.state in _WITH_MEMBERS:
        assert group.members, f"{where} has no members"
        assert group.generation_id > 0, where
        assert group.leader_id in group.members, (
            f"{where}: {group.leader_id} leads and is no member"
        )
        assert group.protocol_name is not None, where
        assert group.support[group.protocol_name] == len(group.members), (
            f"{where}: {group.protocol_name} is not supported by all"
        )
    if group.members:
        assert group.protocol_type, f"{where} has members of no type"


def _check_members(group: ClassicGroup) -> None:
    where = f"{group.group_id} in {group.state}"
    metadata = sum(metadata_bytes(member.protocols) for member in group.members.values())
    assert group.metadata_bytes() == metadata, where
    assert all(member_id == m.member_id for member_id, m in group.members.items()), where
    static = {
        m.group_instance_id: m.member_id
        for m in group.members.values()
        if m.group_instance_id is not None
    }
    assert group.static_members == static, f"{where}: instance ids do not match the members"
    assert not group.pending_members.keys() & group.members.keys(), (
        f"{where}: an id is pending and a member"
    )
    assert group.pending_sync <= group.members.keys(), f"{where} waits for syncs of non-members"
    if group.state not in _WITH_MEMBERS:
        assert not group.pending_sync, f"{where} waits for syncs"
    offered = Counter(p.name for m in group.members.values() for p in m.protocols)
    assert group.support == offered, f"{where}: support counts {group.support}, is {offered}"
    for member in group.members.values():
        names = [p.name for p in member.protocols]
        assert len(names) == len(set(names)), f"{where}: {member.member_id} offers a name twice"
    if group.members:
        assert len(group.members) in offered.values(), f"{where}: no protocol is shared by all"


def _check_parked(group: ClassicGroup) -> None:
    where = f"{group.group_id} in {group.state}"
    joins = [m for m in group.members.values() if m.parked_join is not None]
    syncs = [m for m in group.members.values() if m.parked_sync is not None]
    assert group.parked_joins == len(joins), f"{where}: {len(joins)} parked joins are miscounted"
    if joins:
        assert group.state is GroupState.PREPARING_REBALANCE, f"{where} holds joins"
    if syncs:
        assert group.state is GroupState.COMPLETING_REBALANCE, f"{where} holds syncs"
        assert not any(m.member_id in group.pending_sync for m in syncs), (
            f"{where} awaits a sync that it holds"
        )
    if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial_rebalance:
        assert not (group.members and group.all_joined()), f"{where} is complete and waits"


def _check_deadlines(group: ClassicGroup) -> None:
    where = f"{group.group_id} in {group.state}"
    is_preparing = group.state is GroupState.PREPARING_REBALANCE
    assert (group.join_phase.at is not None) == is_preparing, f"{where}: join phase"
    if group.state not in _WITH_MEMBERS:
        assert group.sync_phase.at is None, f"{where}: a timer of a finished sync phase is armed"
    if group.state is GroupState.COMPLETING_REBALANCE:
        assert group.sync_phase.at is not None, f"{where}: nothing ends the sync phase"
    if group.state is GroupState.STABLE:
        is_awaiting = group.sync_phase.at is not None
        assert is_awaiting == bool(group.pending_sync), f"{where}: the wait for syncs"
    for member in group.members.values():
        is_parked = member.parked_join is not None or member.parked_sync is not None
        assert member.session.at is not None or (is_parked and not member.is_new), (
            f"{where}: {member.member_id} has no deadline"
        )
        _check_queued(member.session, where)
    for deadline in group.pending_members.values():
        assert deadline.at is not None, f"{where}: a pending id has no deadline"
        _check_queued(deadline, where)
    _check_queued(group.join_phase, where)
    _check_queued(group.sync_phase, where)


def _check_queued(deadline: Deadline, where: str) -> None:
    if deadline.at is not None:
        assert deadline.queued_at is not None, f"{where}: {deadline.kind} will be missed"
        assert deadline.queued_at <= deadline.at, f"{where}: {deadline.kind} will be late"


def _check_bytes(group: Group) -> None:
    offsets = [offset for _, _, offset in group.stored_offsets()]
    topics = sum(map(topic_bytes, group.offsets))
    where = f"{group.group_id} in {group.state_name()}: its size is miscounted"
    assert group.offset_bytes == topics + SAVED_OFFSET_BYTES * len(offsets), where
    assert group.offset_metadata_bytes == sum(text_bytes(o.metadata) for o in offsets), where
    if not isinstance(group, ClassicGroup):
        return
    members = () if group.saved is None else group.saved.members
    assigned = sum(encoded_bytes(len(m.assignment)) for m in members)
    assert group.assigned_bytes == group.reserved_bytes == assigned, where


def _check_saved(group: ClassicGroup) -> None:
    where = f"{group.group_id} in {group.state}"
    saved = group.saved
    if saved is None:  # created by a commit, or no leader has synced after a join phase
        assert group.state is not GroupState.STABLE, f"{where} was never saved"
        return
    assert saved.group_id == group.group_id, f"{where} is saved as {saved.group_id}"
    if group.state is GroupState.STABLE:
        assert saved.generation_id == group.generation_id, where
        assert saved.leader_id == group.leader_id, where
        assert saved.protocol_name == group.protocol_name, where
        kept = {m.member_id: (m.group_instance_id, m.assignment) for m in saved.members}
        live = {m.member_id: (m.group_instance_id, m.assignment) for m in group.members.values()}
        assert kept == live, f"{where}: saved and live members differ"
    if group.state is GroupState.EMPTY:
        assert saved.members == (), f"{where} is saved with members"
        assert saved.generation_id == group.generation_id, where


def _check_ends(shard: ShardState) -> None:
    ends, known = shard.ends(), shard.image.by_id
    for group in shard.groups.values():
        for partitions in group.offsets.values():
            for partition, stored in partitions.items():
                if not (shard.are_topics_stored or stored.topic_id in known):
                    continue  # the offset outlives its topic, whose ends are already deleted
                if stored.topic_id and stored.offset >= 0:
                    end = ends.get((stored.topic_id, partition), -1)
                    assert end >= stored.offset, (
                        f"{group.group_id}: offset {stored.offset} is stored above the end {end}"
                    )


def _check_ids(shard: ShardState) -> None:
    """Assert that after a sweep every offset has its topic's id, if a topic with its name
    exists.
    """
    if shard.sweep.at is not None:
        return
    for group in shard.groups.values():
        for topic, partitions in group.offsets.items():
            info = shard.image.by_name.get(topic)
            if info is not None and info.topic_id:
                without = [n for n, stored in partitions.items() if not stored.topic_id]
                assert not without, f"{group.group_id}: {topic} {without} have no topic id"
