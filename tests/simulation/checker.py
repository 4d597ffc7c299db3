"""Checks the history of a world, like Jepsen's checker for Kafka. Pure functions compare the
requests of clients (``Op``) with the durable data (``Durable``). Each raises AssertionError.

Every offset value is committed only once in a world, so a value identifies its commit. Every answer
must fit into the order in which batches became durable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import GroupDeleted, OffsetDeleted, OffsetExpired
from groupkeeper.coordinator.core.records import GroupRecord, SavedMember
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.membership import JoinGroup, SyncGroup
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit, OffsetDelete, OffsetFetch
from groupkeeper.coordinator.core.requests.topics import AlterGroupConfigs, ChangeTopics
from groupkeeper.protocol.consumer_protocol import decode_assignment, subscribed_topics
from groupkeeper.storage.segment_lines import EventDict
from tests.simulation.history import NOTHING, Durable, OffsetKey, Op, Stored

NONE = ErrorCode.NONE

NOT_STORED = (NOTHING, -1, "")
"""The values that a fetch returns for a partition without an offset."""

UNKNOWN_OUTCOME = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which a commit may or may not have been stored. Every other error says that it was
not.
"""


def check_history(durable: Durable, history: Sequence[Op]) -> None:
    """Run all checks that need the whole history."""
    check_commits(durable, history)
    check_known_partitions(history)
    check_reads(durable, history)
    check_generations(durable, history)
    check_ownership(durable, history)
    check_losses(durable, history)


def check_acknowledged(durable: Durable, op: Op) -> None:  # noqa: C901 - one case a type
    """Check that an acknowledged change is durable, and that its answer came in time."""
    request, result = op.request, op.result
    match request:
        case OffsetCommit():
            for key, offset, error in committed(op):
                if error is NONE:
                    writes = durable.commits.get((key, offset), ())
                    assert writes, f"{key}: {offset} acknowledged, and not durable"
        case SyncGroup() if result.error is NONE:
            _check_assignment_durable(durable, op)
        case DeleteGroup() if result is NONE:
            rows = durable.groups.get(request.group_id, ())
            assert any(p > op.invoked_at and record is None for p, record in rows), (
                f"{request.group_id}: said to be deleted"
            )
        case OffsetDelete() if result.error is NONE:
            for topic, parts in result.topics:
                for partition, error in parts:
                    key = (request.group_id, topic, partition)
                    values = within(durable, key, op)
                    assert error is not NONE or any(v.offset == NOTHING for v in values), (
                        f"{key}: said to be deleted, was {values}"
                    )
        case ChangeTopics() if result.error is NONE and not request.validate_only:
            _check_topics(durable, op)
        case AlterGroupConfigs() if result.error is NONE and not request.validate_only:
            for change, answer in zip(request.groups, result.groups, strict=True):
                if answer.error is NONE:
                    _check_configs(durable, op, change.group_id, dict(change.changes))


def check_expired(
    durable: Durable, event: OffsetExpired, latest_wall_ms: int, retention_ms: int
) -> None:
    """Check that no offset expires before its time (docs/spec/offsets.md#expiry), nor while members
    consume its topic. The state at the time of the expiry counts. An offset expires after the
    retention in its commit. Without one, it expires after the retention of the group, counted from
    the time when the group became Empty. If this time is unknown, it is counted from the commit.

    ``latest_wall_ms`` is the latest time that the process may have read from its clock. A former
    retention of the group may still have been in force, so the shortest one counts.
    """
    group = durable.group(event.group_id)
    set_ms = [
        int(configs["offsets.retention.minutes"]) * 60_000
        for _, configs in durable.configs.get(event.group_id, ())
        if "offsets.retention.minutes" in configs
    ]
    least_ms = min([retention_ms, *set_ms])
    consumed: set[str] = set()
    base_ms = None
    if group is not None and group.members:
        consumed.update(t for m in group.members for t in subscribed_topics(m.subscription))
    elif group is not None and group.protocol_type is not None and group.state_timestamp_ms >= 0:
        base_ms = group.state_timestamp_ms
    for topic in event.topics:
        assert topic.topic not in consumed, f"{event}: expired, and is consumed"
        for part in topic.partitions:
            stored = durable.saved[event.group_id].offsets[topic.topic][part.partition]
            if stored.expire_time_ms >= 0:
                left_ms = stored.expire_time_ms - latest_wall_ms
            else:
                since_ms = stored.commit_time_ms if base_ms is None else base_ms
                left_ms = since_ms + least_ms - latest_wall_ms
            assert left_ms <= 0, f"{event}: partition {part.partition} expired {left_ms} ms early"


