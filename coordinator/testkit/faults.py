"""What a coordinator for tests can be made to suffer: time that passes at once, a storage that
fails, answers that come late.

Each fault but time is undone when its ``Fault`` is, and at the latest when the server stops.
"""

from __future__ import annotations

from asyncio import BaseTransport
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final

from groupkeeper.coordinator.core.events import CommitRejected, MemberFenced, ShardLoaded
from groupkeeper.coordinator.core.requests import Now
from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.coordinator.runtime.clock import LoopClock
from groupkeeper.coordinator.server.connection import Connection
from groupkeeper.coordinator.server.listener import Listener
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.protocol.versions import APIS, ApiKey
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.base import Batch, ShardAppend, ShardId, StorageError
from groupkeeper.storage.event_log.clock import wall_clock_ms
from groupkeeper.storage.host_values import text, whole_number

MAX_MS: Final = 10 * 365 * 24 * 3600 * 1000
"""Ten years: the longest time that may pass at once, and the longest delay."""

_NOTES: Final = (CommitRejected, MemberFenced, ShardLoaded)
"""Events that no change of a group stands behind."""

_BY_NAME: Final = {api.name.lower(): api.key for api in APIS}


class Fault:
    """Something that goes wrong until ``undo``, or until the end of a ``with`` block."""

    def __init__(self, undo: Callable[[], None]) -> None:
        """``undo`` may be called more than once, and after the server has stopped."""
        self.undo: Final = undo

    def __enter__(self) -> Fault:
        """It goes wrong already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Undo it."""
        self.undo()


class MovableClock:
    """The real clocks, and what they were moved ahead by."""

    def __init__(self, real: LoopClock | None = None) -> None:
        """Begin with the real time."""
        self._real = real or LoopClock()
        self._ahead_ms = 0
        self._stands_at: Now | None = None

    def start(self) -> None:
        """Bind to the running loop."""
        self._real.start()

    def stop(self) -> None:
        """Let go of the loop; what it was moved by stays."""
        self._real.stop()

    def move(self, ms: int) -> None:
        """Let time pass; nobody is told."""
        self._ahead_ms += ms

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Let time pass by ``move`` alone meanwhile, and go on from there."""
        if self._stands_at is not None:
            yield  # within another's
            return
        stands_at = self._stands_at = self._real.now()
        try:
            yield
        finally:
            self._stands_at = None
            self._ahead_ms -= self._real.now().monotonic_ms - stands_at.monotonic_ms

    def now(self) -> Now:
        """Return both clocks."""
        now = self._stands_at or self._real.now()
        return Now(now.monotonic_ms + self._ahead_ms, now.wall_ms + self._ahead_ms)

    def wall_ms(self) -> int:
        """Return the wall clock, for the time stamps of events."""
        real_ms = wall_clock_ms() if self._stands_at is None else self._stands_at.wall_ms
        return real_ms + self._ahead_ms


class FailingStorage(MemoryOffsetStorage):
    """Memory whose appends fail while they are told to, those of events alone too.

    Notes alone do not fail an append, nor are they kept: no group changes by them, and whoever
    counts failures would meet those that his own failures bring about.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        """Start empty, and well."""
        super().__init__(clock=clock)
        self.failures = 0
        """Appends that have failed."""
        self._failing: dict[Fault, int | None] = {}

    def fail(self, appends: int | None) -> Fault:
        """Fail that many appends, None: all of them, until the fault is undone."""
        if appends is not None:
            appends = whole_number("appends", appends, least=1)
        fault = Fault(lambda: self._forget(fault))
        self._failing[fault] = appends
        return fault

    def heal(self) -> None:
        """Undo every fault."""
        self._failing.clear()

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        """Store the items, or raise StorageError with nothing stored."""
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
    """Which answers come late, and those that are held back now."""

    def __init__(self) -> None:
        """Hold nothing back."""
        self._delays: dict[Fault, tuple[ApiKey, int]] = {}
        self._held: dict[Exchange, tuple[int, Callable[[], None]]] = {}

    def add(self, api: str, delay_ms: int) -> Fault:
        """Hold back the answers of an API; what waits when it is undone goes out at once."""
        key = _api_key(text("api", api))
        delay_ms = whole_number("ms", delay_ms, least=0, most=MAX_MS)
        fault = Fault(lambda: self._forget(fault))
        self._delays[fault] = (key, delay_ms)
        return fault

    def end(self) -> None:
        """Undo every delay."""
        for fault in tuple(self._delays):
            self._forget(fault)

    def hold(self, exchange: Exchange, answer: Callable[[Exchange], None]) -> bool:
        """Answer later, where this is an API that is delayed; False where it is not."""
        delay_ms = self._delay_ms(exchange.key)
        reply = exchange.reply
        if not delay_ms or reply is None:
            return False
        exchange.reply = None  # until then others must not take it for answered

        def give() -> None:
            cancel()
            if self._held.pop(exchange, None) is not None:
                exchange.reply = reply
                answer(exchange)

        cancel = exchange.channel.later(delay_ms / 1000, give)
        self._held[exchange] = (delay_ms, give)
        return True

    def _delay_ms(self, key: int) -> int:
        return max([ms for delayed, ms in self._delays.values() if delayed == key], default=0)

    def _forget(self, fault: Fault) -> None:
        self._delays.pop(fault, None)
        for exchange, (delay_ms, give) in tuple(self._held.items()):
            if self._delay_ms(exchange.key) < delay_ms:
                give()


