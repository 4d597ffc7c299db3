"""The order of the starts and stops of a test server, and the event loop that it runs in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

_ELSEWHERE: Final = (
    "the server runs in another event loop, the one that it was started in: call it there "
    "(asyncio.run_coroutine_threadsafe), or use SyncGroupkeeperServer, which any thread may call"
)
_ENDED: Final = (
    "the event loop that the server was started in has ended: start, use and stop it in one (one "
    "asyncio.run, fixtures of one loop), or use SyncGroupkeeperServer, which has a loop of its own"
)


class LifeTurns:
    """Runs the starts and stops of a server one at a time. Checks that a running server is called
    in its own event loop.
    """

    def __init__(self, runs: Callable[[], bool]) -> None:
        """``runs`` returns True while the server is running. A call from another loop is then an
        error.
        """
        self._runs = runs
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def check_loop(self) -> None:
        """Raise RuntimeError if a running server is called from another loop or thread."""
        loop, here = self._loop, _running_loop()
        if loop is None or loop is here or not (self._tasks or self._runs()):
            return
        # otherwise no loop runs: the call is between two runs of the same loop
        if here is not None or loop.is_running():
            raise RuntimeError(_ENDED if loop.is_closed() else _ELSEWHERE)

    def take(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run ``work`` in a task after all earlier work. Return the task.

        If the caller shields the task and is cancelled, the work continues.
        """
        self.check_loop()
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._lock = loop, asyncio.Lock()
        task = loop.create_task(self._do(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def ended(self) -> None:
        """Wait for all work requested so far."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _do(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._lock:  # a lock is acquired in the order of the calls
            await work()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