def check_commits(durable: Durable, history: Iterable[Op]) -> None:
    """Check the commits of a world: none is lost, none is invented, no refused one is stored, none
    is stored twice. A member commits only in its own generation.
    """
    asked: dict[tuple[OffsetKey, int], Op] = {}
    for op in history:
        if isinstance(op.request, OffsetCommit):
            for key, offset, error in committed(op):
                asked[key, offset] = op
                _check_commit(durable, op, key, offset, error)
    for (key, offset), writes in durable.commits.items():
        op = asked.get((key, offset))  # type: ignore[assignment]
        assert op is not None, f"{key}: {offset} was stored, and nobody committed it"
        assert len(writes) == 1, f"{key}: {offset} was stored {len(writes)} times"
        record = writes[0].record
        request = op.request
        told = (request.generation_id, request.member_id, request.group_instance_id)
        kept = (record.generation_id, record.member_id, record.group_instance_id)
        assert kept == told, f"{key}: {offset} was committed by {told}, is kept as of {kept}"
        sent, stored = sent_with(op, key, offset), (writes[0].leader_epoch, writes[0].metadata)
        assert stored == sent, f"{key}: {offset} was committed with {sent}, is kept with {stored}"
        sent_ms = request.retention_ms if op.has_retention else -1
        kept_ms = record.expire_time_ms
        kept_ms -= record.commit_time_ms if kept_ms >= 0 else 0
        assert kept_ms == sent_ms, f"{key}: {offset} is to be kept {sent_ms} ms, is {kept_ms} ms"
        assert writes[0].position > op.invoked_at, f"{key}: {offset} stored before it was sent"


def _check_commit(
    durable: Durable, op: Op, key: OffsetKey, offset: int, error: ErrorCode | None
) -> None:
    writes = durable.commits.get((key, offset), [])
    if error is None or error in UNKNOWN_OUTCOME:
        return
    if error is not NONE:
        assert not writes, f"{key}: {offset} was refused with {error.name}, and is stored"
        return
    assert writes, f"{key}: {offset} was acknowledged and is lost"
    assert writes[0].position <= (op.answered_at or 0), f"{key}: {offset} acknowledged too early"
    _check_right_to_commit(durable, op, key)


def check_known_partitions(history: Sequence[Op]) -> None:
    """Check that commits know each acknowledged partition of a topic that is never deleted."""
    deleted = {
        change.name
        for op in history
        if isinstance(op.request, ChangeTopics) and op.result is not None
        for change in op.result.deleted
    }
    grown = [
        (change.name, change.partitions, op.answered_at or 0)
        for op in history
        if isinstance(op.request, ChangeTopics) and op.result is not None
        for change in op.result.grown
        if change.error is NONE and change.name not in deleted
    ]
    for op in history:
        if not isinstance(op.request, OffsetCommit):
            continue
        for (_, topic, partition), _, error in committed(op):
            if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                known = any(
                    name == topic and count > partition and position <= first_position(op)
                    for name, count, position in grown
                )
                assert not known, f"{topic} {partition}: said to be unknown, and was made"


def _check_right_to_commit(durable: Durable, op: Op, key: OffsetKey) -> None:
    request = op.request
    records = groups_within(durable, key[0], op)
    if request.generation_id < 0 and not request.member_id:
        is_right = any(record is None or not record.members for record in records)
        assert is_right, f"{key}: committed from outside a group with members: {records}"
        return
    is_right = any(
        record is not None
        and record.generation_id == request.generation_id
        and _member(record, request.member_id) is not None
        for record in records
    )
    assert is_right, (
        f"{key}: accepted of {request.member_id} in generation {request.generation_id}: {records}"
    )


