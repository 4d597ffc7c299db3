"""Requests about committed offsets."""

# A class attribute that overrides a declaration is never assigned again.
# mypy: disable-error-code="mutable-override"
from __future__ import annotations

from collections.abc import Collection
from typing import Self, TypeAlias

from groupkeeper.coordinator.core.declarations import AnyResult, GroupRead, GroupWrite, Result
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.wire_values import Int32, Int64

CommitPartition: TypeAlias = tuple[Int32, Int64, Int32, str | None]
"""(partition, offset, leader epoch or -1, metadata)."""

CommitTopic: TypeAlias = tuple[str, str, list[CommitPartition]]
"""(name, topic id, partitions). If the client sent the topic's id, the name is "". If it sent the
name, the id is "".
"""

CommittedTopicResult: TypeAlias = tuple[str, str, list[tuple[int, ErrorCode]]]
"""(name, topic id, [(partition, error)]). Name and id are those of the request."""


class OffsetCommitResult(AnyResult, frozen=True, gc=False):
    """The answer to an OffsetCommit. If ``topics`` is None, every partition has the result
    ``error``.
    """

    topics: list[CommittedTopicResult] | None = None

    def replaced(self, code: ErrorCode, loads_again: bool) -> Self:
        """Return COORDINATOR_LOAD_IN_PROGRESS if this process loads the shard again: the client
        then sends the commit here again.

        After NOT_COORDINATOR the client would look for the coordinator, and find this process
        again. librdkafka then fails its own retry of the commit, and looks for the coordinator
        again, without end. It sends no heartbeat in this time, and loses its membership.
        """
        return super().replaced(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loads_again else code, loads_again
        )


class OffsetCommit(GroupWrite, frozen=True):
    """Store offsets of a group (docs/spec/offsets.md#commit)."""

    generation_id: Int32
    """The generation or member epoch. -1 for simple consumers and administrators."""
    member_id: str
    group_instance_id: str | None
    topics: list[CommitTopic]
    by_topic_id: bool
    """True if topics are named by id (OffsetCommit v10)."""
    retention_ms: Int64
    """How long these offsets are kept (OffsetCommit v2-4). -1 if the client did not say."""
    absent_group_error: ErrorCode
    """The error for a generation >= 0 if the group does not exist: GROUP_ID_NOT_FOUND, or
    ILLEGAL_GENERATION (v0-8).
    """
    client: Client

    result = OffsetCommitResult

    @property
    def knows_member_epochs(self) -> bool:
        """True if the version has member epochs (v9 and later). A member of the consumer protocol
        must not use an older version.
        """
        return self.absent_group_error is ErrorCode.GROUP_ID_NOT_FOUND


FetchTopic: TypeAlias = tuple[str, str, list[Int32]]
"""(name, topic id, partitions). One of name and id is ""."""

FetchedPartition: TypeAlias = tuple[int, int, int, str, ErrorCode]
"""(partition, offset, leader epoch, metadata, error). Without a stored offset: offset -1, epoch -1,
metadata "".
"""

FetchedTopic: TypeAlias = tuple[str, str, Collection[FetchedPartition]]
"""(name, topic id, partitions). If the topic exists, both name and id are set. Otherwise they are
those of the request.
"""


class OffsetFetchResult(AnyResult, frozen=True, gc=False):
    """The answer to an OffsetFetch: an error of the whole group, or the topics."""

    topics: Collection[FetchedTopic] = ()


class OffsetFetch(GroupRead, frozen=True):
    """Read the committed offsets of one group (docs/spec/offsets.md#fetch)."""

    topics: list[FetchTopic] | None
    """None for all stored offsets of the group."""
    by_topic_id: bool
    """True if topics are named by id in request and reply (OffsetFetch v10)."""
    require_stable: bool
    member_id: str | None = None
    member_epoch: Int32 = -1

    result = OffsetFetchResult
    when_full = ErrorCode.NOT_COORDINATOR  # older consumers retry no other code

    def loading_answer(self) -> Result:
        """Return NOT_COORDINATOR to consumers that require stable offsets: older versions of them
        do not retry COORDINATOR_LOAD_IN_PROGRESS.
        """
        code = ErrorCode.NOT_COORDINATOR if self.require_stable else self.while_loading
        return self.refused(code)


class OffsetDeleteResult(AnyResult, frozen=True):
    """The answer to an OffsetDelete: an error of the whole group, or one error per partition."""

    topics: tuple[tuple[str, list[tuple[int, ErrorCode]]], ...] = ()


class OffsetDelete(GroupWrite, frozen=True):
    """Delete offsets of topics that the group does not subscribe to
    (docs/spec/offsets.md#delete).
    """

    topics: tuple[tuple[str, list[Int32]], ...]
    """(name, partitions)."""
    client: Client

    result = OffsetDeleteResult
