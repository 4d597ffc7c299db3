"""Tickets, which receive answers: one that is awaited, one of several, and a list of them.

Also the place that answers after the coordinator has stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests import Now, Request


class Ticket(Protocol):
    """Receives one answer.

    A ticket may also have ``abort()``. It is called instead of ``resolve`` if its request has met
    the same bug twice (docs/design.md#known-bugs). It closes the connection of the request.
    """

    def resolve(self, result: Any) -> None:
        """Receive the answer. Called exactly once, before ``submit`` returns or later."""
        ...


class Place(Protocol):
    """Where the requests for a shard or a group are submitted: a slot, or its stand-in."""

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        """Submit a request. Its ticket is resolved now or later."""
        ...


class Closed:
    """Replaces a shard once the coordinator stops, so that clients look for another coordinator."""

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        """Refuse the request at once."""
        ticket.resolve(request.refused(ErrorCode.NOT_COORDINATOR))


class Awaited:
    """A ticket whose answer is awaited."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def resolve(self, result: Any) -> None:
        if not self.future.done():  # the caller may have been cancelled
            self.future.set_result(result)


class Part:
    """The ticket of one of several questions. A common callback gets all the answers."""

    __slots__ = ("_answered", "_which")

    def __init__(self, answered: Callable[[Any, Any], None], which: object) -> None:
        """``answered`` is called with ``which`` and the answer."""
        self._answered = answered
        self._which = which

    def resolve(self, result: Any) -> None:
        self._answered(self._which, result)


class Many:
    """Collects the answers of several requests into a list, in their order."""

    def __init__(self, count: int, ticket: Ticket) -> None:
        self._results: list[Result | None] = [None] * count
        self._left = count
        self._ticket = ticket

    def begin(self, submit: Callable[[Request, Ticket], None], requests: Sequence[Request]) -> None:
        """Submit each request with a ticket of its own."""
        if not requests:
            self._ticket.resolve([])
        for position, request in enumerate(requests):
            submit(request, Part(self._answered, position))

    def _answered(self, position: int, result: Result) -> None:
        self._results[position] = result
        self._left -= 1
        if self._left == 0:
            self._ticket.resolve(self._results)
