"""A thread that does blocking work in order, and returns the results to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

import structlog

_log = structlog.get_logger(__name__)

_T = TypeVar("_T")
_Job = tuple[Callable[[], Any], "asyncio.Future[Any]", Callable[[], None] | None]


class JobThread:
    """One thread with one queue. A job that is cancelled before it begins is skipped."""

    def __init__(self, name: str) -> None:
        """Start the thread for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        # A daemon thread does not keep the process alive while a disk hangs.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(
        self, work: Callable[[], _T], then: Callable[[], None] | None = None
    ) -> asyncio.Future[_T]:
        """Queue a job. The returned future gets the job's result or its exception.

        If the job did not raise, the thread also calls ``then``, after it has sent the result to
        the loop. If ``then`` raises, this is logged, because nobody waits for it, and the next jobs
        run.
        """
        future: asyncio.Future[_T] = self._loop.create_future()
        self._jobs.put((work, future, then))
        return future

    def stop(self) -> None:
        """End the thread after the queued jobs. Does not wait."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, future, then = job
            if future.cancelled():
                continue
            result, error = None, None
            try:
                result = work()
            except Exception as raised:  # noqa: BLE001 - the future gets it
                error = raised
            # If the loop is closed, nobody waits for the result. The next jobs still run: one of
            # them may release a lock.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_settle, future, result, error)
            if then is not None and error is None:
                try:
                    then()
                except Exception:  # noqa: BLE001 - otherwise the next jobs would never end
                    _log.exception("job_follow_up_failed", thread=self._thread.name)
            del job, work, future, then, result, error


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return  # the caller has cancelled it
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
