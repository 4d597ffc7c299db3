"""Tickets and places of the in-process service: who awaits one answer, who collects several, and
who answers once the coordinator has stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from coordinator.core.errors import ErrorCode
from coordinator.core.requests import ListGroups, ListGroupsResult, Now, Request, Result
from coordinator.runtime.refusals import refuse

if TYPE_CHECKING:
    from coordinator.runtime.clock import Clock
    from coordinator.runtime.slot import Ticket

LISTING_SLICE_S: Final = 0.002
"""What one turn of the loop may spend on listing groups."""


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
        ticket.resolve(refuse(request, ErrorCode.NOT_COORDINATOR))


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


class Listing:
    """A ListGroups over all shards, a few at a time so that the loop stays free."""

    def __init__(
        self,
        request: ListGroups,
        ticket: Ticket,
        places: Sequence[Submits],
        clock: Clock,
        timer: Callable[[], float],
    ) -> None:
        """Ask nobody yet."""
        self._request = request
        self._places = places
        self._clock = clock
        self._timer = timer
        self._next = 0
        self._ticket = ticket
        self._parts = Many(len(places), self)

    def advance(self) -> None:
        """Ask the next shards."""
        until = self._timer() + LISTING_SLICE_S
        while self._next < len(self._places):
            position = self._next
            self._next += 1
            part = _Part(self._parts, position)
            self._places[position].submit(self._request, part, self._clock.now())
            if self._timer() >= until and self._next < len(self._places):
                asyncio.get_running_loop().call_soon(self.advance)
                return

    def resolve(self, results: list[ListGroupsResult]) -> None:
        """All have answered. A shard that was dropped meanwhile is skipped, as Kafka skips one that
        moved, and the answer says so; one that is loading makes the whole answer wait (spec 11.1).
        """
        del self._parts  # it holds us and all answers: only the garbage collector would end that
        is_whole = all(result.error is not ErrorCode.NOT_COORDINATOR for result in results)
        for result in results:
            if result.error not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                self._ticket.resolve(ListGroupsResult(result.error))
                return
        groups = tuple(group for result in results for group in result.groups)
        self._ticket.resolve(ListGroupsResult(ErrorCode.NONE, groups, is_whole))
