"""OffsetCommit (spec 7.1 to 7.3; Kafka's KafkaApis and OffsetMetadataManager.commitOffset)."""

from __future__ import annotations

from typing import Final, TypeAlias

from coordinator.core import rebalance
from coordinator.core.ends import lowered_ends
from coordinator.core.errors import ErrorCode
from coordinator.core.events import CommitRejected
from coordinator.core.group import Group
from coordinator.core.records import (
    NO_OFFSET,
    NO_TIMESTAMP,
    CommittedPartition,
    CommittedTopic,
    OffsetsCommitted,
    SavedOffset,
)
from coordinator.core.request_events import note_created
from coordinator.core.requests import (
    CommitPartition,
    CommittedTopicResult,
    OffsetCommit,
    OffsetCommitResult,
)
from coordinator.core.state import ShardState
from coordinator.core.step import Ticket
from coordinator.core.topic_image import TopicImage, TopicInfo
from coordinator.core.transitions import COMMIT_ANSWER, COMMIT_EXTENDS_SESSION, EMPTY

PARTITION_BYTES = 96
"""An upper bound of one encoded partition of a commit, its metadata not counted."""

TOPIC_BYTES = 512
"""An upper bound of one encoded topic of a commit beside its partitions; legal names are short."""

_OK = OffsetCommitResult(ErrorCode.NONE)


