"""Start and stop of a coordinator. A coordinator that was stopped cannot be started again.

The store is always released, even if calls are cancelled. The stop runs in its own task. Every
``stop`` waits for this task, and the task continues if a caller is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from groupkeeper.coordinator.core.wire_values import whole_number
from groupkeeper.coordinator.runtime.clock import LoopClock
from groupkeeper.coordinator.runtime.line_limit import LineLimit
from groupkeeper.coordinator.runtime.owner import ShardOwner
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.base import OffsetStorage, StoreBusy, StoreIdentity
from groupkeeper.storage.cancellation import is_cancelled, unless_cancelled

_log = structlog.get_logger(__name__)

FLUSH_SHARE: Final = 0.8
"""The share of a stop's time in which waiting requests end, and the state of groups is written (a
fold). The rest is for the leases and for closing the store."""

WINDOW_S: Final = 60.0
LINES: Final = 3
"""While a start waits for its store, at most this number of lines with the same reason are logged
in each ``WINDOW_S``."""


class Life:
    """Starts and stops the parts of a coordinator."""

    def __init__(
        self,
        storage: OffsetStorage,
        config: CoordinatorConfig,
        owner: ShardOwner,
        clock: LoopClock | None,
        *,
        loaded: Callable[[], Awaitable[None]],
        stopping: Callable[[], None],
    ) -> None:
        """Create the object without starting anything.

        ``clock`` is started and stopped with the coordinator; None if the host has its own clock.
        ``loaded`` is awaited when all shards are loaded. ``stopping`` is called at a stop, perhaps
        several times, to refuse later requests.
        """
        self._storage = storage
        self._config = config
        self._owner = owner
        self._clock = clock
        self._loaded = loaded
        self._stopping = stopping
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop of ``start``. Every later call must come from this loop."""
        self._began: str | None = None
        """"started" or "stopped": why another start is refused. None: a start is allowed."""
        self._open_problem = ""
        """The reason why the store could not be opened; empty if it was opened, or was not tried
        yet."""
        self._is_open = False
        self._starting: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """True if the store is open and no stop has begun."""
        return self._is_open and self._began == "started"

    @property
    def start_waits_for(self) -> str:
        """Why a start cannot open or load the store yet, in one line. Empty without a reason."""
        if self._open_problem:
            what, problem = "the store cannot be opened yet", self._open_problem
        else:
            what = "the store cannot be loaded yet"
            recovery = self._owner.recovery
            problem = "" if recovery.has_loaded else recovery.problem
        return f"{what}, which is tried again: {problem}" if problem else ""

    def check_started(self) -> None:
        """Raise RuntimeError before the start, and in another event loop.

        Without this check a caller would get the answers of loading shards, such as NONE to a
        heartbeat.
        """
        if self._began is None:
            raise RuntimeError("the coordinator was not started: await its start() first")
        self._check_loop()

    def _check_loop(self) -> None:
        """Raise RuntimeError if the call comes from another loop than ``start`` did. The
        coordinator's tasks and timers do not run in another loop.
        """
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            if self._loop.is_closed():
                held = (
                    "its store stays locked until this process ends: await stop() before the loop "
                    "ends"
                )
                raise RuntimeError(
                    "the event loop that the coordinator lived in has ended, and the coordinator "
                    f"with it; {held if self._is_open else 'make another one over the storage'}"
                )
            raise RuntimeError(
                "the coordinator lives in another event loop, the one that it was started in: pass "
                "calls to that one with asyncio.run_coroutine_threadsafe"
            )

    # --- Start ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store and load; see ``GroupCoordinator.start``."""
        if self._began:
            raise RuntimeError(
                f"the coordinator was {self._began} already: make another one over the storage"
            )
        self._began = "started"
        self._loop = asyncio.get_running_loop()
        _log_as_the_host_does()
        if self._clock is not None:
            self._clock.start()
        self._starting = self._loop.create_task(self._start())
        self._starting.add_done_callback(self._start_ended)
        try:
            await asyncio.shield(self._starting)
        except BaseException:
            await self._start_failed()
            raise

    async def _start(self) -> None:
        await self._open_storage()
        if is_cancelled():  # the store has opened although this task was cancelled
            await self._storage.close()
            raise asyncio.CancelledError
        self._is_open = True
        await self._owner.start()
        await self._loaded()

    def _start_ended(self, _: asyncio.Task[None]) -> None:
        """Allow another start if the store was not opened."""
        if not self._is_open and self._ending is None:
            self._began = self._loop = self._starting = None
            if self._clock is not None:
                self._clock.stop()

    def _cancel_start(self) -> None:
        """Cancel the start, but only once: a second time would interrupt its cleanup."""
        if self._starting is not None and not self._starting.cancelling():
            self._starting.cancel()

    async def _open_storage(self) -> None:
        identity = StoreIdentity(self._config.cluster_id, self._config.shards)
        retry_ms = self._config.retry_min_ms
        lines = LineLimit(asyncio.get_running_loop().time, WINDOW_S, LINES)
        while True:
            try:
                await unless_cancelled(self._storage.open(identity))
                self._open_problem = ""
                return
            except StoreBusy as error:
                self._open_problem = str(error)
                left_out = lines.allow(str(error))
                if left_out is not None:
                    _log.error(
                        "open_failed", error=str(error), retry_ms=retry_ms, left_out=left_out
                    )
            await asyncio.sleep(retry_ms / 1000)
            retry_ms = min(2 * retry_ms, self._config.retry_max_ms)

    async def _start_failed(self) -> None:
        """Release everything after a failed start. Raises RuntimeError if the start failed because
        of a ``stop``.
        """
        was_stopped = self._ending is not None
        if was_stopped or self._is_open:
            await self.stop(self._config.drain_timeout_ms)
        elif self._starting is not None:
            self._cancel_start()
            await asyncio.wait([self._starting])
        if was_stopped and not is_cancelled():
            raise RuntimeError("the coordinator was stopped while it started") from None

    # --- Stop -------------------------------------------------------------------------------------

    async def stop(self, timeout_ms: int) -> None:
        """Stop, and release the store within ``timeout_ms``; see ``GroupCoordinator.stop``."""
        self._check_loop()
        timeout_ms = whole_number("timeout_ms", timeout_ms, least=0)
        if self._ending is None:
            self._began = "stopped"
            self._stopping()
            self._owner.drain()
            if self._starting is None:
                return
            self._cancel_start()
            self._ending = asyncio.get_running_loop().create_task(self._end(timeout_ms))
        await asyncio.shield(self._ending)

    async def _end(self, timeout_ms: int) -> None:
        """Stop within ``timeout_ms``. If the loop ends and cancels this task, waiting requests are
        refused at once.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_ms / 1000
        try:
            assert self._starting is not None
            await asyncio.wait([self._starting], timeout=timeout_ms * FLUSH_SHARE / 1000)
            if self._is_open:
                left_ms = (end_s - loop.time()) * 1000
                await self._owner.finish(int(left_ms * FLUSH_SHARE))
        finally:
            try:
                await self._release_store(end_s)
            finally:
                if self._clock is not None:
                    self._clock.stop()

    async def _release_store(self, end_s: float) -> None:
        """Release the leases, and then close the store. Waits for the store until ``end_s``, and
        then logs a warning."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            await _call_until(end_s, "release", self._owner.release)
        finally:
            await _call_until(end_s, "close", self._storage.close)


async def _call_until(end_s: float, name: str, call: Callable[[], Awaitable[None]]) -> None:
    try:
        async with asyncio.timeout_at(end_s):
            await unless_cancelled(call())
    except TimeoutError:  # nothing acknowledged is lost: it was written before
        _log.warning("store_release_unfinished", during=name)


def _log_as_the_host_does() -> None:
    """Send our log lines to ``logging``, unless the host has configured structlog.

    By default structlog prints to standard output, which belongs to the host.
    """
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
