"""OffsetCommit.

See docs/spec/offsets.md#commit to #retention-time; Kafka's KafkaApis and
OffsetMetadataManager.commitOffset.

This file is long because all checks of a commit share one walk over its partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final, TypeAlias

from groupkeeper.coordinator.core.cluster.image import TopicInfo
from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.offsets.ends import lowered_ends
from groupkeeper.coordinator.core.offsets.pending import overtake
from groupkeeper.coordinator.core.offsets.room import OffsetKey, too_much
from groupkeeper.coordinator.core.records import (
    NO_OFFSET,
    NO_TIMESTAMP,
    CommittedPartition,
    CommittedTopic,
    OffsetsCommitted,
    SavedOffset,
)
from groupkeeper.coordinator.core.request_events import add_created_event, add_refused_event
from groupkeeper.coordinator.core.requests.offsets import (
    CommitPartition,
    CommittedTopicResult,
    OffsetCommit,
    OffsetCommitResult,
)
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket

PARTITION_BYTES: Final = 96
"""An upper bound of the size of one encoded partition of a commit, without its metadata."""

TOPIC_BYTES: Final = 96
"""An upper bound of the size of one encoded topic of a commit, without its name and its
partitions.
"""

NO_RETENTION: Final = -1
"""The value of ``retention_ms`` in a commit that does not set a retention."""

_OK: Final = OffsetCommitResult(ErrorCode.NONE)


@handles(OffsetCommit)
def commit_offsets(
    shard: ShardState, group: Group | None, request: OffsetCommit, ticket: Ticket
) -> None:
    """Store offsets. Each partition gets its own error. The group and the member are checked
    once.
    """
    error = _absent_error(request) if group is None else group.commit_error(request)
    if error and not admits_older_epoch(shard, group, request):
        _refuse(shard, group, request, ticket, error)
        return
    checked = check_partitions(shard, group, request)
    errors = checked.errors
    if checked.topics:
        pending_bytes = _pending_bytes(shard, request.group_id)
        if checked.size_bytes + pending_bytes > shard.limits.max_step_bytes:
            # Kafka answers this when a record is too large
            # (docs/spec/admission.md#storage-failures).
            _reply_commit(shard, request, ticket, errors, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        # A saved offset has less than twice the size of its record, so most commits need no exact
        # check.
        held_bytes = 0 if group is None else group.saved_bytes() + pending_bytes
        if 2 * checked.size_bytes > shard.limits.max_group_bytes - held_bytes:
            refuse_too_much(shard, group, checked, request)
        if checked.topics:
            if group is None and not shard.census.admits():
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
                _reply_commit(shard, request, ticket, errors, error)
                return
            _store(shard, group, checked, request)
    elif not reaches_group(request, errors):
        # No group is created and no session restarts (docs/spec/offsets.md#commit, step 4).
        _reply_each(shard, request, ticket, errors)
        return
    if group is not None and group.commit_restarts_session():
        shard.restart_session(group.members[request.member_id])
    if errors or checked.has_bare_topics:
        _reply_each(shard, request, ticket, errors)
    else:
        shard.reply(ticket, _OK)


PartitionErrors: TypeAlias = dict[tuple[int, int], ErrorCode]
"""(index of the topic in the request, index of the partition in the topic) -> why the offset was
not stored.
"""

_EARLY: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""The errors that are found before the group is checked. Kafka's reply lists these partitions
first."""


def admits_older_epoch(shard: ShardState, group: Group | None, request: OffsetCommit) -> bool:
    """Return True if a commit with an old epoch is accepted, because its sender has had the
    partitions since that epoch or longer.

    Partitions with too much metadata do not count, since they are refused in any case.
    """
    if group is None:
        return False
    limit = shard.limits.offset_metadata_max_bytes
    by_name = shard.image.by_name
    partitions = (  # a generator, because a classic group examines none of them
        (topic_id or (by_name[name].topic_id if name in by_name else ""), number)
        for name, topic_id, parts in request.topics
        for number, _, _, metadata in parts
        if not metadata or not _too_long(metadata, limit)
    )
    return group.admits_older_epoch(request, partitions)


