"""The memory backend with a log that is sealed: for a try-out whose events are to outlive it.

The ring keeps the newest events as before; each is in a file as well, at the latest when the
segment is old enough. What a kill takes from memory before that is lost, as all the rest is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby, islice
from typing import Any

import structlog

from groupkeeper.storage.backends.memory import KeptEvent, MemoryOffsetStorage
from groupkeeper.storage.base import StorageError, StoreIdentity
from groupkeeper.storage.codec.events import event_dict
from groupkeeper.storage.event_log.clock import wall_clock_ms
from groupkeeper.storage.event_log.lines import RowLines
from groupkeeper.storage.event_log.sealing import CLOSE_S, POLL_S, Sealer, SealSettings
from groupkeeper.storage.job_thread import JobThread
from groupkeeper.storage.segment_lines import encode_line

_log = structlog.get_logger(__name__)


class SealedMemoryStorage(MemoryOffsetStorage):
    """A store in memory whose events become files."""

    def __init__(
        self,
        settings: SealSettings,
        *,
        clock: Callable[[], int] = wall_clock_ms,
        poll_s: float = POLL_S,
        **options: Any,
    ) -> None:
        """Start empty. ``options`` are those of ``MemoryOffsetStorage``."""
        super().__init__(clock=clock, **options)
        self._settings = settings
        self._sealer = Sealer(settings, clock)
        self._poll_s = poll_s
        self._thread: JobThread | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self, identity: StoreIdentity) -> None:
        """Open it and begin to seal."""
        await super().open(identity)
        try:
            self._settings.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            await super().close()
            raise StorageError(f"log.dir: {error}") from error
        self._thread = JobThread("log-sealer")
        self._task = asyncio.create_task(self._seal())

    async def close(self) -> None:
        """Seal what is there and close."""
        task, self._task = self._task, None
        thread, self._thread = self._thread, None
        try:
            if task is not None and thread is not None:
                task.cancel()
                await asyncio.wait([task])
                thread.submit(partial(self._take, self._new_events()))
                finishing = thread.submit(self._sealer.seal)
                thread.stop()
                await asyncio.wait([finishing], timeout=CLOSE_S)
        finally:  # whoever has no time left gives the store back as well
            await super().close()

    async def _seal(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            assert self._thread is not None
            try:
                await self._thread.submit(partial(self._take, self._new_events()))
                await self._thread.submit(self._sealer.seal_if_old)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                _log.warning("sealing_failed", error=str(error) or repr(error))
                await self._thread.submit(self._sealer.discard)

    def _new_events(self) -> list[KeptEvent]:
        """What was appended since the last look, as far as the ring still has it."""
        count = self._last_seq - self._sealer.taken_seq
        return list(islice(reversed(self._events), count))[::-1]

    def _take(self, events: Sequence[KeptEvent]) -> None:
        for stamp, row in groupby(events, key=lambda kept: kept.stamp):
            rendered = [event_dict(*kept) for kept in row]
            lines = ((event["group"], encode_line(event)) for event in rendered)
            self._sealer.take(RowLines(stamp.log_id, rendered[0]["seq"], stamp.ts_ms, lines))
