"""Adoption: at the first request for a group that we do not know, we look for it in the upstream.

The upstream is the Kafka cluster behind the gateway. If the group has members there, we refuse its
requests until they have left. So no group has members in both clusters while clients are switched
one by one. Otherwise we copy its offsets in several commits. A mark in the group's shard is written
before the first commit, and another one after the last (docs/design.md#adoption). If only the first
mark is there after a crash, we delete the copied offsets, and adopt the group again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import structlog

from groupkeeper.coordinator.cluster.topics import OURSELVES
from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import AdminAction, Event, of_client
from groupkeeper.coordinator.core.groups.group import (
    GROUP_OVERHEAD_BYTES,
    offset_bytes,
    topic_bytes,
)
from groupkeeper.coordinator.core.records import ADOPTION_BEGUN, GROUP_REMOVED
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.adoption import (
    MarkAdoption,
    ReadAdoption,
    ReadAdoptionResult,
)
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
from groupkeeper.coordinator.runtime.tickets import Awaited, Ticket, whole

AGAIN_S: Final = 1.0
"""A group that was refused is looked up again after this time. Clients retry every 100 ms."""
FAILED_AGAIN_S: Final = 60.0
"""A group whose offsets cannot be stored here is tried again after this time. Each attempt may have
to delete what it has stored."""
MAX_PORTION_BYTES: Final = 131_072
"""The largest number of bytes of one commit of an adoption: about 1,000 offsets. Every store can
write this much in one step, and other groups do not have to wait long.
"""
MAX_SETTLED: Final = 100_000
"""The largest number of groups that are remembered as settled: their requests need not ask the
upstream (``Adoption.is_settled``). If there are more, all are forgotten. Each is then checked again
at its next request, which is cheap.
"""
MAX_SETTLED_CHARS: Final = 128
"""Groups with longer ids are not remembered, but looked up each time. A client may send 32,767
bytes, and 100,000 such ids would need 3 GB."""
LOG_EVERY_S: Final = 60.0
LINES_PER_WINDOW: Final = 10
"""The largest number of log lines about refused groups in ``LOG_EVERY_S``. While the upstream is
away, every group is refused."""

_log = structlog.get_logger("groupkeeper.gateway")


class Submits(Protocol):
    """The coordinator itself, without the gate in front of it (``gate.GroupGate``)."""

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Submit a request. The ticket gets the answer."""
        ...


class _NotNow(Exception):
    """The group cannot be adopted now. The message is one line for a person."""

    again_s = AGAIN_S


class _NotStored(_NotNow):
    """The offsets of the group cannot be stored here."""

    again_s = FAILED_AGAIN_S