def _absent_error(request: OffsetCommit) -> ErrorCode:
    """Return the error if the sender may not commit to a group that does not exist, else NONE.

    See docs/spec/offsets.md#who-may-commit.
    """
    return ErrorCode.NONE if request.generation_id < 0 else request.absent_group_error


class Checked:
    """The result of checking each partition of a commit."""

    __slots__ = ("errors", "has_bare_topics", "lowers", "size_bytes", "topics")

    def __init__(self, size_bytes: int) -> None:
        self.topics: list[CommittedTopic] = []
        """The offsets to store."""
        self.size_bytes = size_bytes
        """An upper bound of the size of the encoded record."""
        self.errors: PartitionErrors = {}
        self.lowers = False
        """True if the commit may lower the end of a partition. It may if an offset replaces a
        larger one, or if an offset without a topic id replaces one with an id.
        """
        self.has_bare_topics = False
        """True if a topic is named without partitions."""

    def add(self, info: TopicInfo, committed: list[CommittedPartition]) -> None:
        """Add offsets to store. Their metadata is not counted."""
        name, topic_id, _ = info
        self.topics.append(CommittedTopic(name, topic_id, committed))
        self.size_bytes += TOPIC_BYTES + 6 * len(name) + PARTITION_BYTES * len(committed)

    def keep_all_but(self, refused: set[OffsetKey]) -> None:
        """Drop the refused offsets from the offsets to store."""
        kept = [
            (topic, [p for p in topic.partitions if (topic.topic, p[0]) not in refused])
            for topic in self.topics
        ]
        self.topics = [
            CommittedTopic(topic.topic, topic.topic_id, parts) for topic, parts in kept if parts
        ]


def check_partitions(shard: ShardState, group: Group | None, request: OffsetCommit) -> Checked:
    """Return the offsets to store, and the errors of the other partitions. All checks are made in
    one pass, because every commit needs them.

    See docs/spec/offsets.md#commit, steps 2, 3, 5 and 6.
    """
    checked = Checked(_fixed_bytes(request))
    stored = _NOTHING if group is None else group.offsets
    by_id = request.by_topic_id
    topics = request.topics
    overlays: dict[str, _Overlay] = {}
    is_topic_twice = len(topics) > 1 and len(set(map(_TOPIC, topics))) < len(topics)
    for topic_at, (name, topic_id, partitions) in enumerate(topics):
        if not partitions:
            checked.has_bare_topics = True
            continue
        info = shard.find_topic(name, topic_id, by_id=by_id)
        if info is None:
            checked.errors.update({(topic_at, at): _absent(by_id) for at in range(len(partitions))})
            continue
        before = stored.get(info.name, _NO_PARTITIONS)
        if not info.topic_id and _has_ids(before):
            # The host keeps no topics. The commit may replace the offset that is the end of the
            # partition.
            checked.lowers = True
        if is_topic_twice:
            before = overlays.setdefault(info.name, _Overlay(before))
        elif committed := _goes_on(before, info, partitions):
            checked.add(info, committed)
            continue
        elif _is_one_twice(partitions):
            before = _Overlay(before)
        rules = _rules(shard, group, request)
        _check_topic(checked, rules, before, info, topic_at, partitions)
    return checked


def _has_ids(stored: dict[int, SavedOffset]) -> bool:
    """Return True if an offset has a topic id, because the host knew its topics when it was
    committed.
    """
    return any(offset.topic_id for offset in stored.values())


_NOTHING: Final[Mapping[str, dict[int, SavedOffset]]] = {}
_NO_PARTITIONS: Final[dict[int, SavedOffset]] = {}
_TOPIC: Final = itemgetter(0, 1)
"""The name and the id of a CommitTopic."""

