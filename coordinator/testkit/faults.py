"""The faults of the test server: time that passes at once, a failing storage, late answers.

A moved clock is never moved back. Every other fault ends when its ``Fault`` is undone, or when the
server stops.
"""

from __future__ import annotations

from asyncio import BaseTransport
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from groupkeeper.coordinator.core.events import CommitRejected, MemberFenced, ShardLoaded
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.wire_values import text, whole_number
from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.coordinator.runtime.clock import LoopClock
from groupkeeper.coordinator.server.connection import Connection
from groupkeeper.coordinator.server.listener import Listener
from groupkeeper.coordinator.server.shared import Shared
from groupkeeper.protocol.versions import APIS, ApiKey
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.base import Batch, ShardAppend, ShardId, StorageError
from groupkeeper.storage.event_log.log_clock import wall_clock_ms

MAX_MS: Final = 10 * 365 * 24 * 3600 * 1000
"""Ten years: the longest time that may pass at once, and the longest delay."""

_NOTES: Final = (CommitRejected, MemberFenced, ShardLoaded)
"""The kinds of events that change no group."""

_BY_NAME: Final = {api.name.lower(): api.key for api in APIS}


class Fault:
    """A fault that lasts until ``undo``, or until the end of a ``with`` block."""

    def __init__(self, undo: Callable[[], None]) -> None:
        self.undo: Final = undo

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


class MovableClock:
    """The real clocks (monotonic and wall), plus the time by which a test has moved them ahead."""

    def __init__(self, real: LoopClock | None = None) -> None:
        self._real = real or LoopClock()
        self._ahead_ms = 0
        self._stands_at: Now | None = None

    def start(self) -> None:
        self._real.start()

    def stop(self) -> None:
        """Release the loop. The clock stays ahead by the time that a test has moved it."""
        self._real.stop()

    def move(self, ms: int) -> None:
        """Move the clocks ahead. Timers are not woken."""
        self._ahead_ms += ms

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Stop the real time inside the block: only ``move`` changes the clocks. After the block,
        time continues from there.
        """
        if self._stands_at is not None:
            yield  # a nested block changes nothing
            return
        stands_at = self._stands_at = self._real.now()
        try:
            yield
        finally:
            self._stands_at = None
            self._ahead_ms -= self._real.now().monotonic_ms - stands_at.monotonic_ms

    def now(self) -> Now:
        now = self._stands_at or self._real.now()
        return Now(now.monotonic_ms + self._ahead_ms, now.wall_ms + self._ahead_ms)

    def wall_ms(self) -> int:
        """Return the wall clock, for the timestamps of events."""
        real_ms = wall_clock_ms() if self._stands_at is None else self._stands_at.wall_ms
        return real_ms + self._ahead_ms


class FailingStorage(MemoryOffsetStorage):
    """A memory storage whose appends can be made to fail.

    Appends without records fail too. But while a fault lasts, an append that has only events of the
    kinds in ``_NOTES`` succeeds, and its events are dropped. After each failure the coordinator
    itself appends such events. If these appends failed too, one failure would count as several.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock=clock)
        self.failures = 0
        """The number of failed appends."""
        self._failing: dict[Fault, int | None] = {}

    def fail(self, appends: int | None) -> Fault:
        """Fail the next ``appends`` appends, or all if None, until the fault is undone."""
        if appends is not None:
            appends = whole_number("appends", appends, least=1)
        fault = Fault(lambda: self._forget(fault))
        self._failing[fault] = appends
        return fault

    def heal(self) -> None:
        self._failing.clear()

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        if self._failing:
            if not any(_changes_something(batch) for item in items for batch in item.batches):
                return []
            fault, left = next(iter(self._failing.items()))
            if left == 1:
                del self._failing[fault]
            elif left is not None:
                self._failing[fault] = left - 1
            self.failures += 1
            raise StorageError("fail_storage() was called")
        return await super().append(items)

    def _forget(self, fault: Fault) -> None:
        self._failing.pop(fault, None)