class FaultGate:
    """What clients send comes in through it; what was begun is answered while it is closed too."""

    def __init__(self) -> None:
        """Begin open, without connections."""
        self.connections: Final[set[FaultyConnection]] = set()
        self._closings = 0

    @property
    def is_open(self) -> bool:
        """Nobody has closed it."""
        return not self._closings

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Begin no request meanwhile, and read none; afterwards go on with those that wait."""
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
    """A connection whose requests and whose answers may be held back."""

    __slots__ = ("_delays", "_gate", "_peer_takes")

    def __init__(
        self, server: KafkaServer, listener: Listener, delays: Delays, gate: FaultGate
    ) -> None:
        """Make the connection of a listener."""
        super().__init__(server, listener)
        self._delays = delays
        self._gate = gate
        self._peer_takes = True

    def connection_made(self, transport: BaseTransport) -> None:
        """Come to life, before a closed gate too."""
        super().connection_made(transport)
        self._gate.connections.add(self)
        if not self._gate.is_open:
            self.gate_turned()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the gate."""
        self._gate.connections.discard(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer does not take its replies."""
        self._peer_takes = False
        super().pause_writing()

    def resume_writing(self) -> None:
        """The peer took its replies: go on, unless the gate is closed."""
        self._peer_takes = True
        self.gate_turned()

    def gate_turned(self) -> None:
        """Begin nothing while the gate is closed, as if the peer did not take its replies."""
        if self._gate.is_open and self._peer_takes:
            super().resume_writing()
        else:
            super().pause_writing()

    def answered(self, exchange: Exchange) -> None:
        """Write the reply, now or after the delay of its API."""
        if not self._delays.hold(exchange, super().answered):
            super().answered(exchange)


class Nobody:
    """Asks without wanting an answer."""

    def resolve(self, result: object) -> None:
        """Take it and forget it."""


def _changes_something(batch: Batch) -> bool:
    return bool(batch.records) or any(not isinstance(event, _NOTES) for event in batch.events)


def _api_key(api: str) -> ApiKey:
    key = _BY_NAME.get(api.replace("_", "").lower())
    if key is None:
        names = ", ".join(each.name for each in APIS)
        raise ValueError(f"{api!r} is no API that is served; these are: {names}")
    return key