_Rules: TypeAlias = tuple[int, bool]
"""(limit of the metadata, whether offsets may only increase)."""


def _rules(shard: ShardState, group: Group | None, request: OffsetCommit) -> _Rules:
    is_monotonic = (
        group is not None
        and request.generation_id >= 0
        and shard.overrides_of(group).commit_monotonic
    )
    return shard.limits.offset_metadata_max_bytes, is_monotonic


def _goes_on(
    before: dict[int, SavedOffset], info: TopicInfo, partitions: list[CommitPartition]
) -> list[CommittedPartition]:
    """Return the rows to store for a topic, if every partition already has an offset, none
    decreases, none is named twice, and none has metadata. Nearly every commit is like this.

    Otherwise return an empty list. The caller then checks the partitions one by one.
    """
    committed: list[CommittedPartition] = []
    _, topic_id, count = info
    rows: list[_AnyRow] = partitions
    last = -1
    is_in_order = True
    for partition, offset, leader_epoch, metadata in rows:
        stored: Any = before.get(partition)  # if it exists, the number is not negative
        if stored is None or metadata:
            return []
        stored_id: str = stored.topic_id  # mypyc compares str and int faster than Any
        if stored_id != topic_id:
            return []
        previous = stored.offset
        number: int = partition
        new: int = offset
        old: int = previous
        if number >= count or new < old:
            return []
        if number <= last:
            is_in_order = False
        last = number
        committed.append((partition, offset, previous, leader_epoch, ""))
    if is_in_order or not _is_one_twice(partitions):
        return committed
    return []


def _is_one_twice(partitions: list[CommitPartition]) -> bool:
    """Return True if a partition is named twice."""
    return len({row[0] for row in partitions}) < len(partitions)


_AnyRow: TypeAlias = tuple[Any, Any, Any, Any]
"""The same tuple as ``CommitPartition``, for code that mostly passes the numbers on. With ``Any``,
mypyc does not unpack and pack each int.
"""


def _check_topic(
    checked: Checked,
    rules: _Rules,
    before: dict[int, SavedOffset],
    info: TopicInfo,
    topic_at: int,
    partitions: list[CommitPartition],
) -> None:
    """Check the partitions of one topic, and add the valid ones to the offsets to store."""
    committed: list[CommittedPartition] = []
    _, topic_id, count = info
    metadata_limit, is_monotonic = rules
    metadata_length = 0
    errors = checked.errors
    find = before.get
    overlay = before if type(before) is _Overlay else None
    for at, (partition, offset, leader_epoch, metadata) in enumerate(partitions):
        if not 0 <= partition < count:
            errors[topic_at, at] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        if metadata:
            length = len(metadata)
            if 2 * length > metadata_limit and _too_long(metadata, metadata_limit):
                errors[topic_at, at] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            metadata_length += length
        stored = find(partition)
        # A stored offset of a deleted topic with this name does not count for the new one.
        previous = (
            NO_OFFSET
            if stored is None or (stored.topic_id != topic_id and stored.topic_id and topic_id)
            else stored.offset
        )
        if offset < previous:
            if is_monotonic:
                # Clients treat this code as a failed commit, not as lost membership.
                errors[topic_at, at] = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
                continue
            checked.lowers = True
        part = partition, offset, previous, leader_epoch, metadata or ""
        committed.append(part)
        if overlay is not None:
            overlay.put(part, info)
    if committed:
        checked.add(info, committed)
        checked.size_bytes += 6 * metadata_length


def reaches_group(request: OffsetCommit, errors: PartitionErrors) -> bool:
    """Return whether the request names a partition that exists. If it names none, the group and the
    member are not checked (docs/spec/offsets.md#commit, step 4).
    """
    early = sum([error in _EARLY for error in errors.values()])
    return early < sum([len(partitions) for _, _, partitions in request.topics])