def commit_offsets(shard: ShardState, request: OffsetCommit, ticket: Ticket) -> None:
    """Store offsets; each partition is judged on its own, group and member once for all."""
    known, errors = _existing(shard.image, request)
    if not known:
        # Neither group nor member is looked at, and no group is created (spec 7.1 step 4).
        shard.reply(ticket, OffsetCommitResult(ErrorCode.NONE, _rejected_first(request, errors)))
        return
    group = shard.groups.get(request.group_id)
    error = _member_error(group, request)
    if error:
        if group is not None:
            _note_rejected(shard, group, request, error)
        _reply_commit(shard, request, ticket, errors, error)
        return
    record = _to_record(shard, group, known, request, errors)
    if record is not None:
        if _size_bytes(request) > shard.limits.max_step_bytes:
            # Kafka's answer to a record that is too large (spec 4.3).
            _reply_commit(shard, request, ticket, errors, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        _store(shard, group, record, request)
    if group is not None and group.state in COMMIT_EXTENDS_SESSION:
        rebalance.restart_session(shard, group.members[request.member_id])
    if errors:
        result = OffsetCommitResult(ErrorCode.NONE, _rejected_first(request, errors))
        shard.reply(ticket, result)
    else:
        shard.reply(ticket, _OK)


_Errors: TypeAlias = dict[tuple[int, int], ErrorCode]
"""(index of the topic, index of the partition) -> why it was not stored."""

_EARLY: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""The errors of partitions that never reach the group: Kafka's reply lists them first."""

_Known: TypeAlias = list[tuple[int, TopicInfo, list[CommitPartition]]]
"""(index of the topic in the request, the topic, its partitions as in the request)."""


def _existing(image: TopicImage, request: OffsetCommit) -> tuple[_Known, _Errors]:
    """Find the topics, and reject partitions that do not exist (spec 7.1 steps 2 and 3)."""
    known: _Known = []
    errors: _Errors = {}
    for topic_at, (name, topic_id, partitions) in enumerate(request.topics):
        info = image.find(name, topic_id, by_id=request.by_topic_id)
        count = 0 if info is None else info.partitions
        rejected = [at for at, part in enumerate(partitions) if not 0 <= part[0] < count]
        if rejected:
            error = (
                ErrorCode.UNKNOWN_TOPIC_ID
                if info is None and request.by_topic_id
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            for partition_at in rejected:
                errors[topic_at, partition_at] = error
        if info is not None and len(rejected) < len(partitions):
            known.append((topic_at, info, partitions))
    return known, errors


def _member_error(group: Group | None, request: OffsetCommit) -> ErrorCode:
    """Who may commit: the table of spec 7.2."""
    generation_id = request.generation_id
    if group is None:
        return ErrorCode.NONE if generation_id < 0 else request.absent_group_error
    if group.state is EMPTY:  # whoever it says it is: edge 62
        return ErrorCode.NONE if generation_id < 0 else COMMIT_ANSWER[group.state]
    error = group.identity_error(request.member_id, request.group_instance_id)
    if error:
        return error
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return COMMIT_ANSWER[group.state]


def _to_record(
    shard: ShardState,
    group: Group | None,
    known: _Known,
    request: OffsetCommit,
    errors: _Errors,
) -> OffsetsCommitted | None:
    """What is to be stored; None where no partition is left."""
    rules = (
        shard.limits.offset_metadata_max_bytes,
        group is not None
        and request.generation_id >= 0
        and shard.settings_of(group).commit_monotonic,
    )
    stored = {} if group is None else group.offsets
    topics = []
    for topic_at, info, partitions in known:
        before = stored.get(info.name, {})
        if len({part[0] for part in partitions}) < len(partitions):
            before = _Overlay(before)
        committed = _to_partitions(rules, before, info, topic_at, partitions, errors)
        if committed:
            topics.append(CommittedTopic(info.name, info.topic_id, committed))
    if not topics:
        return None
    wall_ms = shard.now.wall_ms
    client = request.client
    return OffsetsCommitted(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        client.client_id,
        client.client_host,
        client.principal,
        wall_ms,
        NO_TIMESTAMP if request.retention_ms < 0 else wall_ms + request.retention_ms,
        topics,
    )


_Rules: TypeAlias = tuple[int, bool]
"""A partition is judged by: the limit of its metadata, whether offsets may only grow."""


def _to_partitions(
    rules: _Rules,
    before: dict[int, SavedOffset],
    info: TopicInfo,
    topic_at: int,
    partitions: list[CommitPartition],
    errors: _Errors,
) -> list[CommittedPartition]:
    """The partitions of one topic that are to be stored; the others get their errors."""
    committed = []
    topic_id = info.topic_id
    metadata_limit, is_monotonic = rules
    for at, (partition, offset, leader_epoch, metadata) in enumerate(partitions):
        if errors and (topic_at, at) in errors:
            continue
        if metadata and _too_long(metadata, metadata_limit):
            errors[topic_at, at] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        stored = before.get(partition)
        # What was stored for a topic of this name that was deleted says nothing of this one.
        previous = (
            NO_OFFSET
            if stored is None or (stored.topic_id != topic_id and stored.topic_id and topic_id)
            else stored.offset
        )
        if is_monotonic and offset < previous:
            # Clients take this code for a failed commit, not for lost membership.
            errors[topic_at, at] = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            continue
        part = CommittedPartition(partition, offset, previous, leader_epoch, metadata or "")
        committed.append(part)
        if type(before) is _Overlay:
            before.put(part, info)
    return committed


class _Overlay(dict[int, SavedOffset]):
    """What is stored of a topic as a commit sees it that names a partition twice: the last wins."""

    def put(self, part: CommittedPartition, info: TopicInfo) -> None:
        self[part.partition] = SavedOffset(
            part.offset, part.leader_epoch, part.metadata, NO_TIMESTAMP, NO_TIMESTAMP, info.topic_id
        )


def _too_long(metadata: str, limit: int) -> bool:
    """``offset.metadata.max.bytes`` counts UTF-16 units, of which a character has one or two."""
    if 2 * len(metadata) <= limit:
        return False
    return len(metadata) + sum(c > "\uffff" for c in metadata) > limit


def _size_bytes(request: OffsetCommit) -> int:
    """An upper bound of the encoded record; no character takes more than six bytes in JSON."""
    size = 512 + 6 * (len(request.group_id) + len(request.member_id))
    size += 6 * len(request.client.client_id)
    for name, _, partitions in request.topics:
        size += TOPIC_BYTES + PARTITION_BYTES * len(partitions) + 6 * len(name)
        size += 6 * sum([len(p[3]) for p in partitions if p[3]])
    return size


def _store(
    shard: ShardState, group: Group | None, record: OffsetsCommitted, request: OffsetCommit
) -> None:
    if group is None:
        note_created(shard, request)
    lowered = lowered_ends(shard, record)
    shard.record(record)
    for end in lowered:
        shard.record(end)


def _note_rejected(
    shard: ShardState, group: Group, request: OffsetCommit, error: ErrorCode
) -> None:
    client = request.client
    shard.event(
        CommitRejected(
            group=group.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.client_host,
            principal=client.principal,
            api="OffsetCommit",
            error=error.name,
        )
    )


def _reply_commit(
    shard: ShardState, request: OffsetCommit, ticket: Ticket, errors: _Errors, error: ErrorCode
) -> None:
    """Answer one error to every partition that has none of its own."""
    if not errors:
        shard.reply(ticket, OffsetCommitResult(error))
        return
    for topic_at, (_, _, partitions) in enumerate(request.topics):
        for partition_at in range(len(partitions)):
            errors.setdefault((topic_at, partition_at), error)
    shard.reply(ticket, OffsetCommitResult(ErrorCode.NONE, _rejected_first(request, errors)))


def _rejected_first(request: OffsetCommit, errors: _Errors) -> list[CommittedTopicResult]:
    """The reply in Kafka's order: topics with early rejections first, and these first within a
    topic.

    A topic appears once, even if the request repeats it (Kafka: OffsetCommitResponse.Builder).
    """
    results: dict[tuple[str, str], list[tuple[int, ErrorCode]]] = {}
    for early in (True, False):
        for topic_at, (name, topic_id, partitions) in enumerate(request.topics):
            for partition_at, partition in enumerate(partitions):
                error = errors.get((topic_at, partition_at), ErrorCode.NONE)
                if (error in _EARLY) is early:
                    results.setdefault((name, topic_id), []).append((partition[0], error))
    return [(name, topic_id, parts) for (name, topic_id), parts in results.items()]
