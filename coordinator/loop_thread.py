"""A loop in a thread of its own, for programs without one; any thread may have it do something."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, Final, TypeVar

_STOPPED: Final = "the server was stopped"
_T = TypeVar("_T")


class LoopThread:
    """Begins with ``start``; after ``end``, which leaves nobody waiting, it may begin again."""

    def __init__(self, name: str, ended: str) -> None:
        """``ended`` is said to those who come before the start or after the end."""
        self._name = name
        self._ended = ended
        self._scheduling = threading.Lock()
        """Held while something is given to the loop, so that nothing is given to one that ends."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def runs(self) -> bool:
        """It was started and not ended."""
        return self._loop is not None

    def start(self) -> None:
        """Return when the loop takes work."""
        runner, started = asyncio.Runner(), threading.Event()
        self._thread = threading.Thread(
            target=self._turn, args=(runner, started.set), name=self._name, daemon=True
        )
        self._thread.start()
        started.wait()

    def end(self) -> None:
        """End the thread; what others wait for is cancelled, and they are told."""
        with self._scheduling:
            loop, self._loop = self._loop, None
        assert loop is not None
        assert self._thread is not None
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()

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

    def _turn(self, runner: asyncio.Runner, tell: Callable[[], None]) -> None:
        with runner:  # its end cancels what is left and waits for that
            self._loop = runner.get_loop()
            self._loop.call_soon(tell)
            self._loop.run_forever()