def check_reads(durable: Durable, history: Iterable[Op]) -> None:
    """Check that every offset that was read was stored, with its leader epoch and metadata, at some
    moment between the request and its answer.

    So every offset was committed, and is at least as new as the durable state at the request. If
    the owner had lost its lease, the offset may be as old as that loss.
    """
    keys_of: dict[str, list[OffsetKey]] = defaultdict(list)
    for key in durable.values:
        keys_of[key[0]].append(key)
    for op in history:
        request = op.request
        if not isinstance(request, OffsetFetch) or op.result is None or op.result.error is not NONE:
            continue
        read = _read(op)
        wanted: Iterable[OffsetKey] = read
        if request.topics is None:
            wanted = dict.fromkeys([*read, *keys_of[request.group_id]])
        for key in wanted:
            shown, *told = read.get(key, NOT_STORED)
            values = within(durable, key, op)
            allowed = {value.offset for value in values}
            if shown == NOTHING and is_of_another_topic(durable, key, op):
                continue
            assert shown in allowed, (
                f"{key}: {shown} was read, {sorted(allowed)} were stored meanwhile "
                f"(from {op.invoked_at} to {op.answered_at}, lease lost: {op.void_at})"
            )
            value = next(value for value in values if value.offset == shown)
            stored = [value.leader_epoch if op.has_epochs else -1, value.metadata]
            assert told == stored, f"{key}: {shown} was read with {told}, is stored with {stored}"


def _read(op: Op) -> dict[OffsetKey, tuple[int, int, str]]:
    """Return the offset that an OffsetFetch returned for each partition. Check that the answer has
    the order of the request. A partition that is named twice is answered twice.
    """
    request, topics = op.request, op.result.topics
    rows = [(topic, row) for topic, _, rows in topics for row in rows]
    told = [(topic, row[0]) for topic, row in rows]
    asked = told if request.topics is None else [(t, n) for t, _, ns in request.topics for n in ns]
    assert told == asked, f"{request.group_id}: {asked} were asked for, {told} were told"
    read: dict[OffsetKey, tuple[int, int, str]] = {}
    for topic, row in rows:
        first = read.setdefault((request.group_id, topic, row[0]), row[1:4])
        assert row[4] is NONE, f"{request.group_id}: {topic} {row[0]}: {row[4].name}"
        assert row[1:4] == first, f"{request.group_id}: {topic} {row[0]}: {first} and {row[1:4]}"
    return read


def check_generations(durable: Durable, history: Iterable[Op]) -> None:
    """Check that generations do not decrease: once a member got its assignment in a generation,
    nobody sees an earlier one until the group is deleted.

    A generation without a sync may come twice, because it was never durable, as in Kafka.
    """
    synced: dict[str, list[Op]] = defaultdict(list)
    answered = [op for op in history if op.answered_at is not None and op.void_at is None]
    for op in answered:
        if isinstance(op.request, SyncGroup) and op.result.error is NONE:
            synced[op.request.group_id].append(op)
    for op in answered:
        if not isinstance(op.request, JoinGroup) or op.result.error is not NONE:
            continue
        group_id = op.request.group_id
        gone = [p for p, record in durable.groups.get(group_id, ()) if record is None]
        for told in synced[group_id]:
            until, since = op.answered_at or 0, told.answered_at or 0
            is_before = (told.answered_ms or 0) < op.invoked_ms
            if is_before and not any(since < position <= until for position in gone):
                last = told.request.generation_id
                now = op.result.generation_id
                assert now >= last, f"{group_id}: generation {now} after {last}"


def check_ownership(durable: Durable, history: Iterable[Op]) -> None:
    """Check that no two members of a generation got the same partition."""
    held: dict[tuple[str, int, int], dict[str, Op]] = defaultdict(dict)
    for op in history:
        request = op.request
        if not isinstance(request, SyncGroup) or op.result is None or op.result.error is not NONE:
            continue
        life = sum(
            record is None and position <= (op.answered_at or 0)
            for position, record in durable.groups.get(request.group_id, ())
        )
        members = held[request.group_id, life, request.generation_id]
        for other, told in members.items():
            records = groups_within(durable, request.group_id, op)
            if other == request.member_id or not any(
                r is not None and r.generation_id == request.generation_id and _member(r, other)
                for r in records
            ):
                continue  # it left the generation, or another came in its place
            both = _partitions(told.result.assignment) & _partitions(op.result.assignment)
            assert not both, (
                f"{request.group_id}, generation {request.generation_id}: {sorted(both)} are held "
                f"by {other} and {request.member_id}"
            )
        members[request.member_id] = op


