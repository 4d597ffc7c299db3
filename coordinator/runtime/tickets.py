"""Tickets. A ticket receives the answer to one request. There are tickets for an answer that a
coroutine awaits, for one of several answers, and for a list of answers.

``Closed`` refuses requests after the coordinator has stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.requests.admin import DeleteGroup, PartlyDeleted
from groupkeeper.coordinator.core.requests.request import Request


class Ticket(Protocol):
    """Receives one answer.

    A ticket may also have ``abort()``, which closes the connection of the request. It is called
    instead of ``resolve`` if the request has caused an exception in the core twice
    (docs/design.md#known-bugs).
    """

    def resolve(self, result: Any) -> None:
        """Receive the answer. Called exactly once, before ``submit`` returns or later."""
        ...


class Place(Protocol):
    """Receives the requests for a shard or a group. It is a slot (which holds a shard) or a
    substitute for a slot.
    """

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        """Submit a request. Its ticket is resolved now or later."""
        ...


class Closed:
    """Takes the place of a shard after the coordinator has stopped. Its refusals make clients look
    for another coordinator.
    """

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        """Refuse the request at once."""
        ticket.resolve(request.refused(ErrorCode.NOT_COORDINATOR))


class Awaited:
    """A ticket whose answer a coroutine awaits in ``future``."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def resolve(self, result: Any) -> None:
        if not self.future.done():  # the caller may have been cancelled
            self.future.set_result(result)


class Part:
    """The ticket of one of several requests. One callback gets the answers to all of them."""

    __slots__ = ("_answered", "_which")

    def __init__(self, answered: Callable[[Any, Any], None], which: object) -> None:
        """``answered`` is called with ``which`` and the answer."""
        self._answered = answered
        self._which = which

    def resolve(self, result: Any) -> None:
        self._answered(self._which, result)


class Whole:
    """The ticket of a deletion that needs several requests, because each request deletes only some
    of the offsets.

    It submits the request again until nothing is left to delete. So ``ticket`` gets one answer to
    the whole deletion.
    """

    __slots__ = ("_request", "_submit", "_ticket")

    def __init__(
        self, submit: Callable[[Request, Ticket], None], request: Request, ticket: Ticket
    ) -> None:
        self._submit = submit
        self._request = request
        self._ticket = ticket

    def resolve(self, result: Any) -> None:
        if not isinstance(result, PartlyDeleted):
            self._ticket.resolve(result)
        elif result.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._submit(self._request, self)
        else:  # its shard was dropped before the portion was durable
            self._ticket.resolve(self._request.refused(result.error))


def whole(submit: Callable[[Request, Ticket], None], request: Request, ticket: Ticket) -> Ticket:
    """Return the ticket with which to submit a request. If the request needs several repetitions,
    ``ticket`` gets one answer to all repetitions.
    """
    return Whole(submit, request, ticket) if isinstance(request, DeleteGroup) else ticket


class Many:
    """Collects the answers to several requests into a list, in the order of the requests.
    ``ticket`` gets the list.
    """

    def __init__(self, count: int, ticket: Ticket) -> None:
        self._results: list[Result | None] = [None] * count
        self._left = count
        self._ticket = ticket

    def begin(self, submit: Callable[[Request, Ticket], None], requests: Sequence[Request]) -> None:
        """Submit each request with its own ticket. The list is ready after the last answer."""
        if not requests:
            self._ticket.resolve([])
        for position, request in enumerate(requests):
            submit(request, whole(submit, request, Part(self._answered, position)))

    def _answered(self, position: int, result: Result) -> None:
        self._results[position] = result
        self._left -= 1
        if self._left == 0:
            self._ticket.resolve(self._results)
