"""The gate before the coordinator: requests of a group wait here for what only the upstream knows.

A commit or a subscription with a topic that the image lacks waits for one look-up. The first
request of an unknown group waits until it is adopted. While a request of a group waits, later
requests of the group wait behind it, so they keep their order, as a broker keeps it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, Protocol

import structlog

from groupkeeper.coordinator.cluster.group_configs import GroupConfigStore
from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.admin import ListGroups
from groupkeeper.coordinator.core.requests.consumer import ConsumerGroupHeartbeat
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.requests.transactions import TxnOffsetCommit
from groupkeeper.coordinator.gateway.observed_topics import ObservedTopics, TopicKey
from groupkeeper.coordinator.handlers.services import Coordinator
from groupkeeper.coordinator.runtime.listing import GroupsTicket
from groupkeeper.coordinator.runtime.tickets import Ticket

_log = structlog.get_logger("groupkeeper.gateway")

_NAMES_TOPICS: Final = frozenset({OffsetCommit, TxnOffsetCommit, ConsumerGroupHeartbeat})


class Admission(Protocol):
    """Decides about groups that we may not know yet (``adoption.Adoption``)."""

    def is_settled(self, group_id: str) -> bool:
        """Return True if requests of the group need not wait."""
        ...

    async def settle(self, group_id: str) -> ErrorCode:
        """Settle the group. Return NONE, or the error for all requests that wait for it."""
        ...


class GroupGate:
    """Passes requests to a coordinator, some of them later."""

    def __init__(
        self,
        coordinator: Coordinator,
        image: Callable[[], TopicImage],
        topics: ObservedTopics,
        admission: Admission | None = None,
    ) -> None:
        """``image`` returns the present topics. Without ``admission``, all groups are ours."""
        self._coordinator = coordinator
        self._image = image
        self._topics = topics
        self._admission = admission
        self._held: dict[str, list[tuple[Request, Ticket]]] = {}
        """Group -> its requests that wait, in order. The connections limit their number."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def group_configs(self) -> GroupConfigStore:
        """The configs that administrators have set for groups."""
        return self._coordinator.group_configs

    def submit_listing(self, request: ListGroups, ticket: GroupsTicket) -> Callable[[], None]:
        """Start a listing of groups. It waits for nothing."""
        return self._coordinator.submit_listing(request, ticket)

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Submit a request, now or when what it needs is known."""
        group_id = request.group_id
        if group_id is None:
            self._coordinator.submit(request, ticket)
            return
        held = self._held.get(group_id)
        if held is not None:
            held.append((request, ticket))
            return
        admission = self._admission
        is_settled = admission is None or admission.is_settled(group_id)
        if is_settled and not (type(request) in _NAMES_TOPICS and self._lacks(request)):
            self._coordinator.submit(request, ticket)
            return
        self._held[group_id] = [(request, ticket)]
        task = asyncio.get_running_loop().create_task(self._release(group_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _release(self, group_id: str) -> None:
        """Wait for what the requests of a group need, then submit them in order."""
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            error = await self._prepare(group_id)
        except Exception:  # noqa: BLE001 - no request may wait for ever
            _log.exception("group_not_prepared", group=group_id)
        finally:
            for request, ticket in self._held.pop(group_id):
                if error is ErrorCode.NONE:
                    self._coordinator.submit(request, ticket)
                else:
                    ticket.resolve(request.refused(error))

    async def _prepare(self, group_id: str) -> ErrorCode:
        admission = self._admission
        if admission is not None and not admission.is_settled(group_id):
            error = await admission.settle(group_id)
            if error is not ErrorCode.NONE:
                return error
        # Requests that come during a look-up may name other topics.
        examined = 0
        while examined < len(held := self._held[group_id]):
            lacking = {key for request, _ in held[examined:] for key in self._lacks(request)}
            examined = len(held)
            if lacking:
                await self._topics.look_up(lacking)
        return ErrorCode.NONE

    def _lacks(self, request: Any) -> Collection[TopicKey]:
        """Return the topics that a look-up may find."""
        image = self._image()
        lacking = [
            (name, topic_id)
            for name, topic_id in _topics_of(request)
            if (name not in image.by_name if name else topic_id not in image.by_id)
        ]
        return self._topics.worth_asking(lacking) if lacking else ()


def _topics_of(request: Any) -> Iterator[TopicKey]:
    kind = type(request)
    if kind is OffsetCommit or kind is TxnOffsetCommit:
        for name, topic_id, _ in request.topics:
            yield (name, "") if name else ("", topic_id)
    elif kind is ConsumerGroupHeartbeat and request.subscribed_topic_names:
        for name in request.subscribed_topic_names:
            yield name, ""
