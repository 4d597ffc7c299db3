"""GroupCoordinator: the coordinator in one object, without a network, with the methods for hosts.

A daemon uses only ``BareCoordinator``. The classes of a host's requests and responses would add
about 20 ms to each of its starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from groupkeeper.coordinator.core.assignors.types import Assignment, TopicPartition
from groupkeeper.coordinator.core.consumer.validation import heartbeat_error
from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.core.records import NO_OFFSET
from groupkeeper.coordinator.core.requests.admin import (
    DeleteGroup,
    ListGroups,
    ListGroupsResult,
    ReadGroup,
    ReadGroupResult,
)
from groupkeeper.coordinator.core.requests.consumer import ConsumerGroupHeartbeatResult
from groupkeeper.coordinator.core.requests.offsets import OffsetDeleteResult
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.embed.bare_coordinator import BareCoordinator
from groupkeeper.coordinator.embed.consumer_messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from groupkeeper.coordinator.embed.group_assignment import assign
from groupkeeper.coordinator.embed.group_metadata import GroupMetadata, group_metadata
from groupkeeper.coordinator.embed.messages import (
    NOBODY,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    checked_request,
    offset_delete,
)
from groupkeeper.coordinator.runtime.tickets import Awaited
from groupkeeper.storage.host_values import checked

if TYPE_CHECKING:
    from groupkeeper.coordinator.embed.commit_log import OffsetCommitLog

LISTED_AT_ONCE: Final = 100
"""``list_groups`` reads at most this many groups at once."""


class GroupCoordinator(BareCoordinator):
    """Groups and offsets over a storage, for a host. Each kind of request has a method."""

    async def join_group(self, request: JoinGroupRequest) -> JoinGroupResponse:
        """Enter a group or its next generation. Waits for the end of the join phase."""
        asked = checked_request(request, JoinGroupRequest).to_core(self.config)
        return JoinGroupResponse.of(await self._ask(asked))

    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Return a member's assignment. The leader passes the assignments of all members. The call
        of any other member waits for the leader's call.
        """
        asked = checked_request(request, SyncGroupRequest).to_core()
        return SyncGroupResponse.of(await self._ask(asked))

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Report that a member is alive. After REBALANCE_IN_PROGRESS the member must join again."""
        asked = checked_request(request, HeartbeatRequest).to_core()
        return HeartbeatResponse(error_code=await self._ask(asked))

    async def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Remove a member from its group. The others rebalance at once."""
        asked = checked_request(request, LeaveGroupRequest).to_core()
        return LeaveGroupResponse.of(await self._ask(asked))

    async def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        """Join a consumer group, stay in it or leave it. Needs topics, and ``consumer`` among the
        ``rebalance_protocols``.
        """
        request = checked_request(request, ConsumerGroupHeartbeatRequest)
        pattern_error = request.pattern and self.workshop.patterns.error(request.pattern)
        asked = request.to_core(self._image, pattern_error or None)
        wrong = heartbeat_error(asked, self.config.consumer_assignors, client_makes_id=True)
        if "consumer" not in self.config.rebalance_protocols:
            result = ConsumerGroupHeartbeatResult(ErrorCode.UNSUPPORTED_VERSION)
        elif wrong is not None:
            result = ConsumerGroupHeartbeatResult(wrong.error, wrong.message)
        else:
            result = await self._ask(asked)
        return ConsumerGroupHeartbeatResponse.of(result, self._image)

    async def commit_offsets(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Store offsets. Those without an error are durable when this returns."""
        asked = checked_request(request, OffsetCommitRequest).to_core()
        return OffsetCommitResponse.of(request, await self._ask(asked))

    async def fetch_offsets(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Read committed offsets. Raises GroupError if the group cannot be read now."""
        asked = checked_request(request, OffsetFetchRequest).to_core()
        return OffsetFetchResponse.of(await self._ask(asked))

    async def get_committed_offset(self, group_id: str, topic: str, partition: int) -> int | None:
        """Return one committed offset, or None if there is none. Raises GroupError if the group
        cannot be read now.

        A committed -1 is also None: on the wire it means that there is no offset.
        """
        request = OffsetFetchRequest(group_id=group_id, topics={topic: [partition]})
        found = (await self.fetch_offsets(request)).offsets[topic][partition]
        if found.error_code is not ErrorCode.NONE:
            raise GroupError(found.error_code)
        return None if found.offset == NO_OFFSET else found.offset

    async def get_group(self, group_id: str) -> GroupMetadata | None:
        """Return a group and its members, or None if the group does not exist. Raises GroupError if
        the group cannot be read now.
        """
        (group,) = await self._read_groups([checked(group_id, str, "group_id")])
        return group

    async def list_groups(self) -> list[GroupMetadata]:
        """Return all groups. Raises GroupError if a shard is LOADING, was lost or is closed."""
        listing: ListGroupsResult = await self.ask(ListGroups())
        if listing.error is not ErrorCode.NONE:
            raise GroupError(listing.error)
        if not listing.is_whole:  # Kafka sends the incomplete list; a host gets an error
            raise GroupError(ErrorCode.NOT_COORDINATOR)
        ids = [group.group_id for group in listing.groups]
        groups: list[GroupMetadata] = []
        for start in range(0, len(ids), LISTED_AT_ONCE):
            found = await self._read_groups(ids[start : start + LISTED_AT_ONCE])
            groups += [
                group for group in found if group is not None
            ]  # None: deleted since the listing
            await asyncio.sleep(0)
        return groups

    async def perform_assignment(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Assignment:
        """Return an assignment of partitions, made by the assignor that the members have chosen.

        For hosts that compute assignments between the leader's JoinGroup and its SyncGroup. Raises
        GroupError if the group does not exist, or if ``group_assignment.assign`` refuses.
        """
        group = await self.get_group(group_id)
        if group is None:
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND)
        return assign(group, partitions)

    async def delete_groups(self, *group_ids: str) -> dict[str, ErrorCode]:
        """Delete Empty groups with their offsets. Return one error code per group."""
        ids = list(dict.fromkeys(checked(group_ids, list[str], "group_ids")))
        codes = await self._ask_all([DeleteGroup(group_id, NOBODY) for group_id in ids])
        return dict(zip(ids, codes, strict=True))

    async def delete_offsets(
        self, group_id: str, partitions: Mapping[str, Iterable[int]]
    ) -> dict[str, dict[int, ErrorCode]]:
        """Delete offsets of topics that no member subscribes to. Return one error code per
        partition. Raises GroupError if the whole request is refused.
        """
        result: OffsetDeleteResult = await self.ask(offset_delete(group_id, partitions))
        if result.error is not ErrorCode.NONE:
            raise GroupError(result.error)
        return {topic: dict(rows) for topic, rows in result.topics}

    def commit_log(self, group_id: str, since_ms: int = 0) -> AsyncIterator[OffsetCommitLog]:
        """Return an iterator over the history of a group's offsets from ``since_ms`` on (wall
        clock), oldest first.

        Raises StorageError if the storage keeps no events.
        """
        # imported here, because no daemon uses it
        from groupkeeper.coordinator.embed.commit_log import read_commit_log

        return read_commit_log(self._storage, group_id, since_ms)

    async def _ask(self, request: Request) -> Any:
        """Submit a request and return its result. The caller has checked its types."""
        self._check_started()
        ticket = Awaited()
        self.submit(request, ticket)
        return await ticket.future

    async def _ask_all(self, requests: Sequence[Request]) -> list[Any]:
        self._check_started()
        ticket = Awaited()
        self.submit_all(requests, ticket)
        return cast("list[Any]", await ticket.future)

    async def _read_groups(self, group_ids: Sequence[str]) -> list[GroupMetadata | None]:
        results: list[ReadGroupResult] = await self._ask_all([ReadGroup(g) for g in group_ids])
        for result in results:
            if result.error not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                raise GroupError(result.error)
        return [None if r.group is None else group_metadata(r.group) for r in results]