class Adoption:
    """Copies the offsets of groups from the upstream. At most one ``settle`` of a group may run at
    a time.
    """

    def __init__(  # noqa: PLR0913 - the parts that it connects
        self,
        coordinator: Submits,
        groups: UpstreamGroups,
        topics: ObservedTopics,
        image: Callable[[], TopicImage],
        write_event: Callable[[list[Event]], bool],
        max_group_bytes: int,
        *,
        adopts: bool = True,
    ) -> None:
        """``write_event`` adds events to the event log. Without ``adopts``, only adoptions that an
        earlier run has begun are completed.
        """
        self._coordinator = coordinator
        self._groups = groups
        self._topics = topics
        self._image = image
        self._write_event = write_event
        self._max_group_bytes = max_group_bytes
        self._adopts = adopts
        self._settled: set[str] = set()
        self._refused: dict[str, float] = {}
        """Group -> until when, by the loop's clock, it is refused without asking the upstream."""
        loop = asyncio.get_running_loop()
        self._now_s = loop.time
        self._lines = LinesOfMany(loop.time, LOG_EVERY_S, LOG_EVERY_S, LINES_PER_WINDOW)
        self.adopted = 0
        """The number of groups whose offsets were copied since the start."""

    def is_settled(self, group_id: str) -> bool:
        """Return True if requests of the group need not ask the upstream: the group is here, or
        exists nowhere.
        """
        return group_id in self._settled

    async def settle(self, group_id: str) -> ErrorCode:
        """Adopt the group if it is unknown here. Return NONE, or an error if its clients must
        retry.
        """
        if self._refused.get(group_id, 0.0) > self._now_s():
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            found = await self._ask(ReadAdoption(group_id))
            assert isinstance(found, ReadAdoptionResult)
            if found.error is not ErrorCode.NONE:
                return ErrorCode.NONE  # the shard is loading; its answers tell the clients
            is_begun = found.state == ADOPTION_BEGUN
            is_new = not found.exists and found.state != GROUP_REMOVED
            if is_begun or (self._adopts and is_new):
                await self._adopt(group_id, is_begun=is_begun)
        except (BrokerError, GroupsError, _NotNow) as error:
            self._refuse(group_id, str(error), getattr(error, "again_s", AGAIN_S))
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if len(group_id) <= MAX_SETTLED_CHARS:
            if len(self._settled) >= MAX_SETTLED:
                self._settled.clear()
            self._settled.add(group_id)
            self._refused.pop(group_id, None)
        return ErrorCode.NONE

    def _refuse(self, group_id: str, reason: str, again_s: float) -> None:
        if len(group_id) <= MAX_SETTLED_CHARS:
            if len(self._refused) >= MAX_SETTLED:
                self._refused.clear()
            self._refused[group_id] = self._now_s() + again_s
        left_out = self._lines.allow(group_id)
        if left_out is not None:
            _log.warning(
                "group_not_adopted",
                group=group_id[:MAX_SETTLED_CHARS],
                reason=reason,
                consequence="its clients get COORDINATOR_NOT_AVAILABLE here and retry",
                left_out=left_out,
            )

    async def _adopt(self, group_id: str, *, is_begun: bool) -> None:
        offsets = await self._offsets(group_id)
        if is_begun:
            await self._delete(group_id)  # offsets that the earlier attempt has stored
        if offsets:
            self._check_size(group_id, offsets)
            await self._mark(group_id, begins=True)
            await self._import(group_id, offsets)
        if offsets or is_begun:
            await self._mark(group_id, begins=False)
        if offsets:
            self._adopted(group_id, len(offsets))

    async def _offsets(self, group_id: str) -> list[UpstreamOffset]:
        """Return the group's offsets in the upstream, without those of topics that do not exist.
        Raises _NotNow if the group has members there.
        """
        coordinator = await self._groups.coordinator_of(group_id)
        if coordinator is None:
            return []
        if await self._groups.has_members(coordinator, group_id):
            raise _NotNow("it has members at the upstream: stop them, or switch them to here")
        offsets = await self._groups.offsets(coordinator, group_id)
        if not offsets:
            return []
        await self._topics.look_up({(each.topic, "") for each in offsets})
        by_name = self._image().by_name
        present = [
            each
            for each in offsets
            if each.topic in by_name and each.partition < by_name[each.topic].partitions
        ]
        if left_out := len(offsets) - len(present):
            _log.info("offsets_of_absent_topics_not_adopted", group=group_id, offsets=left_out)
        return present

    def _check_size(self, group_id: str, offsets: list[UpstreamOffset]) -> None:
        size_bytes = GROUP_OVERHEAD_BYTES + 6 * len(group_id)
        size_bytes += sum(topic_bytes(topic) for topic in {each.topic for each in offsets})
        size_bytes += sum(offset_bytes(each.metadata) for each in offsets)
        if size_bytes > self._max_group_bytes:
            raise _NotStored(
                f"its {len(offsets)} offsets may need {size_bytes} bytes here, and "
                f"storage.max_group_bytes is {self._max_group_bytes}: raise it, or delete offsets "
                "that nobody needs at the upstream"
            )

    async def _import(self, group_id: str, offsets: list[UpstreamOffset]) -> None:
        for portion in portions(offsets):
            result = await self._ask(import_request(group_id, portion))
            assert isinstance(result, OffsetCommitResult)
            errors = {code for _, _, rows in result.topics or () for _, code in rows}
            for code in [result.error, *errors]:
                if code is not ErrorCode.NONE:
                    # The mark stays, so a part of the group never counts as the group.
                    await self._delete(group_id)
                    raise _NotStored(f"an offset cannot be stored here: {code.name}")

    async def _delete(self, group_id: str) -> None:
        error = await self._ask(DeleteGroup(group_id, OURSELVES))
        if error not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            assert isinstance(error, ErrorCode)
            raise _NotNow(f"a part of it cannot be deleted here: {error.name}")

    async def _mark(self, group_id: str, *, begins: bool) -> None:
        error = await self._ask(MarkAdoption(group_id, begins))
        if error is not ErrorCode.NONE:
            assert isinstance(error, ErrorCode)
            raise _NotNow(f"it cannot be stored here: {error.name}")

    def _adopted(self, group_id: str, count: int) -> None:
        self.adopted += 1
        action = AdminAction(
            **of_client(OURSELVES),
            action="import",
            target=group_id,
            detail=f"offsets={count}",
        )
        self._write_event([action])
        _log.info("group_adopted", group=group_id, offsets=count)

    async def _ask(self, request: Request) -> object:
        answer = Awaited()
        submit = self._coordinator.submit
        submit(request, whole(submit, request, answer))
        return await answer.future


def portions(offsets: list[UpstreamOffset]) -> Iterator[list[UpstreamOffset]]:
    """Yield the offsets in portions that are small enough for one commit each."""
    portion: list[UpstreamOffset] = []
    left_bytes = MAX_PORTION_BYTES
    for each in offsets:
        left_bytes -= offset_bytes(each.metadata) + topic_bytes(each.topic)
        if portion and left_bytes < 0:
            yield portion
            portion = []
            left_bytes = MAX_PORTION_BYTES - offset_bytes(each.metadata) - topic_bytes(each.topic)
        portion.append(each)
    if portion:
        yield portion


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
