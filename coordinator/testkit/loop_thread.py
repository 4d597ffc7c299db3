"""An event loop in its own thread, for programs without one. Any thread may use it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, Final, TypeVar

_STOPPED: Final = "the server was stopped"
_T = TypeVar("_T")


class LoopThread:
    """A thread with an event loop, from ``start`` to ``end``. It can be started again afterwards.

    If ``start`` or ``end`` is interrupted (Ctrl-C), the thread ends by itself, or another ``end``
    ends it.
    """

    def __init__(self, name: str, ended: str, at_end: Callable[[], Awaitable[None]]) -> None:
        """Use ``ended`` as the error message for calls before the start or after the end.

        ``at_end`` is awaited in the loop as the last thing before the thread ends.
        """
        self._name = name
        self._ended = ended
        self._at_end = at_end
        self._scheduling = threading.Lock()
        """Held while work is handed to the loop, so that no work reaches a loop that is ending."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        """Set when the thread has ended. ``end`` waits for this before it joins the thread: after
        an interrupted join, Python 3.11 regards the thread as ended.
        """
        self._failure: BaseException | None = None
        """The error with which the thread ended, until ``end`` raises it."""

    @property
    def runs(self) -> bool:
        """True between start and end."""
        return self._loop is not None

    def start(self) -> None:
        """Start the thread; return when the loop accepts work."""
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
        """End the thread, and cancel the work that other threads wait for.

        Raises the error that ``at_end`` raised in the thread.
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
        """Run a coroutine in the loop and return its result.

        Raises RuntimeError if the thread has ended, or ends before the coroutine does.
        """
        with self._scheduling:
            if self._loop is None:
                work.close()  # else Python warns that it was never awaited
                raise RuntimeError(self._ended)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError(_STOPPED) from None

    def call(self, work: Callable[[], _T]) -> _T:
        """Call a function in the loop and return its result."""

        async def done() -> _T:
            return work()

        return self.do(done())

    def _turn(self, started: Callable[[], None]) -> None:
        try:
            asyncio.run(self._live(started))  # its end cancels all tasks and waits for them
        except BaseException as error:  # noqa: BLE001 - raised by ``end``
            self._failure = error
        finally:
            self._over.set()

    async def _live(self, started: Callable[[], None]) -> None:
        self._leave = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        started()
        await self._leave.wait()
        with self._scheduling:
            self._loop = None
        await self._at_end()
