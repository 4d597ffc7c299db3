"""Event loops of other threads, for code that blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

from groupkeeper.storage.base import StorageError

CALL_S: Final = 60.0
"""The longest time, in seconds, that a thread waits for a call. Usually a call without an answer
fails earlier, at its own time limit."""

LAST_TURNS: Final = 5
"""The turns of a loop before it ends. A connection that was closed, or whose peer has closed it,
needs a turn or two to close its socket. Otherwise the socket stays open until the collector comes.
"""
LAST_TURN_S: Final = 0.002
"""The time for each of these turns: TLS also waits for an answer of the peer."""

_T = TypeVar("_T")


class RunsCalls(Protocol):
    """Runs a call of the store, waits for it, and returns its result. Raises StorageError if there
    is no result.
    """

    def __call__(self, call: Coroutine[Any, Any, _T]) -> _T: ...


class LoopRunner:
    """Runs calls on an event loop of another thread, and waits for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __call__(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Run a call, and return its result. Raises StorageError if the loop is closed, or if the
        call takes longer than ``CALL_S``.
        """
        assert threading.get_ident() != getattr(self._loop, "_thread_id", None), "would wait for us"
        try:
            future = asyncio.run_coroutine_threadsafe(call, self._loop)
        except RuntimeError as error:  # the loop is closed
            call.close()
            raise StorageError(f"the store is closed: {error}") from error
        try:
            return future.result(CALL_S)
        except FutureTimeout:
            future.cancel()
            raise StorageError(f"the store has not answered for {CALL_S:.0f} s") from None


class BlockingLoop:
    """An event loop in its own thread."""

    def __init__(self, name: str) -> None:
        """Start the thread under this name."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self.run = LoopRunner(self._loop)
        """Runs a call on the loop, waits for it, and returns its result."""

    def close(self) -> None:
        """End the thread and the loop."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for _ in range(LAST_TURNS):
            await asyncio.sleep(LAST_TURN_S)
        self._loop.stop()


class SharedLoop:
    """A connection that several readers share, on the event loop of one thread. The connection is
    open as long as a reader uses it.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[None]], disconnect: Callable[[], Awaitable[None]]
    ) -> None:
        self._connect = connect
        self._disconnect = disconnect
        self._users = 0
        self._loop: BlockingLoop | None = None

    def enter(self) -> None:
        """Connect if nobody is connected. Call ``leave`` afterwards, unless this raises."""
        if not self._users:
            self._loop = BlockingLoop("event-log-loop")
            try:
                self.run(_done(self._connect))
            except BaseException:
                self._end()
                raise
        self._users += 1

    def leave(self) -> None:
        """Disconnect if nobody else uses the connection."""
        self._users -= 1
        if not self._users:
            self._end()

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Stay connected until the end of the block."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def run(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Run a call on the loop of the connection, and return its result. Blocks."""
        assert self._loop is not None, "not open"
        return self._loop.run(call)

    def _end(self) -> None:
        assert self._loop is not None, "not open"
        try:
            self.run(_done(self._disconnect))
        finally:
            self._loop.close()
            self._loop = None


async def _done(call: Callable[[], Awaitable[None]]) -> None:
    await call()