def _pending_bytes(shard: ShardState, group_id: str) -> int:
    """Return the size of the group's pending offsets in bytes: the commit may overtake them, and
    then writes them again.
    """
    pendings = shard.pendings
    return pendings.group_bytes(group_id) if pendings.by_id else 0


def refuse_too_much(
    shard: ShardState, group: Group | None, checked: Checked, request: OffsetCommit
) -> None:
    """Refuse offsets with which the group would exceed ``max_group_bytes``: remove them from
    ``checked.topics``, and add an error for each to ``checked.errors``.
    """
    if group is None:
        group = shard.new_group(request.group_id, GroupType.CLASSIC)
    held_bytes = group.saved_bytes() + _pending_bytes(shard, group.group_id)
    room_bytes = shard.limits.max_group_bytes - held_bytes
    refused = too_much(group.offsets, checked.topics, room_bytes)
    if not refused:
        return
    for topic_at, (name, topic_id, partitions) in enumerate(request.topics):
        info = shard.find_topic(name, topic_id, by_id=request.by_topic_id)
        for at, part in enumerate(partitions):
            if info is not None and (info.name, part[0]) in refused:
                error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
                checked.errors.setdefault((topic_at, at), error)
    checked.keep_all_but(refused)


class _Overlay(dict[int, SavedOffset]):
    """The stored offsets of a topic, updated by the offsets of this commit.

    It is for a commit that names a partition more than once: each offset replaces the previous
    offset of the partition.
    """

    def put(self, part: CommittedPartition, info: TopicInfo) -> None:
        partition, offset, _, leader_epoch, metadata = part
        self[partition] = SavedOffset(
            offset, leader_epoch, metadata, NO_TIMESTAMP, NO_TIMESTAMP, info.topic_id
        )


def _too_long(metadata: str, limit: int) -> bool:
    """Return True if metadata exceeds ``offset.metadata.max.bytes``, which counts UTF-16 units."""
    length = len(metadata)
    if length > limit or metadata.isascii():
        return length > limit
    return 2 * length > limit and len(metadata.encode("utf-16-le", "surrogatepass")) > 2 * limit


def _fixed_bytes(request: OffsetCommit) -> int:
    """Return an upper bound of the size of the encoded record without its topics.

    A character has at most six bytes in JSON.
    """
    text = len(request.group_id) + len(request.member_id) + len(request.client.client_id)
    if request.group_instance_id:
        text += len(request.group_instance_id)
    return 512 + 6 * text


def _store(shard: ShardState, group: Group | None, checked: Checked, request: OffsetCommit) -> None:
    if group is None:
        add_created_event(shard, request)
    client = request.client
    wall_ms = shard.now.wall_ms
    record = OffsetsCommitted(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        client.client_id,
        client.client_host,
        client.principal,
        wall_ms,
        NO_TIMESTAMP
        if request.retention_ms == NO_RETENTION
        else _expire_time_ms(wall_ms, request.retention_ms),
        checked.topics,
        GroupType.CLASSIC if group is None else group.group_type,
    )
    lowered = lowered_ends(shard, record) if checked.lowers else []
    shard.record(record, checked.size_bytes)
    for end in lowered:
        shard.record(end)
    if shard.pendings.by_id:
        overtake(shard, request.group_id, checked.topics)


def _expire_time_ms(wall_ms: int, retention_ms: int) -> int:
    """Return the time when the commit's own retention ends (wall-clock ms).

    A time before the epoch, or beyond Kafka's 64-bit integers, becomes 0: it counts as already
    expired (docs/spec/offsets.md#retention-time).
    """
    expire_time_ms = wall_ms + retention_ms
    return expire_time_ms if 0 <= expire_time_ms < 2**63 else 0


