"""Members of consumer groups. They follow the rules of Kafka's own client
(ConsumerMembershipManager, ConsumerHeartbeatRequestManager).

A client holds a partition from the answer that assigns it until the client gives it up. At the
latest, this is when the client reports its partitions without this one, learns that it was fenced,
or is removed.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.consumer import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupHeartbeat,
)
from tests.helpers.core.consumer_members import a_consumer_heartbeat

if TYPE_CHECKING:
    from tests.simulation.consumer_world import ConsumerWorld

REBALANCE_MS = 30_000
INTERVAL_S = 5.0

RETRIABLE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
OVER = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""Errors after which the client gives up all its partitions, and joins again."""

Held = set[tuple[str, int]]


class Disconnected(Exception):
    """There was no answer."""


class ConsumerClient:
    """One consumer. It keeps trying until it is stopped."""

    def __init__(
        self,
        world: ConsumerWorld,
        group_id: str,
        instance_id: str | None = None,
        topics: tuple[str, ...] = (),
        pattern: str | None = None,
    ) -> None:
        self.world = world
        self.group_id = group_id
        self.instance_id = instance_id
        self.topics = topics
        self.pattern = pattern
        self.member_id = world.mint("member")
        self.epoch = JOIN_EPOCH
        self.held: Held = set()
        self.is_fenced = False
        """True if another client came with its instance id."""
        self._client = Client(world.mint("client"), "/10.0.0.1")
        self._assigned: Held | None = None
        """The target from the last answer, until the client has given up all partitions that are
        not in it."""
        self._revoked_at_s = 0.0
        """The time at which its user has finished with the partitions to give up."""
        self._must_report = False
        self._is_full = True
        """True if the next heartbeat has all fields: the first one, and one after a failure."""
        self._task = asyncio.ensure_future(self._run())

    def subscribe(self, topics: tuple[str, ...], pattern: str | None) -> None:
        """Change its subscription. The next heartbeat has all fields."""
        self.topics, self.pattern = topics, pattern
        self._is_full = True

    def reads(self, topic: str) -> bool:
        """Return whether it subscribes to a topic."""
        return topic in self.topics or re.fullmatch(self.pattern or "", topic) is not None

    async def crash(self) -> None:
        """End without a request. Its session has to expire."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._abandon()

    async def leave(self) -> None:
        """End as a client that is closed properly."""
        is_member = self.epoch > JOIN_EPOCH
        await self.crash()
        if is_member:
            epoch = LEAVE_EPOCH if self.instance_id is None else STATIC_LEAVE_EPOCH
            with suppress(Disconnected):
                await self.world.ask(self._request(epoch))

    def failure(self) -> BaseException | None:
        """Return the error that ended this client, or None."""
        if not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()

    def removed(self) -> None:
        """Note that the group has removed this client. Other members may now get its partitions."""
        self.world.released(self, self.held)

    async def _run(self) -> None:
        random = self.world.random
        while not self.is_fenced:
            self._give_up_in_time()
            try:
                result = await self.world.ask(self._heartbeat())
                if self.world.is_unlucky(0.03):
                    raise Disconnected  # the answer is lost
            except Disconnected:
                self._is_full = True
                await asyncio.sleep(random.uniform(0.1, 1.0))
                continue
            await self._react(result)
            if not self._must_report:
                await asyncio.sleep(INTERVAL_S * random.uniform(0.9, 1.1))
            if self.world.is_unlucky(0.01):  # its machine is paused
                await asyncio.sleep(random.uniform(1, 90))

    def _heartbeat(self) -> ConsumerGroupHeartbeat:
        is_full = self._is_full or self.epoch == JOIN_EPOCH
        states_owned = is_full or self._must_report
        self._is_full = self._must_report = False
        fields: dict[str, Any] = {}
        if is_full:
            fields = {
                "rebalance_timeout_ms": REBALANCE_MS,
                "subscribed_topic_names": self.topics,
                "subscribed_topic_regex": self.pattern or "",
            }
        if states_owned:
            fields["owned"] = self._owned()
        return self._request(self.epoch, **fields)

    def _request(self, epoch: int, **fields: Any) -> ConsumerGroupHeartbeat:
        request: ConsumerGroupHeartbeat = a_consumer_heartbeat(
            self.group_id,
            self.member_id,
            member_epoch=epoch,
            group_instance_id=self.instance_id,
            new_member_id="",
            client=self._client,
            **fields,
        )
        return request

    def _owned(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        topics = sorted({topic for topic, _ in self.held})
        return tuple((t, tuple(sorted(n for each, n in self.held if each == t))) for t in topics)

    async def _react(self, result: Any) -> None:
        code = result.error
        if code is ErrorCode.NONE:
            self._take(result)
        elif code in RETRIABLE:
            self._is_full = True
            await asyncio.sleep(self.world.random.uniform(0.1, 0.5))
        elif code in OVER:
            if code is ErrorCode.GROUP_ID_NOT_FOUND and self.epoch == JOIN_EPOCH:
                self.world.refused(self)
            self._abandon()
        elif code is ErrorCode.UNRELEASED_INSTANCE_ID:
            await asyncio.sleep(1)  # its user starts it again
        else:
            assert code is ErrorCode.FENCED_INSTANCE_ID, code
            self._abandon()
            self.is_fenced = True

    def _take(self, result: Any) -> None:
        if self.epoch > JOIN_EPOCH:
            told = result.member_epoch
            assert told >= self.epoch, f"{self.member_id}: from epoch {self.epoch} back to {told}"
        self.epoch = result.member_epoch
        if result.assignment is None:
            return
        self._assigned = {(topic, n) for topic, numbers in result.assignment for n in numbers}
        new = self._assigned - self.held
        self.world.took(self, new)
        self.held |= new
        self._must_report = bool(new)
        if self.held != self._assigned:  # its user has something to finish first
            self._revoked_at_s = self.world.now_s() + self.world.user_takes_s()

    def _give_up_in_time(self) -> None:
        """Give up the partitions that are not in the target, once its user has finished. The next
        heartbeat reports this.
        """
        if self._assigned is None or self.world.now_s() < self._revoked_at_s:
            return
        gone = self.held - self._assigned
        self._assigned = None
        if gone:
            self.held -= gone
            self.world.released(self, gone)
            self._must_report = True

    def _abandon(self) -> None:
        self.world.released(self, self.held)
        self.held = set()
        self._assigned = None
        self.epoch = JOIN_EPOCH
