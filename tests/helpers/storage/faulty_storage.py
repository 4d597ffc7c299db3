"""A storage with faults that a test chooses: it can wait, fail, lie, fence or answer too late.

Each call has the next fault that the test has scripted for its name. Without one it works normally.
Nothing here sleeps: a call that waits, waits for a ``Gate``, which the test opens.

    storage = FaultyStorage()
    gate = storage.hold_next_append()          # stays in flight until the test says so
    storage.script("append", lie())            # and the one after it stores, then reports failure
    ...
    await gate.reached.wait()
    gate.open()
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from groupkeeper.coordinator.core.records import Record
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.base import (
    Lease,
    ShardAppend,
    ShardId,
    StorageError,
    StoreBusy,
    StoreIdentity,
)

_T = TypeVar("_T")

CALLS = ("open", "close", "acquire", "renew", "release", "load", "append")


class Gate:
    """Blocks a call until the test opens the gate."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        """Set when a call waits here."""
        self._opened = asyncio.Event()

    def open(self) -> None:
        """Let the call continue."""
        self._opened.set()

    async def wait(self) -> None:
        self.reached.set()
        await self._opened.wait()


@dataclass
class Fault:
    """The behaviour of one call, in place of its normal work."""

    before: Gate | None = None
    """The call waits here before it does anything."""
    fence: Collection[ShardId] | None = None
    """Another owner acquires and releases these shards before the call does its work."""
    stores: bool = True
    after: Gate | None = None
    """The call waits here after its work."""
    error: BaseException | None = None
    """Raised at the end."""
    survives_cancel: bool = False
    """The work continues if the call is cancelled, as in a late append."""


def slow(gate: Gate) -> Fault:
    """Do nothing before the gate opens. A cancelled call does nothing."""
    return Fault(before=gate)


def slow_reply(gate: Gate) -> Fault:
    """Do the work, but return only when the gate opens."""
    return Fault(after=gate)


def late(gate: Gate) -> Fault:
    """Do the work when the gate opens, even if the call was cancelled before."""
    return Fault(before=gate, survives_cancel=True)


def fail(message: str = "disk full") -> Fault:
    """Do nothing and raise."""
    return Fault(stores=False, error=StorageError(message))


def busy(message: str = "database is locked") -> Fault:
    """Do nothing and raise StoreBusy."""
    return Fault(stores=False, error=StoreBusy(message))


def lie(message: str = "connection lost") -> Fault:
    """Do the work, then raise."""
    return Fault(error=StorageError(message))


def fence(*shards: ShardId) -> Fault:
    """Behave as if another owner had acquired these shards."""
    return Fault(fence=shards)


class FaultyStorage:
    """Memory storage with a script of faults, and a record of its calls."""

    def __init__(self, inner: MemoryOffsetStorage | None = None) -> None:
        self.inner = inner if inner is not None else MemoryOffsetStorage()
        self.limits = self.inner.limits
        self.appends: list[list[ShardAppend]] = []
        """The items of every append that began, including failed ones."""
        self.calls: list[str] = []
        """The names of all calls, in order."""
        self.in_flight = 0
        """The number of appends in flight."""
        self.most_in_flight = 0
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._late: set[asyncio.Task[Any]] = set()

    def script(self, call: str, *faults: Fault | None) -> None:
        """Add faults for the next calls of this name; None is a call without a fault."""
        assert call in CALLS, call
        self._faults[call].extend(fault or Fault() for fault in faults)

    def hold_next_append(self) -> Gate:
        """Keep the next unscripted append in flight, nothing stored, until the gate opens."""
        gate = Gate()
        self.script("append", slow(gate))
        return gate

    def fence(self, *shards: ShardId) -> None:
        """Let another owner acquire these shards, which makes the present leases invalid."""
        self.inner.give_back(self.inner.take_over(shards, "thief").values())

    async def late_calls_ended(self) -> None:
        """Wait for the calls that continue after their cancellation."""
        await asyncio.gather(*self._late, return_exceptions=True)

    async def open(self, identity: StoreIdentity) -> None:
        await self._call("open", lambda: self.inner.open(identity))

    async def close(self) -> None:
        await self._call("close", self.inner.close)

    async def acquire(self, shards: Collection[ShardId], owner: str) -> dict[ShardId, Lease]:
        return await self._call("acquire", lambda: self.inner.acquire(shards, owner))

    async def renew(self, leases: Collection[Lease]) -> Collection[ShardId]:
        return await self._call("renew", lambda: self.inner.renew(leases))

    async def release(self, leases: Collection[Lease]) -> None:
        await self._call("release", lambda: self.inner.release(leases))

    async def load(
        self, shards: Collection[ShardId]
    ) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        """Load the shards. A load with an error raises it after the first slice."""
        self.calls.append("load")
        fault = self._next_fault("load")
        await _wait(fault.before)
        self._fence(fault)
        async for part in self.inner.load(shards):
            yield part
            if fault.error is not None:
                break
        await _wait(fault.after)
        if fault.error is not None:
            raise fault.error

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        self.appends.append(list(items))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._call("append", lambda: self.inner.append(items))
        finally:
            self.in_flight -= 1

    def unfolded(self) -> int:
        return self.inner.unfolded()

    def stats(self) -> dict[str, float]:
        return self.inner.stats()

    async def check_after_unclean_end(self) -> str | None:
        return await self.inner.check_after_unclean_end()

    async def _call(self, name: str, work: Callable[[], Awaitable[_T]]) -> _T:
        self.calls.append(name)
        fault = self._next_fault(name)
        if not fault.survives_cancel:
            return await self._carry_out(fault, work)
        task = asyncio.ensure_future(self._carry_out(fault, work))
        self._late.add(task)
        return await asyncio.shield(task)

    async def _carry_out(self, fault: Fault, work: Callable[[], Awaitable[_T]]) -> _T:
        await _wait(fault.before)
        self._fence(fault)
        if not fault.stores:
            assert fault.error is not None, "a call that does nothing has to fail"
            raise fault.error
        result = await work()
        await _wait(fault.after)
        if fault.error is not None:
            raise fault.error
        return result

    def _next_fault(self, name: str) -> Fault:
        faults = self._faults[name]
        return faults.popleft() if faults else Fault()

    def _fence(self, fault: Fault) -> None:
        if fault.fence is not None:
            self.fence(*fault.fence)


async def _wait(gate: Gate | None) -> None:
    if gate is not None:
        await gate.wait()
