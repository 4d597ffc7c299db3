"""A loop in a thread of its own, for programs without one; any thread may have it do something."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, Final, TypeVar

_STOPPED: Final = "the server was stopped"
_T = TypeVar("_T")


class LoopThread:
    """Begins with ``start``; after ``end``, which leaves nobody waiting, it may begin again.

    Whoever is interrupted in either of them (Ctrl-C) leaves a thread that ends by itself, or one
    that another ``end`` ends.
    """

    def __init__(self, name: str, ended: str, at_end: Callable[[], Awaitable[None]]) -> None:
        """``ended`` is said to those who come before the start or after the end; ``at_end`` is the
        last that is done there.
        """
        self._name = name
        self._ended = ended
        self._at_end = at_end
        self._scheduling = threading.Lock()
        """Held while something is given to the loop, so that nothing is given to one that ends."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        """What ``end`` waits for: a join that was interrupted once takes its thread for one that
        has ended (Python 3.11)."""
        self._failure: BaseException | None = None
        """What the last end came to."""

    @property
    def runs(self) -> bool:
        """It was started and not ended."""
        return self._loop is not None

    def start(self) -> None:
        """Return when the loop takes work."""
        self._failure = None
        self._over.clear()
        started = threading.Event()
        thread = threading.Thread(
            target=self._turn, args=(started.set,), name=self._name, daemon=True
        )
        thread.start()
        self._thread = thread
        started.wait()

    def end(self) -> None:
        """End the thread; what others wait for is cancelled, and they are told. Raises what the
        last that is done there raised.
        """
        with self._scheduling:
            if self._loop is not None:
                assert self._leave is not None
                self._loop.call_soon_threadsafe(self._leave.set)
        if self._thread is not None:
            self._over.wait()
            self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def do(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Have it done there and return the result. Raises RuntimeError where the thread has ended,
        or ends before the work does.
        """
        with self._scheduling:
            if self._loop is None:
                work.close()  # else Python warns that nobody awaited it
                raise RuntimeError(self._ended)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError(_STOPPED) from None

    def call(self, work: Callable[[], _T]) -> _T:
        """Have a function called there."""

        async def done() -> _T:
            return work()

        return self.do(done())

    def _turn(self, tell: Callable[[], None]) -> None:
        try:
            asyncio.run(self._live(tell))  # its end cancels what is left and waits for that
        except BaseException as error:  # noqa: BLE001 - told by ``end``
            self._failure = error
        finally:
            self._over.set()

    async def _live(self, tell: Callable[[], None]) -> None:
        self._leave = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        tell()
        await self._leave.wait()
        with self._scheduling:
            self._loop = None
        await self._at_end()
