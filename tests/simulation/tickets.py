"""Each ticket is answered once: by its shard, where that is told from step to step, and by the
process, which may not say so before it is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from coordinator.core.requests import Request
from coordinator.core.step import Step, Ticket
from coordinator.service import GroupCoordinator


class OpenTickets:
    """Who is owed an answer by one shard, in one life, as of its last step."""

    def __init__(self) -> None:
        self._open: dict[int, Ticket] = {}

    def handed(self, ticket: Ticket) -> None:
        """A request came with it."""
        self._open[id(ticket)] = ticket

    def took(self, step: Step, parked: Iterable[Ticket]) -> None:
        """Follow a step; raises AssertionError where it does not answer each ticket once, or park
        it.
        """
        was, self._open = self._open, {id(ticket): ticket for ticket in parked}
        for reply in step.replies:
            assert id(reply.ticket) in was, f"answered twice, or not asked for: {reply.result}"
            del was[id(reply.ticket)]
        assert was.keys() == self._open.keys(), (
            f"{len(was)} tickets are owed an answer, {len(self._open)} are parked"
        )


class WatchedTicket:
    """Stands for a client's ticket between the process and its shards."""

    def __init__(self, ticket: Any, problem: Callable[[str], None]) -> None:
        self._ticket = ticket
        self._problem = problem
        self._result: object = None
        self._is_durable: Callable[[], bool] = lambda: True
        self._is_answered = False

    def rests_on(self, result: object, is_durable: Callable[[], bool]) -> None:
        """The shard has answered this; it may go out once what it rests on is durable."""
        self._result, self._is_durable = result, is_durable

    def resolve(self, result: Any) -> None:
        """Take the answer; a refusal that the process makes in its place may come at any time."""
        if self._is_answered:
            self._problem(f"answered twice: {result}")
        self._is_answered = True
        if result is self._result and not self._is_durable():
            self._problem(f"answered ahead of what it rests on: {result}")
        self._ticket.resolve(result)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ticket, name)  # some can be aborted


class WatchedCoordinator(GroupCoordinator):
    """Watches the tickets of all requests."""

    problem: Callable[[str], None]
    """Told of what does not hold."""

    def submit(self, request: Request, ticket: Any) -> None:
        super().submit(request, WatchedTicket(ticket, self.problem))
