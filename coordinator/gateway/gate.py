"""The gate before the coordinator. A request waits here if it needs an answer of the upstream.

The upstream is the Kafka cluster behind the gateway.

A commit or a subscription with an unknown topic waits for one look-up of this topic. The first
request of an unknown group waits until the group is adopted: its offsets are copied from the
upstream (``adoption``). Later requests of the group wait too, so that they keep their order, as in
a broker.

An OffsetFetch that does not require stable offsets waits until the transactions that have ended are
known (docs/design.md#journal).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from typing import Any, Final, Protocol

import msgspec
import structlog

from groupkeeper.coordinator.cluster.group_configs import GroupConfigStore
from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.admin import ListGroups
from groupkeeper.coordinator.core.requests.consumer import ConsumerGroupHeartbeat
from groupkeeper.coordinator.core.requests.offsets import (
    OffsetCommit,
    OffsetFetch,
    OffsetFetchResult,
)
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.requests.transactions import TxnOffsetCommit
from groupkeeper.coordinator.core.stored_topics import StoredTopics
from groupkeeper.coordinator.gateway.observed_topics import ObservedTopics, TopicKey
from groupkeeper.coordinator.handlers.services import Coordinator
from groupkeeper.coordinator.runtime.listing import GroupsTicket
from groupkeeper.coordinator.runtime.tickets import Ticket

_log = structlog.get_logger("groupkeeper.gateway")

_NAMES_TOPICS: Final = frozenset({OffsetCommit, TxnOffsetCommit, ConsumerGroupHeartbeat})


class Admission(Protocol):
    """Decides whether requests of a group may be served, or must wait (``adoption.Adoption``)."""

    def is_settled(self, group_id: str) -> bool:
        """Return True if requests of the group need not wait."""
        ...

    async def settle(self, group_id: str) -> ErrorCode:
        """Find out whether we may serve the group, and adopt it if it is unknown. Return NONE, or
        the error for all requests that wait for this.
        """
        ...


class GroupGate:
    """Passes requests to a coordinator, some of them after a wait."""

    def __init__(
        self,
        coordinator: Coordinator,
        image: Callable[[], TopicImage],
        topics: ObservedTopics,
        admission: Admission | None = None,
    ) -> None:
        """``image`` returns the present topics. Without ``admission``, every group may
        be served.
        """
        self._coordinator = coordinator
        self._image = image
        self._topics = topics
        self._admission = admission
        self._held: dict[str, list[tuple[Request, Ticket]]] = {}
        """Group -> its requests that wait, in order. The connections limit their number."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.catch_up: Callable[[str], Awaitable[bool]] | None = None
        """Waits until a group has the offsets of all transactions that have ended before the call.
        Returns False if that takes too long. None if there are no transactions."""

    @property
    def group_configs(self) -> GroupConfigStore:
        """The configs that administrators have set for groups."""
        return self._coordinator.group_configs

    def submit_listing(self, request: ListGroups, ticket: GroupsTicket) -> Callable[[], None]:
        """Start a listing of groups at once, without a wait at the gate. Return a function that
        cancels the listing.
        """
        return self._coordinator.submit_listing(request, ticket)

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Submit a request, now or after the look-ups that it needs."""
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
            self._pass(request, ticket)
            return
        self._held[group_id] = [(request, ticket)]
        self._spawn(self._release(group_id))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _pass(self, request: Request, ticket: Ticket) -> None:
        if (
            type(request) is OffsetFetch
            and not request.require_stable
            and self.catch_up is not None
        ):
            stable = msgspec.structs.replace(request, require_stable=True)
            self._coordinator.submit(stable, _StableFirst(self._fetch_later, request, ticket))
        else:
            self._coordinator.submit(request, ticket)

    def _fetch_later(self, request: OffsetFetch, ticket: Ticket, *, waits: bool) -> None:
        if waits:
            self._spawn(self._fetch_caught_up(request, ticket))
        else:
            self._coordinator.submit(request, ticket)

    async def _fetch_caught_up(self, request: OffsetFetch, ticket: Ticket) -> None:
        is_known = False
        try:
            assert self.catch_up is not None
            is_known = await self.catch_up(request.group_id)
        except Exception:  # noqa: BLE001 - no request may wait for ever
            _log.exception("group_not_prepared", group=request.group_id)
        finally:
            if is_known:
                self._coordinator.submit(request, ticket)
            else:
                ticket.resolve(request.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

    async def _release(self, group_id: str) -> None:
        """Wait for the look-ups that the requests of a group need, then submit them in order."""
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            error = await self._prepare(group_id)
        except Exception:  # noqa: BLE001 - no request may wait for ever
            _log.exception("group_not_prepared", group=group_id)
        finally:
            for request, ticket in self._held.pop(group_id):
                if error is ErrorCode.NONE:
                    self._pass(request, ticket)
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
        """Return the topics of a request that we do not know, and that a look-up may find."""
        image = self._image()
        lacking = [
            (name, topic_id)
            for name, topic_id in _topics_of(request)
            if (name not in image.by_name if name else topic_id not in image.by_id)
        ]
        return self._topics.worth_asking(lacking) if lacking else ()


class _StableFirst:
    """The ticket of an OffsetFetch that asks for stable offsets, although its client did not.

    If all offsets are stable, the client gets the answer. Otherwise a transaction may have ended
    whose end the group has not read yet. Then the request is repeated after a wait.
    """

    def __init__(self, fetch: Callable[..., None], request: OffsetFetch, ticket: Ticket) -> None:
        self._fetch = fetch
        self._request = request
        self._ticket = ticket

    def resolve(self, result: OffsetFetchResult) -> None:
        if _is_unstable(result):
            self._fetch(self._request, self._ticket, waits=True)
        elif result.error is ErrorCode.NOT_COORDINATOR:  # the client's request gets another error
            self._fetch(self._request, self._ticket, waits=False)
        else:
            self._ticket.resolve(result)

    def abort(self) -> None:
        self._fetch(self._request, self._ticket, waits=False)


def _is_unstable(result: OffsetFetchResult) -> bool:
    if isinstance(result.topics, StoredTopics):
        return result.topics.has_unstable
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    return any(row[4] is unstable for _, _, rows in result.topics for row in rows)


def _topics_of(request: Any) -> Iterator[TopicKey]:
    kind = type(request)
    if kind is OffsetCommit or kind is TxnOffsetCommit:
        for name, topic_id, _ in request.topics:
            yield (name, "") if name else ("", topic_id)
    elif kind is ConsumerGroupHeartbeat and request.subscribed_topic_names:
        for name in request.subscribed_topic_names:
            yield name, ""
