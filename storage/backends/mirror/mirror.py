"""The mirror: a copy of the groups in a layout that other programs read.

After the store has saved changed groups (a fold), the mirror writes their newest values over its
own session. No request waits for the mirror. It deletes only nodes that it has written, and never
those of other programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol

import structlog

from groupkeeper.coordinator.core.records import TopicRecord
from groupkeeper.storage.backends.journal.driver import Value
from groupkeeper.storage.backends.mirror.backlog import MirrorBacklog
from groupkeeper.storage.backends.mirror.mirrored import IsName, MirroredGroup, mirrored_group
from groupkeeper.storage.base import StorageError
from groupkeeper.storage.cancellation import unless_cancelled
from groupkeeper.storage.codec.records import decode_record, decode_saved
from groupkeeper.storage.connections.backoff import Backoff

PAUSE_S: Final = 1.0
"""The mirror is written at most once in this time, so a group that commits often costs little."""

REST: Final = 3
"""The shortest pause after a round, as a multiple of the round's duration. So the mirror writes for
at most a quarter of the time."""

MAX_RETRY_MS: Final = 30_000
"""The longest pause after a failure. A missing permission is retried too, because an operator may
grant it."""

LAST_ROUND_S: Final = 1.0
"""How long a clean stop waits for the last round, which writes the newest offsets."""

CLOSE_S: Final = 1.0
"""How long a clean stop waits for the end of the session."""

THREAD_BYTES: Final = 64 * 1024
"""The size above which a group is decoded on a thread, not on the event loop."""

_TOPIC: Final = "topic/"
"""The beginning of the keys of topics (``storage.codec.records.own_key``)."""

_log = structlog.get_logger(__name__)


class MirrorSession(Protocol):
    """A connection that writes the mirror. When the session ends, the server deletes the members
    and owners that the session has written.
    """

    @property
    def why_ended(self) -> str | None:
        """The reason why the session ended; None if it has not ended."""

    async def wait_ended(self) -> object:
        """Wait until the session has ended."""

    async def write(
        self, group_id: str, wanted: MirroredGroup | None, partitions: Mapping[str, int]
    ) -> bool:
        """Write the changes of one group. ``wanted`` is None if the group was deleted.
        ``partitions`` has the number of partitions of each topic.

        Return False if a node could not be written, because another program or an earlier process
        of ours owns it.
        """

    async def close(self) -> None:
        """End the session."""


class Mirror:
    """Writes the groups of this process for programs that read the server of the store."""

    def __init__(
        self,
        open_session: Callable[[], Awaitable[MirrorSession]],
        is_name: IsName,
    ) -> None:
        """``is_name`` returns whether a name can be used in the layout, unchanged."""
        self._open_session = open_session
        self._is_name = is_name
        self._backlog = MirrorBacklog()
        self._wanted: dict[str, MirroredGroup] = {}
        self._topic_names: dict[str, str] = {}
        self._partitions: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._session: MirrorSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start the task that writes the mirror. It has no groups yet: this process has registered
        with the store anew, and loads its groups next.
        """
        self._task = asyncio.get_running_loop().create_task(self._run())

    def end(self) -> None:
        """Forget all groups, and end the session without waiting. Members and owners disappear from
        the mirror; offsets stay.
        """
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._wanted.clear()
        self._topic_names.clear()
        self._partitions.clear()
        self._backlog.clear()
        session, self._session = self._session, None
        if session is not None:
            self._closing = asyncio.get_running_loop().create_task(session.close())

    async def close(self) -> None:
        """Write the values that still wait, if ``LAST_ROUND_S`` is enough. Then end the session."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=LAST_ROUND_S)
        if self._session is not None and self._session.why_ended is None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(LAST_ROUND_S):
                    await unless_cancelled(self._round())
        self.end()
        if self._closing is not None:
            await asyncio.wait([self._closing], timeout=CLOSE_S)

    def changed(self, values: Iterable[Value]) -> None:
        """Queue changed values for the next round. Of values that are not groups, only topics are
        needed.
        """
        for value in values:
            if value.is_group and self._is_name(value.key):
                self._backlog.changed(value.key, value.data, time.monotonic())
            elif not value.is_group and value.key.startswith(_TOPIC) and value.data is not None:
                record = decode_record(value.data)
                if isinstance(record, TopicRecord):
                    self._topic_names[record.topic_id] = record.name
                    self._partitions[record.name] = record.partitions
        self._wake.set()

    def lag_s(self) -> float:
        """Return the age in seconds of the oldest change that is not mirrored; 0 if there is
        none.
        """
        return self._backlog.lag_s(time.monotonic())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(first_ms=1_000, most_ms=MAX_RETRY_MS)
        while True:
            await self._wake.wait()
            self._wake.clear()
            began_s = loop.time()
            pause_s = PAUSE_S
            try:
                await self._round()
                backoff.succeeded()
            except Exception as error:  # noqa: BLE001 - no failure of the mirror stops the store
                pause_s = backoff.next_s()
                self._wake.set()
                _log.warning(
                    "mirror_failed", error=str(error) or repr(error), retry_s=round(pause_s, 1)
                )
            await asyncio.sleep(max(pause_s, REST * (loop.time() - began_s)))
            if self._backlog:
                self._wake.set()

    async def _round(self) -> None:
        """Write the changed groups to the mirror. If groups cannot be written, raise the last error
        after all groups were tried, or at once if the session has ended.
        """
        session = await self._opened()
        for group_id in self._backlog.waiting():
            await self._want(group_id, self._backlog.take(group_id))
        problem: Exception | None = None
        for group_id in self._backlog.unfinished():
            wanted = self._wanted.get(group_id)
            try:
                if await session.write(group_id, wanted, self._partitions):
                    self._backlog.written(group_id)
            except Exception as error:
                if session.why_ended is not None:
                    raise
                problem = error
        if problem is not None:
            raise problem

    async def _opened(self) -> MirrorSession:
        session = self._session
        if session is None or session.why_ended is not None:
            self._session = None
            if session is not None:
                with contextlib.suppress(Exception):  # it has ended: close only its connection
                    await session.close()
            session = self._session = await self._open_session()
            self._backlog.lost(self._wanted, time.monotonic())
            ended = asyncio.ensure_future(session.wait_ended())
            ended.add_done_callback(lambda _: self._wake.set())
        return session

    async def _want(self, group_id: str, data: bytes | None) -> None:
        self._wanted.pop(group_id, None)
        if data is None:
            return
        with contextlib.suppress(StorageError):  # a load of the shard reports a damaged value
            if len(data) > THREAD_BYTES:
                self._wanted[group_id] = await asyncio.to_thread(self._mirrored, data)
            else:
                self._wanted[group_id] = self._mirrored(data)

    def _mirrored(self, data: bytes) -> MirroredGroup:
        return mirrored_group(decode_saved(data), self._topic_names, self._is_name)