class Delays:
    """The delays of each API, and the answers that are delayed now."""

    def __init__(self) -> None:
        self._delays: dict[Fault, tuple[ApiKey, int]] = {}
        self._delayed: dict[Exchange, tuple[int, Callable[[], None]]] = {}

    def add(self, api: str, delay_ms: int) -> Fault:
        """Delay the answers of an API. When the fault is undone, delayed answers are sent at
        once.
        """
        key = _api_key(text("api", api))
        delay_ms = whole_number("ms", delay_ms, least=0, most=MAX_MS)
        fault = Fault(lambda: self._forget(fault))
        self._delays[fault] = (key, delay_ms)
        return fault

    def end(self) -> None:
        for fault in tuple(self._delays):
            self._forget(fault)

    def delay(self, exchange: Exchange, answer: Callable[[Exchange], None]) -> bool:
        """If this API is delayed, call ``answer`` after the delay. Otherwise return False."""
        delay_ms = self._delay_ms(exchange.key)
        reply = exchange.reply
        if not delay_ms or reply is None:
            return False
        exchange.reply = None  # until the delay has passed, the exchange counts as not answered

        def send() -> None:
            cancel()
            if self._delayed.pop(exchange, None) is not None:
                exchange.reply = reply
                answer(exchange)

        cancel = exchange.channel.later(delay_ms / 1000, send)
        self._delayed[exchange] = (delay_ms, send)
        return True

    def _delay_ms(self, key: int) -> int:
        return max([ms for delayed, ms in self._delays.values() if delayed == key], default=0)

    def _forget(self, fault: Fault) -> None:
        self._delays.pop(fault, None)
        for exchange, (delay_ms, send) in tuple(self._delayed.items()):
            if self._delay_ms(exchange.key) < delay_ms:
                send()


class FaultGate:
    """Controls whether requests are read. While the gate is closed, requests that have begun are
    still answered."""

    def __init__(self) -> None:
        self.connections: Final[set[FaultyConnection]] = set()
        self._closings = 0

    @property
    def is_open(self) -> bool:
        """True if no block of ``closed`` is running."""
        return not self._closings

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Read and begin no request inside the block. Afterwards the waiting requests are
        processed.
        """
        self._turn(+1)
        try:
            yield
        finally:
            self._turn(-1)

    def _turn(self, closings: int) -> None:
        self._closings += closings
        for connection in tuple(self.connections):
            connection.gate_turned()


class FaultyConnection(Connection):
    """A connection that can pause its requests and delay its answers."""

    __slots__ = ("_delays", "_gate", "_peer_takes")

    def __init__(self, shared: Shared, listener: Listener, delays: Delays, gate: FaultGate) -> None:
        super().__init__(shared, listener)
        self._delays = delays
        self._gate = gate
        self._peer_takes = True

    def connection_made(self, transport: BaseTransport) -> None:
        """Register at the gate, and pause at once if the gate is closed."""
        super().connection_made(transport)
        self._gate.connections.add(self)
        if not self._gate.is_open:
            self.gate_turned()

    def connection_lost(self, exc: Exception | None) -> None:
        """Deregister from the gate."""
        self._gate.connections.discard(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Pause reading, because the peer does not read its replies."""
        self._peer_takes = False
        super().pause_writing()

    def resume_writing(self) -> None:
        """Continue reading, unless the gate is closed."""
        self._peer_takes = True
        self.gate_turned()

    def gate_turned(self) -> None:
        """Pause while the gate is closed, as if the peer did not read its replies."""
        if self._gate.is_open and self._peer_takes:
            super().resume_writing()
        else:
            super().pause_writing()

    def answered(self, exchange: Exchange) -> None:
        """Write the reply, now or after the delay of its API."""
        if not self._delays.delay(exchange, super().answered):
            super().answered(exchange)


class Nobody:
    """A ticket (the object that gets the answer to a request) that ignores the answer."""

    def resolve(self, result: object) -> None: ...


def _changes_something(batch: Batch) -> bool:
    return bool(batch.records) or any(not isinstance(event, _NOTES) for event in batch.events)


def _api_key(api: str) -> ApiKey:
    key = _BY_NAME.get(api.replace("_", "").lower())
    if key is None:
        names = ", ".join(each.name for each in APIS)
        raise ValueError(f"{api!r} is not served; the served APIs are: {names}")
    return key
