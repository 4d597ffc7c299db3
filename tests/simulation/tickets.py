"""Checks that each ticket is answered once: by its shard, and then by the process. The process must
not answer before the records are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.admin import ListGroups
from groupkeeper.coordinator.core.requests.membership import Heartbeat, SyncGroup
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.step import Step, Ticket
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator

_TRY_AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
    }
)
_WHILE_LOADING = frozenset(
    {(Heartbeat, ErrorCode.NONE), (SyncGroup, ErrorCode.REBALANCE_IN_PROGRESS)}
)
"""Answers to members that shall stay members."""


class OpenTickets:
    """The tickets that one shard has to answer, since its load, after its last step."""

    def __init__(self) -> None:
        self._open: dict[int, Ticket] = {}

    def handed(self, ticket: Ticket) -> None:
        """Note the ticket of a request."""
        self._open[id(ticket)] = ticket

    def after_step(self, step: Step, parked: Iterable[Ticket]) -> None:
        """Follow a step. Raises AssertionError if it neither answers nor parks a ticket, or answers
        it twice.
        """
        was, self._open = self._open, {id(ticket): ticket for ticket in parked}
        for reply in step.replies:
            assert id(reply.ticket) in was, f"answered twice, or not asked for: {reply.result}"
            del was[id(reply.ticket)]
        assert was.keys() == self._open.keys(), (
            f"{len(was)} tickets are owed an answer, {len(self._open)} are parked"
        )


def check_refusal(request: Request, result: Any, *, may_be_refused: bool = False) -> None:
    """Raise AssertionError if the process answers instead of a shard with anything but a request to
    retry. It knows no groups and no members.

    A listing is answered by the process itself. A store that reads groups by name may refuse one of
    them.
    """
    code = result if isinstance(result, ErrorCode) else result.error
    may_say = code in _TRY_AGAIN or (type(request), code) in _WHILE_LOADING
    may_say = may_say or (may_be_refused and code is ErrorCode.UNKNOWN_SERVER_ERROR)
    assert may_say or isinstance(request, ListGroups), "by no shard"


def _at_any_time() -> None:
    pass


class WatchedTicket:
    """Stands between a client's ticket and the shards."""

    def __init__(
        self,
        request: Request,
        ticket: Any,
        problem: Callable[[str], None],
        *,
        may_be_refused: bool = False,
    ) -> None:
        self._may_be_refused = may_be_refused
        self._request = request
        self._ticket = ticket
        self._problem = problem
        self._result: object = None
        self._check_sent: Callable[[], None] = _at_any_time
        self._is_answered = False

    def answered_by_shard(
        self, result: object, check_sent: Callable[[], None] = _at_any_time
    ) -> None:
        """Note the answer of the shard. ``check_sent`` raises AssertionError if it must not be sent
        yet.
        """
        self._result, self._check_sent = result, check_sent

    def resolve(self, result: Any) -> None:
        """Receive the answer. A refusal by the process itself may come at any time."""
        try:
            assert not self._is_answered, "twice"
            self._is_answered = True
            if result is self._result:
                self._check_sent()
            else:
                check_refusal(self._request, result, may_be_refused=self._may_be_refused)
        except AssertionError as error:
            self._problem(f"answered {error}: {result}")
        self._ticket.resolve(result)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ticket, name)  # some can be aborted


class WatchedCoordinator(GroupCoordinator):
    """Watches the tickets of all requests."""

    problem: Callable[[str], None]
    """Called with everything that does not hold."""
    may_be_refused = False
    """True if the store reads groups by name. It may refuse a group."""

    def submit(self, request: Request, ticket: Any) -> None:
        watched = WatchedTicket(request, ticket, self.problem, may_be_refused=self.may_be_refused)
        super().submit(request, watched)