def check_losses(durable: Durable, history: Sequence[Op]) -> None:
    """Check that each deleted offset was asked for: by an OffsetDelete that names it, or with its
    group or its topic. ``check_expired`` checks expired ones.
    """
    asked = [op for op in history if isinstance(op.request, OffsetDelete | DeleteGroup)]
    for position, event in durable.lost:
        ops = [op for op in asked if _may_have_made(op, position)]
        if event.reason in ("deleted", "group_deleted"):
            found = any(_asks_for(op.request, event) for op in ops)
            assert found, f"nobody asked for {event}"
        elif isinstance(event, OffsetDeleted):
            for topic in event.topics:
                rows = [record for p, record in durable.topics[topic.topic] if p <= position]
                stands = bool(rows) and rows[-1] and rows[-1].topic_id == topic.topic_id
                assert not stands, f"the topic stands: {event}"
                # Of an offset without an id nothing but the deletion of its name says anything.
                was_deleted = topic.topic_id or any(record is None for record in rows)
                assert was_deleted, f"nobody has deleted the topic: {event}"


def _may_have_made(op: Op, position: int) -> bool:
    """Return True if the answer does not show whether the change is stored. Only a success shows
    it.
    """
    result = op.result
    is_done = op.answered_at is not None and getattr(result, "error", result) is NONE
    return op.invoked_at < position and (not is_done or position <= (op.answered_at or 0))


def _asks_for(request: DeleteGroup | OffsetDelete, event: OffsetDeleted | GroupDeleted) -> bool:
    if request.group_id != event.group_id:
        return False
    if isinstance(event, GroupDeleted) or event.reason == "group_deleted":
        return isinstance(request, DeleteGroup)
    named = {(t, p) for t, parts in getattr(request, "topics", ()) for p in parts}
    return named >= {(t.topic, p.partition) for t in event.topics for p in t.partitions}


def check_log(events: Sequence[EventDict], number: int) -> None:
    """Check that the log has every event once, without gaps, and that times do not decrease within
    a log. Each log after the first begins at the end of the one before it.
    """
    seqs = [event["seq"] for event in events]
    assert seqs == list(range(1, len(seqs) + 1)), f"of the log: {seqs}"
    told = [event for event in events if event.get("kind") != "log_started"]
    assert len(told) == number, f"of the log: {len(told)} events, {number} were stored"
    for before, after in pairwise(events):
        begins = after.get("kind") == "log_started"
        assert begins == (before["log_id"] != after["log_id"]), f"{after} behind {before}"
        if begins:
            named = after["previous_log_id"], after["previous_seq"]
            assert named == (before["log_id"], before["seq"]), f"{after} behind {before}"
        else:
            assert before["ts_ms"] <= after["ts_ms"], after
    begun = [event["log_id"] for event in events[:1] + [e for e in events if e not in told]]
    assert len(begun) == len(set(begun)), f"a log that begins twice: {begun}"


# --- Windows ----------------------------------------------------------------------------------


def committed(op: Op) -> Iterator[tuple[OffsetKey, int, ErrorCode | None]]:
    """Return each partition of a commit: its key, its offset, and its error (None: not known). One
    that is named twice is answered twice, with the same error.
    """
    answers: dict[tuple[str, int], ErrorCode] = {}
    if op.result is not None and op.result.topics is not None:
        told = [((name, p), e) for name, _, parts in op.result.topics for p, e in parts]
        named = [(name, row[0]) for name, _, rows in op.request.topics for row in rows]
        assert sorted(key for key, _ in told) == sorted(named), f"{named} committed, told {told}"
        answers = dict(told)
        assert len(set(told)) == len(answers), f"told otherwise of the same: {told}"
    for name, _, partitions in op.request.topics:
        for partition, offset, *_ in partitions:
            error = None
            if op.result is not None:
                error = answers.get((name, partition), op.result.error)
            yield (op.request.group_id, name, partition), offset, error


