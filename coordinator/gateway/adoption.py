"""Adoption: at the first request for a group that we do not know, we look for it in the upstream.

If the group has members there, we refuse its requests until they have left. So no group is in two
places while clients are switched one by one. Otherwise we copy its offsets in one commit. After a
crash we have all of them, or we have none and adopt the group again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from groupkeeper.coordinator.cluster.topics import OURSELVES
from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import AdminAction, Event, of_client
from groupkeeper.coordinator.core.requests.admin import DeleteGroup, ReadGroup, ReadGroupResult
from groupkeeper.coordinator.core.requests.offsets import (
    CommitPartition,
    CommitTopic,
    OffsetCommit,
    OffsetCommitResult,
)
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.gateway.client import BrokerError
from groupkeeper.coordinator.gateway.observed_topics import ObservedTopics
from groupkeeper.coordinator.gateway.upstream_groups import (
    GroupsError,
    UpstreamGroups,
    UpstreamOffset,
)
from groupkeeper.coordinator.runtime.line_limit import LinesOfMany
from groupkeeper.coordinator.runtime.tickets import Awaited, Ticket

AGAIN_S: Final = 1.0
"""A group that was refused is looked up again after this time. Clients retry every 100 ms."""
MAX_SETTLED: Final = 100_000
"""Groups that are remembered as ours. If there are more, each is checked again: that is cheap."""
MAX_SETTLED_CHARS: Final = 128
"""Longer ids are not remembered, but looked up each time. A client may send 32,767 bytes, and
100,000 such ids would need 3 GB."""
LOG_EVERY_S: Final = 60.0
LINES_PER_WINDOW: Final = 10
"""Lines in ``LOG_EVERY_S`` about refused groups. While the upstream is away, every group is
refused."""

_ABSENT: Final = frozenset({ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND})

_log = structlog.get_logger("groupkeeper.gateway")


class Submits(Protocol):
    """The coordinator itself, not the gate before it."""

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Submit a request. The ticket gets the answer."""
        ...


class _NotNow(Exception):
    """The group cannot be adopted now. The message is one line for a person."""


class Adoption:
    """Copies groups from the upstream. Each group is looked up by one task at a time."""

    def __init__(
        self,
        coordinator: Submits,
        groups: UpstreamGroups,
        topics: ObservedTopics,
        image: Callable[[], TopicImage],
        write_event: Callable[[list[Event]], bool],
    ) -> None:
        """``write_event`` adds events to the event log."""
        self._coordinator = coordinator
        self._groups = groups
        self._topics = topics
        self._image = image
        self._write_event = write_event
        self._settled: set[str] = set()
        self._refused: dict[str, float] = {}
        """Group -> until when it is refused without a look."""
        loop = asyncio.get_running_loop()
        self._now_s = loop.time
        self._lines = LinesOfMany(loop.time, LOG_EVERY_S, LOG_EVERY_S, LINES_PER_WINDOW)
        self.adopted = 0
        """The number of groups whose offsets were copied since the start."""

    def is_settled(self, group_id: str) -> bool:
        """Return True if the group is here, or if it is in neither place."""
        return group_id in self._settled

    async def settle(self, group_id: str) -> ErrorCode:
        """Adopt the group if it is unknown here. Return an error if its clients must wait."""
        if self._refused.get(group_id, 0.0) > self._now_s():
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            known = await self._ask(ReadGroup(group_id))
            assert isinstance(known, ReadGroupResult)
            if known.group is None:
                if known.error not in _ABSENT:
                    return ErrorCode.NONE  # the shard is loading, and its own answers say so
                await self._adopt(group_id)
        except (BrokerError, GroupsError, _NotNow) as error:
            self._refuse(group_id, str(error))
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if len(group_id) <= MAX_SETTLED_CHARS:
            if len(self._settled) >= MAX_SETTLED:
                self._settled.clear()
            self._settled.add(group_id)
            self._refused.pop(group_id, None)
        return ErrorCode.NONE

    def _refuse(self, group_id: str, reason: str) -> None:
        if len(group_id) <= MAX_SETTLED_CHARS:
            if len(self._refused) >= MAX_SETTLED:
                self._refused.clear()
            self._refused[group_id] = self._now_s() + AGAIN_S
        left_out = self._lines.allow(group_id)
        if left_out is not None:
            _log.warning(
                "group_not_adopted",
                group=group_id[:MAX_SETTLED_CHARS],
                reason=reason,
                consequence="its clients get COORDINATOR_NOT_AVAILABLE here and retry",
                left_out=left_out,
            )

    async def _adopt(self, group_id: str) -> None:
        coordinator = await self._groups.coordinator_of(group_id)
        if coordinator is None:
            return
        if await self._groups.has_members(coordinator, group_id):
            raise _NotNow("it has members at the upstream: stop them, or switch them to here")
        offsets = await self._groups.offsets(coordinator, group_id)
        if not offsets:
            return
        await self._topics.look_up({(each.topic, "") for each in offsets})
        by_name = self._image().by_name
        present = [
            each
            for each in offsets
            if each.topic in by_name and each.partition < by_name[each.topic].partitions
        ]
        if left_out := len(offsets) - len(present):
            _log.info("offsets_of_absent_topics_not_adopted", group=group_id, offsets=left_out)
        if present:
            await self._import(group_id, present)

    async def _import(self, group_id: str, offsets: list[UpstreamOffset]) -> None:
        result = await self._ask(import_request(group_id, offsets))
        assert isinstance(result, OffsetCommitResult)
        errors = {code for _, _, rows in result.topics or () for _, code in rows}
        for code in [result.error, *errors]:
            if code is not ErrorCode.NONE:
                if errors:  # some may be stored, and a part of a group would count as the group
                    await self._ask(DeleteGroup(group_id, OURSELVES))
                raise _NotNow(f"its {len(offsets)} offsets cannot be stored here: {code.name}")
        self.adopted += 1
        action = AdminAction(
            **of_client(OURSELVES),
            action="import",
            target=group_id,
            detail=f"offsets={len(offsets)}",
        )
        self._write_event([action])
        _log.info("group_adopted", group=group_id, offsets=len(offsets))

    async def _ask(self, request: Request) -> object:
        answer = Awaited()
        self._coordinator.submit(request, answer)
        return await answer.future


def import_request(group_id: str, offsets: list[UpstreamOffset]) -> OffsetCommit:
    """Return the commit that stores offsets as an administrator does."""
    by_topic: dict[str, list[CommitPartition]] = {}
    for topic, partition, offset, epoch, metadata in offsets:
        by_topic.setdefault(topic, []).append((partition, offset, epoch, metadata))
    topics: list[CommitTopic] = [(topic, "", rows) for topic, rows in by_topic.items()]
    return OffsetCommit(
        group_id=group_id,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=topics,
        by_topic_id=False,
        retention_ms=-1,
        absent_group_error=ErrorCode.GROUP_ID_NOT_FOUND,
        client=OURSELVES,
    )
