"""One shard in this process: its state, its lease, and the requests that wait for storage.

The hot path of the daemon is ``Slot.submit``. Nothing in it awaits. A request that neither is
parked nor waits for storage is answered before ``submit`` returns (docs/design.md#group-commit).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import structlog

from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.requests.offsets import OffsetCommitResult
from groupkeeper.coordinator.core.requests.request import PARKED_RESULTS, Request
from groupkeeper.coordinator.core.step import Reply, Step
from groupkeeper.coordinator.runtime.alarm import NEVER
from groupkeeper.coordinator.runtime.merge import REFUSALS
from groupkeeper.coordinator.runtime.tickets import Ticket
from groupkeeper.storage.base import Batch, ShardId

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.events import Event
    from groupkeeper.coordinator.core.work import Work, WorkOutcome
    from groupkeeper.coordinator.runtime.alarm import Alarm
    from groupkeeper.coordinator.runtime.clock import Clock
    from groupkeeper.coordinator.runtime.merge import RefusalMerger
    from groupkeeper.coordinator.runtime.shards import AnyShard
    from groupkeeper.coordinator.runtime.stats import Stats
    from groupkeeper.storage.base import Lease

log = structlog.get_logger(__name__)


class Write:
    """The batches of one slot in one append, and the replies to release once they are durable."""

    __slots__ = ("batches", "replies", "shard_id")

    def __init__(self, shard_id: ShardId) -> None:
        self.shard_id = shard_id
        self.batches: list[Batch] = []
        self.replies: deque[Reply] = deque()


class SlotWorkers(Protocol):
    """Carries out the work of steps, as a slot sees it."""

    def begin(self, work: Work, done: Callable[[WorkOutcome], None]) -> None:
        """Carry out work. ``done`` gets the outcome once, in a later turn of the loop."""
        ...


class SlotHost(Protocol):
    """The services that all slots share. It also handles exceptions of the core. Each of these is a
    bug.
    """

    alarm: Alarm
    stats: Stats
    merger: RefusalMerger
    clock: Clock
    workers: SlotWorkers

    def request_failed(
        self, slot: Slot, request: Request, ticket: Ticket, error: Exception
    ) -> None:
        """Answer the request and load the shard again."""
        ...

    def step_failed(self, slot: Slot, error: Exception) -> None:
        """Load the shard again. No request caused this step."""
        ...


class SlotLane(Protocol):
    """The methods of a lane that a slot uses. The lane writes the slot's records and events."""

    is_full: bool
    """True if too much has gathered. Requests that write are refused until the next append begins.
    """
    max_waiting: int
    """How many replies of one slot may wait."""

    def gather(self, slot: Slot, batch: Batch, record_bytes: int) -> Write:
        """Add a step with records to the next append."""
        ...

    def add_events(self, slot: Slot, events: list[Event]) -> None:
        """Add events without a record to the next append. If none comes soon, they get one of their
        own.
        """
        ...

    def forget(self, slot: Slot) -> list[Reply]:
        """Remove everything of a dropped slot that is not durable. Return the replies that waited
        for it.
        """
        ...

    def waiting(self, slot: Slot) -> list[Reply]:
        """Return the replies of a slot that wait for an append."""
        ...


Refusal: TypeAlias = tuple[Ticket, Result]


