"""One shard in this process: its state, its lease, and the requests that wait for storage.

The hot path of the daemon is ``Slot.submit``. Nothing in it awaits. A request that does not wait
for storage is answered before it returns (docs/design.md#group-commit).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests import PARKED_RESULTS, Now, OffsetCommitResult, Request
from groupkeeper.coordinator.core.step import Reply, Step
from groupkeeper.coordinator.runtime.append import Write
from groupkeeper.coordinator.runtime.tickets import Ticket
from groupkeeper.storage.base import Batch, ShardId

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.events import Event
    from groupkeeper.coordinator.runtime.shards import AnyShard
    from groupkeeper.coordinator.runtime.stats import Stats
    from groupkeeper.storage.base import Lease


class SlotHost(Protocol):
    """The owner of all slots, as a slot sees it."""

    stats: Stats

    def admit_events(self, slot: Slot, events: list[Event]) -> list[Event]:
        """Count events and merge repeats. Return the events to write now."""
        ...

    def core_failed(self, slot: Slot, request: Request, ticket: Ticket, error: Exception) -> None:
        """Handle an exception inside the core, which is a bug: answer, and load the shard again."""
        ...

    def ticket_failed(self, error: Exception) -> None:
        """Count and log a ticket that raised in ``resolve``."""
        ...

    def alarm(self, at_ms: int | None) -> None:
        """Set the alarm for a deadline of a shard."""
        ...

    def expire(self, slot: Slot, now: Now) -> None:
        """Expire one portion of the due deadlines of a slot."""
        ...


class SlotLane(Protocol):
    """The lane that writes a slot, as the slot sees it."""

    is_full: bool
    """True if too much has gathered. Requests that write are refused until the next append begins.
    """
    max_waiting: int
    """How many replies of one slot may wait."""

    def gather(self, slot: Slot, batch: Batch, record_bytes: int) -> Write:
        """Add a step with records to the next append."""
        ...

    def ride(self, slot: Slot, events: list[Event]) -> None:
        """Add events without a record to the next append, or to one of their own soon."""
        ...

    def forget(self, slot: Slot) -> list[Reply]:
        """Remove the parts of a dropped slot that are not durable. Return the replies that
        waited.
        """
        ...

    def waiting(self, slot: Slot) -> list[Reply]:
        """Return the replies of a slot that wait for an append."""
        ...


Owed: TypeAlias = tuple[Ticket, Result]


class Slot:
    """A shard, or the place of a shard that is LOADING (``shard`` is None)."""

    __slots__ = (
        "_host",
        "_open",
        "lane",
        "lease",
        "needs_lease",
        "shard",
        "shard_id",
        "unfinished",
    )

    def __init__(self, shard_id: ShardId, lane: SlotLane, host: SlotHost) -> None:
        """The slot starts LOADING and without a lease."""
        self.shard_id = shard_id
        self.lane = lane
        self.shard: AnyShard | None = None
        self.lease: Lease | None = None
        self.needs_lease = True
        """True if a lease with a new epoch must be acquired before the next load."""
        self.unfinished: Write | None = None
        """The newest write with records of this shard that is not durable yet."""
        self._host = host
        self._open: dict[int, tuple[Ticket, Callable[[ErrorCode], Result]]] = {}
        """The requests that the core may park, by the identity of their ticket. The value is the
        ticket with a function that makes its refusal. So each is answered exactly once, even if the
        shard is dropped. The request itself is not kept, because its metadata or assignments would
        outlive its client.
        """

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        """Pass a request to the shard. Answer at once, or once the records it depends on are
        durable.
        """
        shard = self.shard
        if shard is None:
            self._host.stats.refused_loading += 1
            self._resolve(ticket, request.loading_answer())
            return
        when_full = request.when_full
        if when_full is not None and self._is_full():
            self._host.stats.refused_overload += 1
            self._resolve(ticket, request.refused(when_full))
            return
        reads = request.reads
        if not reads and request.parks:
            self._open[id(ticket)] = (ticket, request.result)
        try:
            step = shard.handle(request, ticket, now)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a bug of the core
            self._host.core_failed(self, request, ticket, error)
            return
        if reads and not step.events:
            for reply in step.replies:
                if self.unfinished is None or not reply.waits:
                    ticket.resolve(reply.result)
                else:
                    self.unfinished.replies.append(reply)
        else:
            self.take(step)
        if step.sets_alarm:
            self._host.alarm(shard.next_deadline())

    def next_deadline(self) -> int | None:
        """Return the time of the next call of ``expire``, or None if there is none."""
        return None if self.shard is None else self.shard.next_deadline()

    def expire(self, now: Now) -> None:
        """Expire one portion of the due deadlines."""
        self._host.expire(self, now)

    def take(self, step: Step) -> None:
        """Carry out a step: write its records and events, and release or queue its replies."""
        write = self.unfinished
        events = self._host.admit_events(self, step.events) if step.events else step.events
        if step.records:
            write = self.lane.gather(self, Batch(step.records, events), step.record_bytes)
        elif events:
            self.lane.ride(self, events)
        for reply in step.replies:
            if write is None or not reply.waits:
                self.give(reply)
            else:
                write.replies.append(reply)

    def release(self, write: Write) -> None:
        """Release the replies of a durable write, in order.

        A ticket may submit the next request of its connection from within ``resolve``. While
        replies are left, the answer to that request queues behind them.
        """
        replies = write.replies
        while replies:
            self.give(replies.popleft())
        if self.unfinished is write:
            self.unfinished = None

    def give(self, reply: Reply) -> None:
        """Resolve the ticket of one reply."""
        ticket, result = reply.ticket, reply.result
        if type(result) in PARKED_RESULTS and not self._open.pop(id(ticket), None):
            self._host.ticket_failed(AssertionError(f"answered twice: {result!r}"))
        else:
            self._resolve(ticket, result)  # type: ignore[arg-type]

    def drop(self) -> list[Owed]:
        """Drop the state, so that the shard is LOADING. Return the answers that the owner has to
        send.

        The waiting replies may depend on records that are not durable, and a parked request has
        lost its group. NOT_COORDINATOR makes clients look for the coordinator again and repeat the
        request.
        """
        self.shard = None
        self.unfinished = None
        owed: list[Owed] = []
        for reply in self.lane.forget(self):
            if type(reply.result) not in PARKED_RESULTS:  # those are open
                result = reply.result.replaced(ErrorCode.NOT_COORDINATOR)
                owed.append((cast("Ticket", reply.ticket), result))
        owed += self.close_open()
        return owed

    def close_parked(self) -> list[Owed]:
        """Return a refusal for each parked request. Waiting answers are still sent."""
        answered = {id(reply.ticket) for reply in self.lane.waiting(self)}
        parked = {key: call for key, call in self._open.items() if key not in answered}
        for key in parked:
            del self._open[key]
        return [_lost(*call) for call in parked.values()]

    def close_open(self) -> list[Owed]:
        """Return a refusal for each request that may park and has no answer yet, parked or not."""
        still_open = list(self._open.values())
        self._open.clear()
        return [_lost(*call) for call in still_open]

    def settle(self, owed: list[Owed]) -> None:
        """Resolve the tickets with the answers that ``drop`` returned."""
        for ticket, result in owed:
            self._resolve(ticket, result)

    def disown(self, ticket: Ticket) -> None:
        """Forget a ticket that is answered elsewhere."""
        self._open.pop(id(ticket), None)

    def _is_full(self) -> bool:
        return self.lane.is_full or (
            self.unfinished is not None and len(self.unfinished.replies) >= self.lane.max_waiting
        )

    def _resolve(self, ticket: Ticket, result: Result) -> None:
        if type(result) is OffsetCommitResult:
            self._host.stats.count_commit(result.error)
        try:
            ticket.resolve(result)
        except Exception as error:  # noqa: BLE001 - others must get their answers
            self._host.ticket_failed(error)


def _lost(ticket: Ticket, refused: Callable[[ErrorCode], Result]) -> Owed:
    """Return a refusal that makes clients look for the coordinator again and repeat the request."""
    return ticket, refused(ErrorCode.NOT_COORDINATOR)
