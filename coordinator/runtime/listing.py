"""ListGroups over all shards: a little in each turn of the loop, whatever the number of groups."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests import ListedGroup, ListGroups, ListGroupsResult
from groupkeeper.coordinator.runtime.tickets import Part

if TYPE_CHECKING:
    from groupkeeper.coordinator.runtime.clock import Clock
    from groupkeeper.coordinator.runtime.tickets import Submits, Ticket

SLICE_S: Final = 0.002
"""What one turn of the loop may spend on asking shards."""

MAX_ASKED: Final = 32
"""Questions of one listing that wait for their answers. One append may bring all of these, of up to
2,000 groups each.
"""

MAX_LISTINGS: Final = 4
"""At the same time. One over a million groups keeps 16 MB of names; others wait, and cost nothing
meanwhile.
"""

ASKED_AGAIN: Final = 2_000
"""Names in one further question to a shard."""


class TakesGroups(Protocol):
    """Who asked for a listing."""

    def take(self, groups: Sequence[ListedGroup]) -> bool:
        """Take some of the groups; False: no more are wanted, nor the end."""
        ...

    def resolve(self, result: ListGroupsResult) -> None:
        """Take the end; its ``groups`` were all taken before. With an error, none of them count."""
        ...


class Collected:
    """Takes all groups for who wants one answer."""

    def __init__(self, ticket: Ticket) -> None:
        """Resolve the ticket with all groups."""
        self._ticket = ticket
        self._groups: list[ListedGroup] = []

    def take(self, groups: Sequence[ListedGroup]) -> bool:
        """Keep them."""
        self._groups += groups
        return True

    def resolve(self, result: ListGroupsResult) -> None:
        """Answer."""
        groups = () if result.error else tuple(self._groups)
        self._ticket.resolve(ListGroupsResult(result.error, groups, result.is_whole))


class Listings:
    """The listings of one coordinator, a few at a time, in their order."""

    def __init__(self, clock: Clock, timer: Callable[[], float]) -> None:
        """None yet."""
        self._clock = clock
        self._timer = timer
        self._running = 0
        self._waiting: deque[Listing] = deque()

    def begin(
        self, request: ListGroups, taker: TakesGroups, places: Sequence[Submits]
    ) -> Callable[[], None]:
        """Begin, perhaps later; return what cancels it."""
        listing = Listing(request, taker, places, self)
        self._waiting.append(listing)
        self._start_next()
        return listing.cancel

    def now_and_timer(self) -> tuple[Clock, Callable[[], float]]:
        """What a listing goes by."""
        return self._clock, self._timer

    def ended(self) -> None:
        """One of those that were started has ended."""
        self._running -= 1
        self._start_next()

    def _start_next(self) -> None:
        while self._waiting and self._running < MAX_LISTINGS:
            listing = self._waiting.popleft()
            if not listing.is_over:
                self._running += 1
                listing.start()


class Listing:
    """One listing. Each shard says which groups it has when it is first asked: one that exists
    from before the listing to its end is listed, and none is listed twice.
    """

    def __init__(
        self,
        request: ListGroups,
        taker: TakesGroups,
        places: Sequence[Submits],
        listings: Listings,
    ) -> None:
        """Ask nobody yet."""
        self.is_over = False
        self._request = request
        self._taker = taker
        self._listings = listings
        self._clock, self._timer = listings.now_and_timer()
        self._questions: deque[tuple[Submits, tuple[str, ...] | None]] = deque(
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
        """Nobody wants it any more."""
        if not self.is_over:
            self._end()

    def _took(self, place: Submits, result: ListGroupsResult) -> None:
        """Take the answer of a shard. One that was dropped meanwhile is skipped, as Kafka skips one
        that moved, and the end says so; one that is loading refuses the whole
        (docs/spec/administration.md#list-groups).
        """
        self._asked -= 1
        if self.is_over:
            return
        if result.error is ErrorCode.NOT_COORDINATOR:
            self._is_whole = False
        elif result.error is not ErrorCode.NONE:
            self._end(ListGroupsResult(result.error))
            return
        elif not self._taker.take(result.groups):
            self._end()
            return
        left = result.left
        for start in range(0, len(left), ASKED_AGAIN):
            self._questions.append((place, left[start : start + ASKED_AGAIN]))
        if not self._asking:
            self._go_on()

    def _ask(self) -> None:
        self._scheduled = False
        until_s = self._timer() + SLICE_S
        self._asking = True
        while self._questions and self._asked < MAX_ASKED and not self.is_over:
            place, among = self._questions.popleft()
            self._asked += 1
            request = ListGroups(self._request.states, self._request.types, among)
            place.submit(request, Part(self._took, place), self._clock.now())
            if self._timer() >= until_s:
                break
        self._asking = False
        if not self.is_over:
            self._go_on()

    def _go_on(self) -> None:
        if not self._questions and not self._asked:
            self._end(ListGroupsResult(ErrorCode.NONE, (), self._is_whole))
        elif self._questions and self._asked < MAX_ASKED and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._ask)

    def _end(self, result: ListGroupsResult | None = None) -> None:
        self.is_over = True
        self._questions.clear()
        if result is not None:
            self._taker.resolve(result)
        del self._taker
        if self._started:
            self._listings.ended()
