"""One shard as this process runs it: its state, its lease, and what waits for storage.

The hot path of the daemon is ``Slot.submit``: nothing in it awaits, and a request that has nothing
to wait for is answered before it returns (docs/design.md#group-commit).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests import (
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    Now,
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetch,
    Request,
    Result,
    SyncGroup,
    SyncGroupResult,
)
from groupkeeper.coordinator.core.step import Reply, Step
from groupkeeper.coordinator.runtime.refusals import loading_answer, overload_answer, replace_result
from groupkeeper.storage.base import Batch, ShardId

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.events import Event
    from groupkeeper.coordinator.runtime.lane import Lane
    from groupkeeper.coordinator.runtime.shards import AnyShard
    from groupkeeper.coordinator.runtime.stats import Stats
    from groupkeeper.storage.base import Lease


class Ticket(Protocol):
    """Whoever asked. ``resolve`` is called exactly once, before ``submit`` returns or later.

    A ticket may also have ``abort()``: called instead of ``resolve`` when its request has met the
    same bug of ours twice (docs/design.md#known-bugs), to close the connection that it came in on.
    """

    def resolve(self, result: Result) -> None:
        """Take the answer."""
        ...


class SlotHost(Protocol):
    """What a slot needs of the owner of all slots."""

    stats: Stats

    def admit_events(self, slot: Slot, events: list[Event]) -> list[Event]:
        """Count events and merge repeats; return those to write now."""
        ...

    def core_failed(self, slot: Slot, request: Request, ticket: Ticket, error: Exception) -> None:
        """An exception inside the core is a bug: answer, and load the shard again."""
        ...

    def ticket_failed(self, error: Exception) -> None:
        """A ticket raised when it was given its answer."""
        ...

    def alarm(self, at_ms: int | None) -> None:
        """A shard has a deadline at this time."""
        ...


class Write:
    """What one slot has in one append, and the replies that are released once it is durable."""

    __slots__ = ("batches", "replies", "slot")

    def __init__(self, slot: Slot) -> None:
        """Start empty."""
        self.slot = slot
        self.batches: list[Batch] = []
        self.replies: deque[Reply] = deque()


Owed: TypeAlias = tuple[Ticket, Result]


def _lost(call: tuple[Ticket, bool]) -> Owed:
    """Make clients find us again and repeat the join or sync."""
    ticket, is_join = call
    if is_join:
        return ticket, JoinGroupResult(ErrorCode.NOT_COORDINATOR, "")
    return ticket, SyncGroupResult(ErrorCode.NOT_COORDINATOR)


class Slot:
    """A shard, or the place of one that is LOADING (``shard`` is None)."""

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

    def __init__(self, shard_id: ShardId, lane: Lane, host: SlotHost) -> None:
        """Make an empty place: LOADING, without a lease."""
        self.shard_id = shard_id
        self.lane = lane
        self.shard: AnyShard | None = None
        self.lease: Lease | None = None
        self.needs_lease = True
        """A lease under a new epoch has to be taken before the next load."""
        self.unfinished: Write | None = None
        """The newest write with records of this shard that is not durable yet."""
        self._host = host
        self._open: dict[int, tuple[Ticket, bool]] = {}
        """Joins (True) and syncs without an answer, by identity of the ticket: the core may park
        them, and whatever becomes of the shard each is answered once. Not the requests: a parked
        one would keep its metadata or assignments, long after its client is gone."""

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        """Give a request to the shard; answer at once, or once what it rests on is durable."""
        shard = self.shard
        kind = type(request)
        if shard is None or (
            kind is not Heartbeat
            and (kind is not OffsetFetch or self.lane.is_full or self.unfinished is not None)
        ):
            self._submit_any(request, ticket, now)
            return
        try:
            step = shard.handle(request, ticket, now)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a bug of the core
            self._host.core_failed(self, request, ticket, error)
            return
        if step.records or step.events or step.sets_alarm:
            self.take(step)
            self._host.alarm(shard.next_deadline())
            return
        for reply in step.replies:
            if self.unfinished is None or not reply.waits:
                reply.ticket.resolve(reply.result)  # type: ignore[attr-defined]
            else:
                self.unfinished.replies.append(reply)

    def take(self, step: Step) -> None:
        """Carry out a step: records to the gatherer, replies behind them or out, events along."""
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
        """Give the replies of a write that is durable, in order.

        A ticket may submit the next request of its connection from within ``resolve``; while
        replies are left, the answer to that one queues behind them.
        """
        replies = write.replies
        while replies:
            self.give(replies.popleft())
        if self.unfinished is write:
            self.unfinished = None

    def give(self, reply: Reply) -> None:
        """Give one answer."""
        result = reply.result
        kind = type(result)
        if kind is OffsetCommitResult:
            stats = self._host.stats
            if result.error:  # type: ignore[union-attr]
                stats.commits_rejected += 1
            else:
                stats.commits_accepted += 1
        elif (kind is JoinGroupResult or kind is SyncGroupResult) and not self._open.pop(
            id(reply.ticket), None
        ):
            self._host.ticket_failed(AssertionError(f"answered twice: {result!r}"))
            return
        self._resolve(reply.ticket, result)  # type: ignore[arg-type]

    def drop(self) -> list[Owed]:
        """Forget the state: LOADING. Returns who is owed which answer, for the owner to give.

        Replies that waited may rest on records that are not durable, and what was parked has lost
        its group: NOT_COORDINATOR makes clients find us again and repeat the request.
        """
        self.shard = None
        self.unfinished = None
        owed: list[Owed] = []
        for reply in self.lane.forget(self):
            if not isinstance(reply.result, JoinGroupResult | SyncGroupResult):  # those are open
                result = replace_result(reply.result, ErrorCode.NOT_COORDINATOR)
                owed.append((cast("Ticket", reply.ticket), result))
        owed += self.close_open()
        return owed

    def close_parked(self) -> list[Owed]:
        """Return the refusals owed to what is parked; answers that wait for storage still come."""
        answered = {id(reply.ticket) for reply in self.lane.waiting(self)}
        parked = {key: call for key, call in self._open.items() if key not in answered}
        for key in parked:
            del self._open[key]
        return [_lost(call) for call in parked.values()]

    def close_open(self) -> list[Owed]:
        """Return the refusals owed to joins and syncs, answered or parked, that nobody has yet."""
        still_open = list(self._open.values())
        self._open.clear()
        return [_lost(call) for call in still_open]

    def settle(self, owed: list[Owed]) -> None:
        """Give the answers that ``drop`` returned."""
        for ticket, result in owed:
            if type(result) is OffsetCommitResult:
                self._host.stats.commits_rejected += 1
            self._resolve(ticket, result)

    def disown(self, ticket: Ticket) -> None:
        """Forget a join or sync that somebody else answers."""
        self._open.pop(id(ticket), None)

    def _submit_any(self, request: Request, ticket: Ticket, now: Now) -> None:
        kind = type(request)
        shard = self.shard
        if shard is None:
            self._host.stats.refused_loading += 1
            self.settle([(ticket, loading_answer(request))])
            return
        if self._is_full() and kind is not Heartbeat:
            self._host.stats.refused_overload += 1
            self.settle([(ticket, overload_answer(request))])
            return
        if kind is JoinGroup or kind is SyncGroup:
            self._open[id(ticket)] = (ticket, kind is JoinGroup)
        try:
            step = shard.handle(request, ticket, now)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a bug of the core
            self._host.core_failed(self, request, ticket, error)
            return
        self.take(step)
        if step.sets_alarm or kind is not OffsetCommit:
            self._host.alarm(shard.next_deadline())

    def _is_full(self) -> bool:
        return self.lane.is_full or (
            self.unfinished is not None and len(self.unfinished.replies) >= self.lane.max_waiting
        )

    def _resolve(self, ticket: Ticket, result: Result) -> None:
        try:
            ticket.resolve(result)
        except Exception as error:  # noqa: BLE001 - others must get their answers
            self._host.ticket_failed(error)
