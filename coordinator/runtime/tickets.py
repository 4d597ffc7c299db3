"""Tickets and places of the in-process service: who awaits one answer, who collects several, and
who answers once the coordinator has stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests import Now, Request


class Ticket(Protocol):
    """Whoever asked: takes one answer.

    A ticket may also have ``abort()``: called instead of ``resolve`` when its request has met the
    same bug of ours twice (docs/design.md#known-bugs), to close the connection that it came in on.
    """

    def resolve(self, result: Any) -> None:
        """Take the answer; called exactly once, before ``submit`` returns or later."""
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


class Part:
    """The ticket of one of several questions: whoever asked them all takes its answer."""

    __slots__ = ("_took", "_which")

    def __init__(self, took: Callable[[Any, Any], None], which: object) -> None:
        """``took`` is called with ``which`` and the answer."""
        self._took = took
        self._which = which

    def resolve(self, result: Any) -> None:
        """Pass the answer on."""
        self._took(self._which, result)


class Many:
    """Collects the answers of several requests into a list, in their order."""

    def __init__(self, count: int, ticket: Ticket) -> None:
        """Resolve the ticket once ``count`` answers are there."""
        self._results: list[Result | None] = [None] * count
        self._left = count
        self._ticket = ticket

    def begin(self, submit: Callable[[Request, Ticket], None], requests: Sequence[Request]) -> None:
        """Submit each request with a ticket of its own."""
        if not requests:
            self._ticket.resolve([])
        for position, request in enumerate(requests):
            submit(request, Part(self._take, position))

    def _take(self, position: int, result: Result) -> None:
        self._results[position] = result
        self._left -= 1
        if self._left == 0:
            self._ticket.resolve(self._results)