def _refuse(
    shard: ShardState, group: Group | None, request: OffsetCommit, ticket: Ticket, error: ErrorCode
) -> None:
    """Refuse a commit because of its group or member. Partitions that do not exist get their own
    error.
    """
    errors = not_existing(shard, request)
    if reaches_group(request, errors):
        if group is not None:
            add_refused_event(shard, group, request, request.generation_id, error)
        _reply_commit(shard, request, ticket, errors, error)
    else:
        _reply_each(shard, request, ticket, errors)


def not_existing(shard: ShardState, request: OffsetCommit) -> PartitionErrors:
    """Return errors for the partitions that do not exist (docs/spec/offsets.md#commit, steps 2 and
    3).
    """
    errors: PartitionErrors = {}
    by_id = request.by_topic_id
    for topic_at, (name, topic_id, partitions) in enumerate(request.topics):
        info = shard.find_topic(name, topic_id, by_id=by_id)
        count = 0 if info is None else info.partitions
        error = _absent(by_id) if info is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for at, part in enumerate(partitions):
            if not 0 <= part[0] < count:
                errors[topic_at, at] = error
    return errors


def _absent(by_id: bool) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _reply_commit(
    shard: ShardState,
    request: OffsetCommit,
    ticket: Ticket,
    errors: PartitionErrors,
    error: ErrorCode,
) -> None:
    """Answer with ``error`` for every partition that has no other error."""
    if not errors and all(partitions for _, _, partitions in request.topics):
        shard.reply(ticket, OffsetCommitResult(error))
        return
    for topic_at, (_, _, partitions) in enumerate(request.topics):
        for partition_at in range(len(partitions)):
            errors.setdefault((topic_at, partition_at), error)
    _reply_each(shard, request, ticket, errors)


def _reply_each(
    shard: ShardState, request: OffsetCommit, ticket: Ticket, errors: PartitionErrors
) -> None:
    """Answer with one result for each partition."""
    topics = rejected_first(shard, request, errors)
    shard.reply(ticket, OffsetCommitResult(ErrorCode.NONE, topics))


def rejected_first(
    shard: ShardState, request: OffsetCommit, errors: PartitionErrors
) -> list[CommittedTopicResult]:
    """Return the results in Kafka's order: first the topics with errors of ``_EARLY``.

    Within such a topic the partitions with these errors stand first. A topic without partitions
    stands among these topics if it does not exist, and is left out if it exists.

    If the request has any such error, each topic appears once, even if the request repeats it.
    Otherwise the topics appear as in the request (Kafka: OffsetCommitResponse.Builder.merge).
    """
    by_id = request.by_topic_id
    absent = {
        topic_at
        for topic_at, (name, topic_id, partitions) in enumerate(request.topics)
        if not partitions and shard.find_topic(name, topic_id, by_id=by_id) is None
    }
    if not absent and _EARLY.isdisjoint(errors.values()):
        return _as_requested(request, errors)
    results: dict[tuple[str, str], list[tuple[int, ErrorCode]]] = {}
    for early in (True, False):
        for topic_at, (name, topic_id, partitions) in enumerate(request.topics):
            if topic_at in absent:
                results.setdefault((name, topic_id), [])
            for partition_at, partition in enumerate(partitions):
                error = errors.get((topic_at, partition_at), ErrorCode.NONE)
                if (error in _EARLY) is early:
                    results.setdefault((name, topic_id), []).append((partition[0], error))
    return [(name, topic_id, parts) for (name, topic_id), parts in results.items()]


def _as_requested(request: OffsetCommit, errors: PartitionErrors) -> list[CommittedTopicResult]:
    results: list[CommittedTopicResult] = []
    for topic_at, (name, topic_id, partitions) in enumerate(request.topics):
        if not partitions:
            continue
        codes = [errors.get((topic_at, at), ErrorCode.NONE) for at in range(len(partitions))]
        numbers = [partition[0] for partition in partitions]
        results.append((name, topic_id, list(zip(numbers, codes, strict=True))))
    return results
