"""TxnOffsetCommit, and the end of transactions with offsets.

See docs/spec/offsets.md#transactions; Kafka's OffsetMetadataManager (commitTransactionalOffset,
replayEndTransactionMarker). The gateway reads the journal and decides when a transaction has ended
(docs/design.md#journal).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.groups.pendings import pending_bytes
from groupkeeper.coordinator.core.offsets.commit import (
    Checked,
    PartitionErrors,
    admits_older_epoch,
    check_partitions,
    not_existing,
    reaches_group,
    refuse_too_much,
    rejected_first,
)
from groupkeeper.coordinator.core.offsets.ends import lowered_ends
from groupkeeper.coordinator.core.offsets.pending import overtake
from groupkeeper.coordinator.core.records import (
    NO_OFFSET,
    NO_TIMESTAMP,
    TXN_COMMIT_API,
    CommittedPartition,
    CommittedTopic,
    GroupRecord,
    JournalPosition,
    OffsetsCommitted,
    PendingEnded,
    PendingOffsets,
    PendingTopic,
    SavedOffset,
)
from groupkeeper.coordinator.core.request_events import add_created_event, add_refused_event
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit
from groupkeeper.coordinator.core.requests.transactions import (
    ConfirmPending,
    DropPending,
    EndTransactions,
    MoveJournal,
    PendingView,
    ReadPending,
    ReadPendingResult,
    TxnOffsetCommit,
    TxnOffsetCommitResult,
)
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket

NO_RETENTION: Final = -1

MAX_ENDED: Final = 500
"""The largest number of pending offsets that one step ends. They take about 20 ms."""

PENDING_SHARE: Final = 4
"""A divisor: the pending offsets of one group use at most a quarter of ``max_step_bytes``."""


@handles(TxnOffsetCommit)
def commit_in_transaction(
    shard: ShardState, group: Group | None, request: TxnOffsetCommit, ticket: Ticket
) -> None:
    """Store offsets as pending. They take effect only if their transaction commits."""
    commit = _plain(request)
    errors = not_existing(shard, commit)
    if not reaches_group(commit, errors):  # group and member are not checked
        _reply(shard, commit, ticket, errors)
        return
    error = _sender_error(shard, group, commit)
    if error:
        if group is not None:
            add_refused_event(shard, group, request, request.generation_id, error)
        _reply(shard, commit, ticket, errors, error)
        return
    if request.pending_id in shard.pendings.by_id:  # the client has sent the same request again
        _reply(shard, commit, ticket, errors, is_pending=True)
        return
    checked = check_partitions(shard, group, commit)
    error = _size_error(shard, request, checked)
    if not error and checked.topics:
        refuse_too_much(shard, group, checked, commit)
        if checked.topics and group is None and not shard.census.admits():
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error or not checked.topics:
        _reply(shard, commit, ticket, checked.errors, error)
        return
    _store(shard, group, request, checked.topics)
    _reply(shard, commit, ticket, checked.errors, is_pending=True)


def _plain(request: TxnOffsetCommit) -> OffsetCommit:
    """Return an OffsetCommit with the same offsets, for the checks that both requests share."""
    return OffsetCommit(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=request.topics,
        by_topic_id=False,
        retention_ms=NO_RETENTION,
        # This value makes ``knows_member_epochs`` true: any version may have member epochs.
        absent_group_error=ErrorCode.GROUP_ID_NOT_FOUND,
        client=request.client,
    )


def _sender_error(shard: ShardState, group: Group | None, commit: OffsetCommit) -> ErrorCode:
    """Return the error if the sender may not commit, else NONE. See
    docs/spec/offsets.md#transactions for the differences from a plain commit.
    """
    if not commit.group_id:
        return ErrorCode.INVALID_GROUP_ID
    generation_id = commit.generation_id
    if group is None:
        return ErrorCode.ILLEGAL_GENERATION if generation_id >= 0 else ErrorCode.NONE
    if generation_id == -1 and not commit.member_id and commit.group_instance_id is None:
        return ErrorCode.NONE
    error = group.commit_error(commit)
    if error is ErrorCode.REBALANCE_IN_PROGRESS:  # identity and generation are right
        return ErrorCode.NONE
    if error and admits_older_epoch(shard, group, commit):
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error


def _size_error(shard: ShardState, request: TxnOffsetCommit, checked: Checked) -> ErrorCode:
    """Return the error if the offsets of the transaction would not fit into one step, else NONE."""
    most_bytes = shard.limits.max_step_bytes
    if checked.size_bytes > most_bytes:
        return ErrorCode.UNKNOWN_SERVER_ERROR  # as for a plain commit
    # The step that ends pending offsets writes them as a commit. It may also write all other
    # pending offsets of their group, because the commit overtakes them.
    held_bytes = shard.pendings.group_bytes(request.group_id)
    if checked.size_bytes + held_bytes > most_bytes // PENDING_SHARE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return ErrorCode.NONE


def _store(
    shard: ShardState, group: Group | None, request: TxnOffsetCommit, topics: list[CommittedTopic]
) -> None:
    if group is None:
        add_created_event(shard, request)
        # A simple group. It exists from now on, also if the transaction is aborted.
        no_type = GroupRecord(request.group_id, None, 0, None, None, NO_TIMESTAMP, ())
        shard.record(no_type)
    client = request.client
    record = PendingOffsets(
        request.pending_id,
        shard.pendings.last_arrival + 1,
        request.producer_id,
        request.producer_epoch,
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        client.client_id,
        client.client_host,
        client.principal,
        shard.now.wall_ms,
        _pending_topics(topics),
    )
    shard.record(record, pending_bytes(record))


def _pending_topics(topics: list[CommittedTopic]) -> list[PendingTopic]:
    """Return the offsets to store as pending. If a partition has several, return the last."""
    last: dict[tuple[str, str], dict[int, CommittedPartition]] = {}
    for topic in topics:
        rows = last.setdefault((topic.topic, topic.topic_id), {})
        rows.update({row[0]: row for row in topic.partitions})
    return [
        PendingTopic(
            name,
            topic_id,
            [
                (partition, offset, leader_epoch, metadata, False)
                for partition, offset, _, leader_epoch, metadata in rows.values()
            ],
        )
        for (name, topic_id), rows in last.items()
    ]


def _reply(
    shard: ShardState,
    commit: OffsetCommit,
    ticket: Ticket,
    errors: PartitionErrors,
    error: ErrorCode = ErrorCode.NONE,
    *,
    is_pending: bool = False,
) -> None:
    """Answer each partition. Partitions without their own error get ``error``."""
    if error:
        for topic_at, (_, _, partitions) in enumerate(commit.topics):
            for at in range(len(partitions)):
                errors.setdefault((topic_at, at), error)
    topics = rejected_first(shard, commit, errors)
    shard.reply(ticket, TxnOffsetCommitResult(ErrorCode.NONE, topics, is_pending))


@handles(EndTransactions)
def end_transactions(
    shard: ShardState, _group: None, request: EndTransactions, ticket: Ticket
) -> None:
    """End pending offsets, and move the journal position in the same step. If a transaction
    committed, its pending offsets become committed offsets.

    If the pending offsets are too many or too large for one step, end only some of them and answer
    COORDINATOR_LOAD_IN_PROGRESS. The same request must then be sent again to end the others.
    """
    ended = 0
    for producer_id, pending_id, is_commit in _each(request):
        if ended == MAX_ENDED or 2 * shard.step.record_bytes > shard.limits.max_step_bytes:
            shard.reply(ticket, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        pending = shard.pendings.by_id.get(pending_id)
        if pending is None or pending.producer_id != producer_id:
            # These offsets were ended before, or dropped with their group or topic. Or another
            # producer has written their id into the journal.
            continue
        ended += 1
        shard.record(PendingEnded(pending_id))
        group = shard.groups.get(pending.group_id)
        if is_commit and group is not None:
            _commit(shard, group, pending)
    _move(shard, request.topic_id, request.position)
    shard.reply(ticket, ErrorCode.NONE)


def _each(request: EndTransactions) -> Iterator[tuple[int, str, bool]]:
    for producer_id, pending_ids, is_commit in request.ended:
        for pending_id in pending_ids:
            yield producer_id, pending_id, is_commit


def _commit(shard: ShardState, group: Group, pending: PendingOffsets) -> None:
    """Store pending offsets as committed, except those that a later commit has overtaken."""
    topics = [_committed(group, topic) for topic in pending.topics]
    topics = [topic for topic in topics if topic.partitions]
    if not topics:
        return
    record = OffsetsCommitted(
        pending.group_id,
        pending.generation_id,
        pending.member_id,
        pending.group_instance_id,
        pending.client_id,
        pending.client_host,
        pending.principal,
        pending.commit_time_ms,
        NO_TIMESTAMP,
        topics,
        group.group_type,
        TXN_COMMIT_API,
    )
    lowered = lowered_ends(shard, record)
    shard.record(record, pending_bytes(pending))
    for end in lowered:
        shard.record(end)
    overtake(shard, pending.group_id, topics, before=pending.arrival)


def _committed(group: Group, topic: PendingTopic) -> CommittedTopic:
    stored = group.offsets.get(topic.topic, {})
    rows: list[CommittedPartition] = []
    for partition, offset, leader_epoch, metadata, is_overtaken in topic.partitions:
        if not is_overtaken:
            previous = _previous(stored.get(partition), topic.topic_id)
            rows.append((partition, offset, previous, leader_epoch, metadata))
    return CommittedTopic(topic.topic, topic.topic_id, rows)


def _previous(stored: SavedOffset | None, topic_id: str) -> int:
    """Return the offset that a commit replaces; -1 if there is none. An offset of a deleted topic
    with the same name does not count.
    """
    if stored is None or (stored.topic_id and topic_id and stored.topic_id != topic_id):
        return NO_OFFSET
    return stored.offset


@handles(DropPending)
def drop(shard: ShardState, _group: None, request: DropPending, ticket: Ticket) -> None:
    """Drop pending offsets that the journal does not have, and never will."""
    for pending_id in request.pending_ids:
        if pending_id in shard.pendings.by_id:
            shard.record(PendingEnded(pending_id))
    shard.reply(ticket, ErrorCode.NONE)


@handles(ConfirmPending)
def confirm(shard: ShardState, _group: None, request: ConfirmPending, ticket: Ticket) -> None:
    """Answer NONE if offsets are still pending, and this process still owns the shard. Otherwise
    the error is COORDINATOR_NOT_AVAILABLE, or the write fails.

    To check the ownership, the journal position is written again unchanged: the store checks the
    lease with each write.
    """
    journal = shard.pendings.journal
    if journal is None or request.pending_id not in shard.pendings.by_id:
        shard.reply(ticket, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    shard.record(journal)
    shard.reply(ticket, ErrorCode.NONE)


@handles(MoveJournal)
def move_journal(shard: ShardState, _group: None, request: MoveJournal, ticket: Ticket) -> None:
    """Record how far the journal is read."""
    _move(shard, request.topic_id, request.position)
    shard.reply(ticket, ErrorCode.NONE)


def _move(shard: ShardState, topic_id: str, position: int) -> None:
    record = JournalPosition(topic_id, position)
    if record != shard.pendings.journal:
        shard.record(record)


@handles(ReadPending)
def read_pending(shard: ShardState, _group: None, _request: ReadPending, ticket: Ticket) -> None:
    """Answer with all pending offsets of the shard, and with the journal position."""
    views = tuple(
        PendingView(
            each.pending_id,
            each.producer_id,
            each.producer_epoch,
            each.group_id,
            each.commit_time_ms,
            each.topics,
        )
        for each in shard.pendings.by_id.values()
    )
    shard.reply(ticket, ReadPendingResult(ErrorCode.NONE, views, shard.pendings.journal))
