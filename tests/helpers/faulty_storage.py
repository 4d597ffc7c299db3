"""A storage that does what the test tells it to: wait, fail, lie, fence, answer too late.

Each call takes the next fault scripted for its name, and behaves when there is none. Nothing
here sleeps: a call that waits, waits for a ``Gate`` that the test opens.

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
    """Holds a call until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        """Set once a call waits here."""
        self._opened = asyncio.Event()

    def open(self) -> None:
        """Let the call go on."""
        self._opened.set()

    async def wait(self) -> None:
        self.reached.set()
        await self._opened.wait()


@dataclass
class Fault:
    """What one call does instead of behaving."""

    before: Gate | None = None
    """Waits here with nothing done yet."""
    fence: Collection[ShardId] | None = None
    """Another owner takes these shards before the call does its work, and gives them back."""
    stores: bool = True
    after: Gate | None = None
    """Waits here with everything done."""
    error: BaseException | None = None
    """Raised at the end."""
    survives_cancel: bool = False
    """The work goes on when the caller gives up: a late append."""


def slow(gate: Gate) -> Fault:
    """Do nothing before the gate opens; a cancelled call does nothing at all."""
    return Fault(before=gate)


def slow_reply(gate: Gate) -> Fault:
    """Do the work, but tell of it only when the gate opens."""
    return Fault(after=gate)


def late(gate: Gate) -> Fault:
    """Do the work when the gate opens, even if the caller has given up long before."""
    return Fault(before=gate, survives_cancel=True)


def fail(message: str = "disk full") -> Fault:
    """Do nothing and raise."""
    return Fault(stores=False, error=StorageError(message))


def busy(message: str = "database is locked") -> Fault:
    """Do nothing and say that it is a matter of time."""
    return Fault(stores=False, error=StoreBusy(message))


def lie(message: str = "connection lost") -> Fault:
    """Do the work, then report failure."""
    return Fault(error=StorageError(message))


def fence(*shards: ShardId) -> Fault:
    """Find that another owner had these shards meanwhile."""
    return Fault(fence=shards)


class FaultyStorage:
    """Memory storage with a script of faults, and a record of what it was asked to do."""

    def __init__(self, inner: MemoryOffsetStorage | None = None) -> None:
        self.inner = inner if inner is not None else MemoryOffsetStorage()
        self.limits = self.inner.limits
        self.appends: list[list[ShardAppend]] = []
        """The items of every append that was begun, failed ones included."""
        self.calls: list[str] = []
        """The names of all calls, in order."""
        self.in_flight = 0
        """Appends begun and not ended."""
        self.most_in_flight = 0
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._late: set[asyncio.Task[Any]] = set()

    def script(self, call: str, *faults: Fault | None) -> None:
        """Append to what the next calls of this name do; None stands for a call that behaves."""
        assert call in CALLS, call
        self._faults[call].extend(fault or Fault() for fault in faults)

    def hold_next_append(self) -> Gate:
        """Keep the next unscripted append in flight, nothing stored, until the gate opens."""
        gate = Gate()
        self.script("append", slow(gate))
        return gate

    def fence(self, *shards: ShardId) -> None:
        """Let another owner write to these shards at once: the leases in use are void."""
        self.inner.give_back(self.inner.take_over(shards, "thief").values())

    async def late_calls_ended(self) -> None:
        """Wait until the calls that outlived their caller are through."""
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
        """A failing load fails after the first slice, where half a state has been read."""
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
