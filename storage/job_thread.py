"""A thread that does blocking work in order and reports to the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

_T = TypeVar("_T")
_Job = tuple[Callable[[], Any], "asyncio.Future[Any]", Callable[[], None] | None]


class JobThread:
    """One thread, one queue. A job whose caller gave up before it began is skipped."""

    def __init__(self, name: str) -> None:
        """Start the thread; it serves the loop that is running now."""
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        # A daemon thread, so that a disk that hangs does not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(
        self, work: Callable[[], _T], then: Callable[[], None] | None = None
    ) -> asyncio.Future[_T]:
        """Queue a job; the future tells how it ended.

        ``then`` is run straight after a job that did not raise, while its result is already on the
        way; it must not raise.
        """
        future: asyncio.Future[_T] = self._loop.create_future()
        self._jobs.put((work, future, then))
        return future

    def stop(self) -> None:
        """End the thread once the jobs before this are done; does not wait."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, future, then = job
            if future.cancelled():
                continue
            result, error = None, None
            try:
                result = work()
            except Exception as raised:  # noqa: BLE001 - handed to whoever waits
                error = raised
            # Where the loop is closed nobody is left to tell, and what comes may give back a lock.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_settle, future, result, error)
            if then is not None and error is None:
                then()
            del job, work, future, then, result, error


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return  # the caller gave up
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
