"""One shard in this process: its state, its lease, and the requests that wait for storage.

The hot path of the daemon is ``Slot.submit``. Nothing in it awaits. A request that neither is
parked nor waits for storage is answered before ``submit`` returns (docs/design.md#group-commit).

This file is long because every request and every reply of a shard passes through these few fields.
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
    """The records and events of one slot in one append, and the replies to send when these are
    durable.
    """

    __slots__ = ("batches", "replies", "shard_id")

    def __init__(self, shard_id: ShardId) -> None:
        self.shard_id = shard_id
        self.batches: list[Batch] = []
        self.replies: deque[Reply] = deque()


class SlotWorkers(Protocol):
    """Does the computations that a shard asks for."""

    def begin(self, work: Work, done: Callable[[WorkOutcome], None]) -> None:
        """Start a computation. ``done`` is called once with the outcome, in a later iteration of
        the event loop.
        """
        ...


class SlotHost(Protocol):
    """The services that all slots share. The host also handles exceptions that the core raises.
    Each of them is a bug.
    """

    alarm: Alarm
    stats: Stats
    merger: RefusalMerger
    clock: Clock
    workers: SlotWorkers

    def request_failed(
        self, slot: Slot, request: Request, ticket: Ticket, error: Exception
    ) -> None:
        """Called when a request raised an exception in the core. Answer the request and load the
        shard again.
        """
        ...

    def step_failed(self, slot: Slot, error: Exception) -> None:
        """Called when the core raised an exception that no request caused. Load the shard again."""
        ...


class SlotLane(Protocol):
    """The methods of a lane that a slot uses. A lane is the queue of appends that writes the slot's
    records and events.
    """

    is_full: bool
    """True if too many requests or bytes have gathered for the next append. Until that append
    begins, requests that write are refused."""
    max_waiting: int
    """The largest number of replies of one slot that may wait for the store."""

    def gather(self, slot: Slot, batch: Batch, record_bytes: int) -> Write:
        """Add a step with records to the next append. A step is the result of one request or timer.
        Return the slot's ``Write`` in that append.
        """
        ...

    def add_events(self, slot: Slot, events: list[Event]) -> None:
        """Add events without a record to the next append. If no append comes soon, the events get
        their own append.
        """
        ...

    def forget(self, slot: Slot) -> list[Reply]:
        """Remove all records and events of a dropped slot that are not durable. Return the replies
        that waited for them.
        """
        ...

    def waiting(self, slot: Slot) -> list[Reply]:
        """Return the replies of a slot that wait for an append."""
        ...


Refusal: TypeAlias = tuple[Ticket, Result]


class Slot:
    """Holds one shard in this process: passes requests to the shard, and sends its replies.
    ``shard`` is None while the slot answers as LOADING.
    """

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
        """The shard in memory while the slot answers as LOADING, because its lease may have ended
        (``suspend``). None otherwise."""
        self.lease: Lease | None = None
        self.needs_lease = True
        """True if a lease with a new epoch must be acquired before the next load."""
        self.unfinished: Write | None = None
        """This slot's ``Write`` in the newest append that is not durable yet. None if all its
        writes are durable. ``gather`` of the lane sets it."""
        self.alarm_ms = NEVER
        """The time at which the alarm calls ``expire`` (monotonic ms), or NEVER."""
        self._host = host
        self._alarm = host.alarm
        self._stats = host.stats
        self._unanswered: dict[int, tuple[Ticket, Callable[[ErrorCode], Result]]] = {}
        """The unanswered requests of a kind that the core may park (answer in a later step): the
        ``id()`` of the ticket -> the ticket, and a function that makes its refusal. So each request
        is answered exactly once, even if the shard is dropped. The request itself is not kept:
        after its client has disconnected, its metadata or assignments would stay in memory.
        """
        self._outcomes: list[tuple[Work, WorkOutcome]] = []
        """The outcomes of computations that arrived while the shard was suspended. The shard gets
        them when it resumes."""

    @property
    def kept(self) -> AnyShard | None:
        """The shard in memory, even if it is suspended. None if no shard is in memory."""
        return self.shard if self.suspended is None else self.suspended

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        """Pass a request to the shard. ``ticket`` gets the answer at once, or when the records that
        the answer depends on are durable.
        """
        shard = self.shard
        if shard is None:
            self._stats.refused_loading += 1
            self._resolve(ticket, request.loading_answer())
            return
        if self._is_full() and (when_full := request.when_full) is not None:
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
        """Call ``call`` with the shard, and carry out the step that it returns. Used for everything
        except requests. If ``call`` raises an exception, report the bug to the host, which loads
        the shard again.
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
        """Process some of the deadlines that are due, and set the alarm for the next one."""
        if self.shard is not None:
            self.run(lambda shard: shard.expire(now))

    def carry_out(self, step: Step) -> None:
        """Carry out a step: pass its records and events to the lane, and begin its computations.
        Send each reply at once, or when the records that it depends on are durable.
        """
        write = self.unfinished
        records, events = step.records, step.events
        if events:
            events = self._events_to_write(events)
        if records:
            write = self.lane.gather(self, Batch(records, events), step.record_bytes)
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
        """Pass the outcome of a computation to the shard that asked for it. If this shard is
        suspended, the outcome waits. If it was loaded again, the outcome is dropped.

        A loaded shard asks for the computation again. It may use the same epochs again, for other
        members, so the old outcome could be wrong.
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
        """Send the replies of a durable write, in order.

        A ticket may submit the next request of its connection from within ``resolve``. While
        replies are left, the answer to that request queues behind them.
        """
        replies = write.replies
        while replies:
            self.answer(replies.popleft())
        if self.unfinished is write:
            self.unfinished = None

    def answer(self, reply: Reply) -> None:
        """Resolve the ticket of one reply. A second answer to a request that may be parked is a
        bug: it is logged, and the ticket is not resolved again.
        """
        ticket, result = reply.ticket, reply.result
        if type(result) in PARKED_RESULTS and not self._unanswered.pop(id(ticket), None):
            self.ticket_failed(AssertionError(f"answered twice: {result!r}"))
        else:
            self._resolve(ticket, result)  # type: ignore[arg-type]

    def suspend(self) -> None:
        """Let the shard answer as LOADING, but keep it in memory. Parked requests stay parked.
        Requests that wait for an append are answered when it is durable, because the store then has
        accepted the lease.
        """
        shard = self.shard
        assert shard is not None
        # One assignment each: mypyc refuses an exchange of a value and None at runtime.
        self.suspended = shard
        self.shard = None

    def resume(self, first_steps: Callable[[AnyShard], Iterable[Step]]) -> None:
        """Let the suspended shard answer again. First carry out the steps that ``first_steps``
        returns. Then pass on the outcomes of computations that arrived while the shard was
        suspended.
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
        """Drop the shard, so that the slot is LOADING. Return the refusals that the caller must
        send. ``loads_again`` is True if this process will load the shard again.

        The waiting replies may depend on records that are not durable, and a parked request has
        lost its group. Their refusal is NOT_COORDINATOR, so clients look for the coordinator again
        and repeat the request. If the shard is loaded again, the refusal of a commit is
        COORDINATOR_LOAD_IN_PROGRESS: clients then repeat the commit here.
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
        """Forget the parked requests, and return a refusal for each. Answers that wait for the
        store are still sent.
        """
        answered = {id(reply.ticket) for reply in self.lane.waiting(self)}
        parked = {key: call for key, call in self._unanswered.items() if key not in answered}
        for key in parked:
            del self._unanswered[key]
        return [_not_coordinator(*call) for call in parked.values()]

    def close_unanswered(self) -> list[Refusal]:
        """Forget all unanswered requests of a kind that may be parked, whether or not they are
        parked now. Return a refusal for each.
        """
        unanswered = list(self._unanswered.values())
        self._unanswered.clear()
        return [_not_coordinator(*call) for call in unanswered]

    def refuse(self, refusals: list[Refusal]) -> None:
        """Resolve each ticket with its refusal."""
        for ticket, result in refusals:
            self._resolve(ticket, result)

    def forget(self, ticket: Ticket) -> None:
        """Forget an unanswered ticket, because the caller sends its answer."""
        self._unanswered.pop(id(ticket), None)

    def ticket_failed(self, error: Exception) -> None:
        """Count and log an exception that a ticket raised in ``resolve``. The exception is not
        raised again.
        """
        self._stats.tickets_failed += 1
        log.error("ticket_failed", exc_info=error)

    def _events_to_write(self, events: list[Event]) -> list[Event]:
        """Count the events, and return those to write now. Repeated refusals are left out: one
        merged event is written for them later.
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
