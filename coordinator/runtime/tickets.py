"""Tickets and places of the in-process service: who awaits one answer, who collects several, and
who answers once the coordinator has stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests import Now, Request

if TYPE_CHECKING:
    from groupkeeper.coordinator.runtime.slot import Ticket


class ManyTicket(Protocol):
    """Whoever asked several things at once."""

    def resolve(self, result: Any) -> None:
        """Take the list of results, in the order of the requests."""
        ...


class Submits(Protocol):
    """Where the requests of a shard or of a group go."""

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        """Take a request; its ticket is resolved now or later."""
        ...


class Closed:
    """Stands where a shard was once the coordinator stops: clients look for another coordinator."""

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        """Answer at once."""
        ticket.resolve(request.refused(ErrorCode.NOT_COORDINATOR))


class Awaited:
    """A ticket for those who await."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        """Wait on the running loop."""
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def resolve(self, result: Any) -> None:
        """Wake who awaits."""
        if not self.future.done():  # the caller may have been cancelled
            self.future.set_result(result)


class _Part:
    """The ticket of one of several requests."""

    __slots__ = ("_many", "_position")

    def __init__(self, many: Many, position: int) -> None:
        self._many = many
        self._position = position

    def resolve(self, result: Result) -> None:
        self._many.take(self._position, result)


class Many:
    """Collects the answers of several requests."""

    def __init__(self, count: int, ticket: ManyTicket) -> None:
        """Resolve the ticket once ``count`` answers are there."""
        self._results: list[Result | None] = [None] * count
        self._left = count
        self._ticket = ticket

    def begin(self, submit: Callable[[Request, Ticket], None], requests: Sequence[Request]) -> None:
        """Submit each request with a ticket of its own."""
        if not requests:
            self._ticket.resolve([])
        for position, request in enumerate(requests):
            submit(request, _Part(self, position))

    def take(self, position: int, result: Result) -> None:
        """Keep the answer to the request at this position."""
        self._results[position] = result
        self._left -= 1
        if self._left == 0:
            self._ticket.resolve(self._results)