class Slot:
    """A shard, or the place of a shard that is LOADING (``shard`` is None)."""

    __slots__ = (
        "_alarm",
        "_host",
        "_outcomes",
        "_stats",
        "_unanswered",
        "alarm_ms",
        "lane",
        "lease",
        "needs_lease",
        "shard",
        "shard_id",
        "suspended",
        "unfinished",
    )

    def __init__(self, shard_id: ShardId, lane: SlotLane, host: SlotHost) -> None:
        """Create a slot that is LOADING and has no lease."""
        self.shard_id = shard_id
        self.lane = lane
        self.shard: AnyShard | None = None
        self.suspended: AnyShard | None = None
        """The shard while it is LOADING because its lease may have lapsed (``suspend``)."""
        self.lease: Lease | None = None
        self.needs_lease = True
        """True if a lease with a new epoch must be acquired before the next load."""
        self.unfinished: Write | None = None
        """The newest write of this shard that is not durable yet. The lane sets it."""
        self.alarm_ms = NEVER
        """When the alarm calls ``expire``."""
        self._host = host
        self._alarm = host.alarm
        self._stats = host.stats
        self._unanswered: dict[int, tuple[Ticket, Callable[[ErrorCode], Result]]] = {}
        """The unanswered requests that the core may park, by the identity of their ticket. The
        value is the ticket with a function that makes its refusal. So each request is answered
        exactly once, even if the shard is dropped. The request itself is not kept: its metadata or
        assignments would stay in memory after its client has disconnected.
        """
        self._outcomes: list[tuple[Work, WorkOutcome]] = []
        """Outcomes that a suspended shard gets when it resumes."""

    @property
    def kept(self) -> AnyShard | None:
        """The shard in memory, whether or not it answers."""
        return self.shard if self.suspended is None else self.suspended

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        """Pass a request to the shard. Answer at once, or once the records it depends on are
        durable.
        """
        shard = self.shard
        if shard is None:
            self._stats.refused_loading += 1
            self._resolve(ticket, request.loading_answer())
            return
        when_full = request.when_full
        if when_full is not None and self._is_full():
            self._stats.refused_overload += 1
            self._resolve(ticket, request.refused(when_full))
            return
        try:
            step = shard.handle(request, ticket, now)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a bug of the core
            self._host.request_failed(self, request, ticket, error)
            return
        answer = step.answer
        if answer is not None:
            ticket.resolve(answer)
        elif request.reads and not step.events:
            for reply in step.replies:
                if self.unfinished is None or not reply.waits:
                    ticket.resolve(reply.result)
                else:
                    self.unfinished.replies.append(reply)
        else:
            if request.parks:
                self._unanswered[id(ticket)] = (ticket, request.result)
            self.carry_out(step)
        if step.sets_alarm:
            self._alarm.set(self, shard.next_deadline())

    def run(self, call: Callable[[AnyShard], Step]) -> None:
        """Run a step that no request caused, and carry it out. An exception in it is a bug, as in
        any other step.
        """
        assert self.shard is not None
        try:
            step = call(self.shard)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a bug of the core
            self._host.step_failed(self, error)
            return
        self.carry_out(step)
        if self.shard is not None:
            self._alarm.set(self, self.shard.next_deadline())

    def expire(self, now: Now) -> None:
        """Expire one portion of the due deadlines, and set the alarm for the next one."""
        if self.shard is not None:
            self.run(lambda shard: shard.expire(now))

    def carry_out(self, step: Step) -> None:
        """Write the records and events of a step, and release or queue its replies."""
        write = self.unfinished
        events = self._events_to_write(step.events) if step.events else step.events
        if step.records:
            write = self.lane.gather(self, Batch(step.records, events), step.record_bytes)
        elif events:
            self.lane.add_events(self, events)
        for reply in step.replies:
            if write is None or not reply.waits:
                self.answer(reply)
            else:
                write.replies.append(reply)
        if step.work:
            self._begin(step.work)

    def _begin(self, works: Sequence[Work]) -> None:
        shard = self.shard
        assert shard is not None
        for work in works:
            self._host.workers.begin(work, partial(self._work_done, shard, work))

    def _work_done(self, asked: AnyShard, work: Work, outcome: WorkOutcome) -> None:
        """Pass an outcome to the shard, unless the shard was loaded since the work began.

        A loaded shard asks for the work again. It may use the same epochs again, for other members,
        so the old outcome could be wrong.
        """
        if self.shard is asked:
            now = self._host.clock.now()
            self.run(lambda shard: shard.work_done(work, outcome, now))
        elif self.suspended is asked:
            self._outcomes.append((work, outcome))

    def add_events(self, events: list[Event]) -> bool:
        """Write events that do not come from a step. Return False if no shard is in memory."""
        if self.kept is None:
            return False
        self.lane.add_events(self, events)
        return True

    def release(self, write: Write) -> None:
        """Release the replies of a durable write, in order.

        A ticket may submit the next request of its connection from within ``resolve``. While
        replies are left, the answer to that request queues behind them.
        """
        replies = write.replies
        while replies:
            self.answer(replies.popleft())
        if self.unfinished is write:
            self.unfinished = None

    def answer(self, reply: Reply) -> None:
        """Resolve the ticket of one reply. If its request may park and was already answered, this
        is a bug: it is logged, and the ticket is not resolved again."""
        ticket, result = reply.ticket, reply.result
        if type(result) in PARKED_RESULTS and not self._unanswered.pop(id(ticket), None):
            self.ticket_failed(AssertionError(f"answered twice: {result!r}"))
        else:
            self._resolve(ticket, result)  # type: ignore[arg-type]

    def suspend(self) -> None:
        """Answer as LOADING, and keep the shard. Parked requests stay parked. Requests that wait
        for an append are answered when it is durable: the store then knew the lease as valid.
        """
        shard = self.shard
        assert shard is not None
        # One assignment each: mypyc refuses an exchange of a value and None at runtime.
        self.suspended = shard
        self.shard = None

    def resume(self, first_steps: Callable[[AnyShard], Iterable[Step]]) -> None:
        """Let the suspended shard answer again. ``first_steps`` returns the steps to carry out
        before the outcomes that have waited.
        """
        shard = self.suspended
        assert shard is not None
        self.shard = shard
        self.suspended = None
        outcomes, self._outcomes = self._outcomes, []
        for step in first_steps(shard):
            self.carry_out(step)
        self._alarm.set(self, shard.next_deadline())
        for work, outcome in outcomes:
            self._work_done(shard, work, outcome)

    def drop(self, loads_again: bool) -> list[Refusal]:
        """Drop the state, so that the shard is LOADING. Return the refusals that the caller must
        send. ``loads_again``: this process will load the shard again.

        The waiting replies may depend on records that are not durable, and a parked request has
        lost its group. NOT_COORDINATOR makes clients look for the coordinator again and repeat the
        request. A commit is repeated without that, if the shard is loaded again.
        """
        self.shard = self.suspended = None
        self._outcomes.clear()
        self.unfinished = None
        refusals: list[Refusal] = []
        for reply in self.lane.forget(self):
            if type(reply.result) not in PARKED_RESULTS:  # those requests are in self._unanswered
                result = reply.result.replaced(ErrorCode.NOT_COORDINATOR, loads_again)
                refusals.append((cast("Ticket", reply.ticket), result))
        refusals += self.close_unanswered()
        return refusals

    def close_parked(self) -> list[Refusal]:
        """Return a refusal for each parked request. Waiting answers are still sent."""
        answered = {id(reply.ticket) for reply in self.lane.waiting(self)}
        parked = {key: call for key, call in self._unanswered.items() if key not in answered}
        for key in parked:
            del self._unanswered[key]
        return [_not_coordinator(*call) for call in parked.values()]

    def close_unanswered(self) -> list[Refusal]:
        """Return a refusal for each request that may park and has no answer yet, parked or not."""
        unanswered = list(self._unanswered.values())
        self._unanswered.clear()
        return [_not_coordinator(*call) for call in unanswered]

    def refuse(self, refusals: list[Refusal]) -> None:
        """Resolve each ticket with its refusal."""
        for ticket, result in refusals:
            self._resolve(ticket, result)

    def forget(self, ticket: Ticket) -> None:
        """Forget a ticket to which the caller itself sends the answer."""
        self._unanswered.pop(id(ticket), None)

    def ticket_failed(self, error: Exception) -> None:
        """Count and log a ticket that raised in ``resolve``. Its exception is not raised again."""
        self._stats.tickets_failed += 1
        log.error("ticket_failed", exc_info=error)

    def _events_to_write(self, events: list[Event]) -> list[Event]:
        """Count events. Return those to write now: repeated refusals are kept back for a merged
        event.
        """
        self._stats.count_events(events)
        if REFUSALS.isdisjoint([type(event) for event in events]):
            return events
        now_ms = self._host.clock.now().monotonic_ms
        return self._host.merger.admit(self.shard_id, events, now_ms)

    def _is_full(self) -> bool:
        return self.lane.is_full or (
            self.unfinished is not None and len(self.unfinished.replies) >= self.lane.max_waiting
        )

    def _resolve(self, ticket: Ticket, result: Result) -> None:
        if type(result) is OffsetCommitResult:
            if result.error:
                self._stats.commits_rejected += 1
            else:
                self._stats.commits_accepted += 1
        try:
            ticket.resolve(result)
        except Exception as error:  # noqa: BLE001 - others must get their answers
            self.ticket_failed(error)


def _not_coordinator(ticket: Ticket, refused: Callable[[ErrorCode], Result]) -> Refusal:
    """Return a refusal that makes clients look for the coordinator again and repeat the request."""
    return ticket, refused(ErrorCode.NOT_COORDINATOR)