def sent_with(op: Op, key: OffsetKey, offset: int) -> tuple[int, str]:
    """Return the leader epoch and the metadata of a commit."""
    return next(
        (epoch if op.has_epochs else -1, metadata)
        for name, _, rows in op.request.topics
        for partition, sent, epoch, metadata in rows
        if (name, partition, sent) == (key[1], key[2], offset)
    )


def first_position(op: Op) -> int:
    """Return the oldest moment that an answer may describe."""
    return op.invoked_at if op.void_at is None else min(op.invoked_at, op.void_at)


def within(durable: Durable, key: OffsetKey, op: Op) -> list[Stored]:
    """Return the values that a key had between a request and its answer."""
    rows = durable.values.get(key, [])
    least = first_position(op)
    before = [row for row in rows if row.position <= least]
    last = before[-1] if before else Stored(0, NOTHING, "")
    return [last, *(r for r in rows if least < r.position <= (op.answered_at or 0))]


def groups_within(durable: Durable, group_id: str, op: Op) -> list[GroupRecord | None]:
    """Return the records that a group had between a request and its answer."""
    rows = durable.groups.get(group_id, [])
    least = first_position(op)
    before = [record for position, record in rows if position <= least]
    last = before[-1] if before else None
    return [last, *(r for p, r in rows if least < p <= (op.answered_at or 0))]


def is_of_another_topic(durable: Durable, key: OffsetKey, op: Op) -> bool:
    """Return whether the stored value belongs to a topic that was deleted and created again."""
    least = first_position(op)
    rows = durable.topics.get(key[1], [])
    before = [record for position, record in rows if position <= least][-1:]
    during = [record for position, record in rows if least < position <= (op.answered_at or 0)]
    topic_ids = {record.topic_id for record in [*before, *during] if record is not None}
    return any(
        value.topic_id and topic_ids and topic_ids != {value.topic_id}
        for value in within(durable, key, op)
    )


# --- What an answer says -------------------------------------------------------------------------


def _check_assignment_durable(durable: Durable, op: Op) -> None:
    request = op.request
    told = [
        member.assignment
        for record in groups_within(durable, request.group_id, op)
        if record is not None and record.generation_id == request.generation_id
        for member in record.members
        if member.member_id == request.member_id
    ]
    assert op.result.assignment in told, (
        f"{request.group_id}: the assignment of {request.member_id} in generation "
        f"{request.generation_id} was told, and is not durable"
    )


def _check_topics(durable: Durable, op: Op) -> None:
    for change in (*op.result.created, *op.result.grown):
        rows = durable.topics.get(change.name, ())
        found = any(
            record is not None and record.partitions == change.partitions
            for position, record in rows
            if position <= (op.answered_at or 0)
        )
        assert change.error is not NONE or found, f"{change.name}: said to be made"
    for change in op.result.deleted:
        rows = durable.topics.get(change.name, ())
        found = any(position > op.invoked_at and record is None for position, record in rows)
        assert change.error is not NONE or found, f"{change.name}: said to be deleted"


def _check_configs(durable: Durable, op: Op, group_id: str, changes: dict[str, str | None]) -> None:
    rows = durable.configs.get(group_id, [])
    least = op.invoked_at
    before = [configs for position, configs in rows if position <= least][-1:] or [{}]
    during = [configs for position, configs in rows if position > least]
    assert any(
        all(configs.get(name) == value for name, value in changes.items())
        for configs in [*before, *during]
    ), f"{group_id}: configs {changes} were said to be set"


def _member(record: GroupRecord, member_id: str) -> SavedMember | None:
    return next((m for m in record.members if m.member_id == member_id), None)


def _partitions(assignment: bytes) -> set[tuple[str, int]]:
    if not assignment:
        return set()
    found = decode_assignment(assignment).partitions
    return {(topic, number) for topic, numbers in found.items() for number in numbers}
