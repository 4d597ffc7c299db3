"""Lists the groups of all shards (ListGroups). It works in short slices, so that no number of
groups blocks the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.admin import ListedGroup, ListGroups, ListGroupsResult
from groupkeeper.coordinator.runtime.tickets import Part

if TYPE_CHECKING:
    from groupkeeper.coordinator.runtime.clock import Clock
    from groupkeeper.coordinator.runtime.tickets import Place, Ticket

SLICE_S: Final = 0.002
"""How long a listing asks shards in one iteration of the event loop."""

MAX_ASKED: Final = 32
"""The largest number of questions (ListGroups requests to a shard) of one listing that wait for an
answer. One append may answer all of them, with up to 2,000 groups each."""

MAX_LISTINGS: Final = 4
"""The largest number of listings that run at the same time. A listing of a million groups keeps 16
MB of names. A listing that waits costs nothing."""

ASKED_AGAIN: Final = 2_000
"""The largest number of groups in one question. The first question to a shard names no groups. If
the shard has too many for one answer, the later questions name the others."""


class GroupsTicket(Protocol):
    """Receives the groups of a listing in parts, and then its end."""

    def receive(self, groups: Sequence[ListedGroup]) -> bool:
        """Receive some of the groups. If it returns False, the listing ends without a call of
        ``resolve``.
        """
        ...

    def resolve(self, result: ListGroupsResult) -> None:
        """Receive the end of the listing. Its ``groups`` are empty, because ``receive`` has got all
        of them.

        If the result has an error, the groups received before are not valid.
        """
        ...


class Collected:
    """Collects all groups for a caller that wants one answer."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket
        self._groups: list[ListedGroup] = []

    def receive(self, groups: Sequence[ListedGroup]) -> bool:
        self._groups += groups
        return True

    def resolve(self, result: ListGroupsResult) -> None:
        groups = () if result.error else tuple(self._groups)
        self._ticket.resolve(ListGroupsResult(result.error, groups, result.is_whole))


class Listings:
    """Starts the listings of one coordinator in order, a few at a time."""

    def __init__(self, clock: Clock, timer: Callable[[], float]) -> None:
        self.clock = clock
        self.timer = timer
        self._running = 0
        self._waiting: deque[Listing] = deque()

    def begin(
        self, request: ListGroups, ticket: GroupsTicket, places: Sequence[Place]
    ) -> Callable[[], None]:
        """Queue a listing. Return a function that cancels it. ``places`` has a ``Place`` for each
        shard, which receives the requests for the shard.
        """
        listing = Listing(request, ticket, places, self)
        self._waiting.append(listing)
        self._start_next()
        return listing.cancel

    def ended(self) -> None:
        """Count a listing as ended, and start the next one that waits."""
        self._running -= 1
        self._start_next()

    def _start_next(self) -> None:
        while self._waiting and self._running < MAX_LISTINGS:
            listing = self._waiting.popleft()
            if not listing.is_over:
                self._running += 1
                listing.start()


class Listing:
    """One listing of the groups of all shards.

    Each shard fixes its list of groups when it is first asked. A group that exists during the whole
    listing is listed, and no group is listed twice.
    """

    def __init__(
        self,
        request: ListGroups,
        ticket: GroupsTicket,
        places: Sequence[Place],
        listings: Listings,
    ) -> None:
        self.is_over = False
        self._request = request
        self._ticket = ticket
        self._listings = listings
        self._clock, self._timer = listings.clock, listings.timer
        self._questions: deque[tuple[Place, tuple[str, ...] | None]] = deque(
            (place, None) for place in places
        )
        self._asked = 0
        self._is_whole = True
        self._started = self._asking = self._scheduled = False

    def start(self) -> None:
        """Ask the first shards."""
        self._started = True
        self._ask()

    def cancel(self) -> None:
        """End the listing without an answer."""
        if not self.is_over:
            self._end()

    def _answered(self, place: Place, result: ListGroupsResult) -> None:
        """Process the answer of a shard (docs/spec/administration.md#list-groups).

        As in Kafka, a shard that was dropped before its answer is skipped, and ``is_whole`` of the
        result is False. The refusal of a LOADING shard ends the whole listing.
        """
        self._asked -= 1
        if self.is_over:
            return
        if result.error is ErrorCode.NOT_COORDINATOR:
            self._is_whole = False
        elif result.error is not ErrorCode.NONE:
            self._end(ListGroupsResult(result.error))
            return
        elif not self._ticket.receive(result.groups):
            self._end()
            return
        left = result.left
        for start in range(0, len(left), ASKED_AGAIN):
            self._questions.append((place, left[start : start + ASKED_AGAIN]))
        if not self._asking:
            self._continue()

    def _ask(self) -> None:
        self._scheduled = False
        until_s = self._timer() + SLICE_S
        self._asking = True
        while self._questions and self._asked < MAX_ASKED and not self.is_over:
            place, among = self._questions.popleft()
            self._asked += 1
            request = ListGroups(self._request.states, self._request.types, among)
            place.submit(request, Part(self._answered, place), self._clock.now())
            if self._timer() >= until_s:
                break
        self._asking = False
        if not self.is_over:
            self._continue()

    def _continue(self) -> None:
        if not self._questions and not self._asked:
            self._end(ListGroupsResult(ErrorCode.NONE, (), self._is_whole))
        elif self._questions and self._asked < MAX_ASKED and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._ask)

    def _end(self, result: ListGroupsResult | None = None) -> None:
        self.is_over = True
        self._questions.clear()
        if result is not None:
            self._ticket.resolve(result)
        del self._ticket
        if self._started:
            self._listings.ended()
