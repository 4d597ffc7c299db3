"""Where a server for tests lives, and the order of its starts and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

_ELSEWHERE: Final = (
    "the server lives in another event loop, the one that it was started in: call it there "
    "(asyncio.run_coroutine_threadsafe), or take SyncGroupkeeperServer, which every thread may call"
)
_ENDED: Final = (
    "the event loop that the server was started in has ended: start, use and stop it in one (one "
    "asyncio.run, fixtures of one loop), or take SyncGroupkeeperServer, which has a loop of its own"
)


class LifeTurns:
    """Starts and stops of a server, which lives in the loop that it is started in."""

    def __init__(self, runs: Callable[[], bool]) -> None:
        """``runs`` tells whether the server would notice a call from another loop."""
        self._runs = runs
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def check_loop(self) -> None:
        """Raise RuntimeError where a server that lives is called from another loop or thread."""
        loop, here = self._loop, _running_loop()
        if loop is None or loop is here or not (self._tasks or self._runs()):
            return
        if here is not None or loop.is_running():  # else nothing runs: between two runs of it
            raise RuntimeError(_ENDED if loop.is_closed() else _ELSEWHERE)

    def take(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Do something when everything is done that was asked for before. It goes on where the one
        who asked for it is cancelled, where that one shields it.
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
        """Wait for what was asked for so far."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _do(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._lock:  # it lets in who waits in their order
            await work()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
