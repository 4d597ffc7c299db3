"""Requests about offsets in transactions. Clients send TxnOffsetCommit. The gateway makes the other
requests, for the shard whose partition of the journal it reads (docs/design.md#journal).
"""

# A class attribute that overrides a declaration is never assigned again.
# mypy: disable-error-code="mutable-override"
from __future__ import annotations

from typing import ClassVar, NamedTuple

from groupkeeper.coordinator.core.declarations import (
    AnyRequest,
    AnyResult,
    GroupWrite,
    ShardRoute,
)
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.records import JournalPosition, PendingTopic
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.offsets import CommittedTopicResult, CommitTopic
from groupkeeper.coordinator.core.wire_values import Int16, Int32, Int64


class TxnOffsetCommitResult(AnyResult, frozen=True):
    """The answer to a TxnOffsetCommit. If ``topics`` is None, every partition has the result
    ``error``.
    """

    topics: list[CommittedTopicResult] | None = None
    is_pending: bool = False
    """True if offsets are durable as pending. They must be written to the journal before the client
    is answered."""

    def with_error(self, error: ErrorCode) -> TxnOffsetCommitResult:
        """Return the answer with this error for every partition that had none."""
        if self.topics is None:
            return TxnOffsetCommitResult(error)
        topics = [
            (name, topic_id, [(partition, code or error) for partition, code in rows])
            for name, topic_id, rows in self.topics
        ]
        return TxnOffsetCommitResult(ErrorCode.NONE, topics)


class TxnOffsetCommit(GroupWrite, frozen=True):
    """Store offsets as pending until a transaction ends (docs/spec/offsets.md#transactions)."""

    generation_id: Int32
    """-1 if the client sent none (v0-2)."""
    member_id: str
    group_instance_id: str | None
    topics: list[CommitTopic]
    producer_id: Int64
    producer_epoch: Int16
    pending_id: str
    """The id that the journal's record has. The caller generates it, since the core has no
    randomness. If offsets with this id are already pending, nothing changes.
    """
    client: Client

    result = TxnOffsetCommitResult


class ShardRequest(AnyRequest, frozen=True):
    """A request to the shard of groups with the number ``shard_id``."""

    shard_id: int
    group_id: ClassVar = None  # handled like an absent group
    result: ClassVar[type[AnyResult] | type[ErrorCode]] = ErrorCode
    route = ShardRoute.ONE
    parks = False
    reads = False
    waits = True
    while_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    when_full = ErrorCode.COORDINATOR_NOT_AVAILABLE


class EndedTransaction(NamedTuple):
    """A marker in the journal, and the pending offsets of its producer that are before it in the
    journal.
    """

    producer_id: int
    """Only pending offsets of this producer are ended, even if ``pending_ids`` names others."""
    pending_ids: tuple[str, ...]
    """In the order of the journal."""
    is_commit: bool


class EndTransactions(ShardRequest, frozen=True):
    """End pending offsets, and set the position in the journal."""

    ended: tuple[EndedTransaction, ...]
    """In the order of their markers."""
    topic_id: str
    """The id of the journal topic in which ``position`` is an offset."""
    position: Int64
    """The offset in the journal at which a restart continues to read."""


class DropPending(ShardRequest, frozen=True):
    """Drop pending offsets that are not in the journal, and never will be."""

    pending_ids: tuple[str, ...]


class ConfirmPending(ShardRequest, frozen=True):
    """Answer NONE if offsets are still pending. The answer waits for a write, which the store
    accepts only from the owner of the shard. So no other process can send it.
    """

    pending_id: str


class MoveJournal(ShardRequest, frozen=True):
    """Set the position in the journal: the offset at which a restart continues to read."""

    topic_id: str
    position: Int64


class PendingView(NamedTuple):
    """The pending offsets of one TxnOffsetCommit, and their producer."""

    pending_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    commit_time_ms: int
    topics: list[PendingTopic]


class ReadPendingResult(AnyResult, frozen=True):
    """The answer to a ReadPending."""

    pending: tuple[PendingView, ...] = ()
    journal: JournalPosition | None = None


class ReadPending(ShardRequest, frozen=True):
    """Read which offsets are pending in a shard, and how far the journal is read."""

    result = ReadPendingResult
    reads = True
