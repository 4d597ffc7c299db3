"""A SQLite store that seals. A test controls its clock and its crashes, and reads its files."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from groupkeeper import read_events
from groupkeeper.coordinator.core.events import Event
from groupkeeper.coordinator.core.records import Record
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import OffsetStorage
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from groupkeeper.storage.segment_lines import EventDict
from tests.helpers.storage.storage_owner import Owner

UNTIL_S = 60.0
"""A busy machine takes seconds to start a process that seals."""

NOON_MS = 1_700_049_600_000
DAY_MS = 86_400_000


class Crash(BaseException):
    """Raised by a test to simulate the end of the process. No code of ours may catch it."""


async def on_writer(storage: OffsetStorage, work: Callable[[sqlite3.Connection], Any]) -> Any:
    """Do work on the writer's thread and connection of a SQLite store, sealed or not."""
    store = storage.store if isinstance(storage, SealedStorage) else storage
    assert isinstance(store, SqliteOffsetStorage)
    return await store.on_writer(work)


class SealedStore:
    """One store and its directory of segments, opened again and again."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.path = directory / "store.db"
        self.log_dir = directory / "log"
        self.now_ms = NOON_MS
        self.steps: list[str] = []
        """The steps of sealing so far."""
        self.at_step: Callable[[str], None] = lambda step: None
        self.settings = SealSettings(directory=self.log_dir, **settings)
        self.fold_after = 0
        self.appended: list[EventDict] = []
        """Every event that was ever in a row. They are read before they are sealed."""

    def storage(self) -> SealedStorage:
        """Return a storage that seals all rows before it closes, on a busy machine as well."""
        storage = SealedStorage(
            self.plain(), self.settings, clock=self.clock, hook=self._hook, poll_s=0.001
        )
        storage.close_s = UNTIL_S
        return storage

    def plain(self) -> SqliteOffsetStorage:
        """Return a storage of the same file that does not seal."""
        return SqliteOffsetStorage(self.path, clock=self.clock, fold_after=self.fold_after)

    def clock(self) -> int:
        return self.now_ms

    def _hook(self, step: str) -> None:
        self.steps.append(step)
        self.at_step(step)

    async def owner(self) -> Owner:
        """Open and load the store. Return its owner."""
        return await Owner(self.storage()).start()

    async def append(
        self, owner: Owner, shard: int, records: Sequence[Record] = (), events: Sequence[Event] = ()
    ) -> None:
        """Append, and record the events of the row.

        Then wait for the fold, so that the next row records this one as folded. An append does not
        wait for its fold, but a later job of the same thread does.
        """
        last = self.appended[-1]["seq"] if self.appended else 0
        await owner.append(shard, records, events)
        await on_writer(owner.storage, lambda _: None)
        self.appended += read_events(self.path, last, live_only=True)

    def read(self, **wanted: Any) -> list[EventDict]:
        """Return all events that a reader gets."""
        return list(read_events(self.path, log_dir=self.log_dir, **wanted))

    def files(self) -> list[str]:
        """Return the file names of the sealed segments. Retention may delete a day meanwhile."""
        names: list[str] = []
        for day in self.log_dir.glob("dt=*"):
            with suppress(FileNotFoundError):
                names += [path.name for path in day.glob("events-*")]
        return sorted(names)

    def live_seqs(self) -> list[int]:
        """Return the seqs of the events that are still in rows."""
        return [event["seq"] for event in read_events(self.path, live_only=True)]

    def image(self, target: Path) -> SealedStore:
        """Return a copy of the store as a kill at this moment would leave it."""
        target.mkdir()
        for suffix in ("", "-wal"):
            if (file := self.path.with_name(self.path.name + suffix)).exists():
                shutil.copy(file, target / file.name)
        if self.log_dir.exists():
            shutil.copytree(self.log_dir, target / "log", copy_function=_copy_what_is_there)
        image = SealedStore(target)
        image.settings = SealSettings(
            directory=image.log_dir,
            segment_bytes=self.settings.segment_bytes,
            segment_ms=self.settings.segment_ms,
            retention_ms=self.settings.retention_ms,
        )
        image.now_ms = self.now_ms
        image.fold_after = self.fold_after
        image.appended = list(self.appended)
        return image


def _copy_what_is_there(source: str, target: str) -> None:
    """Copy a file, unless sealing renames it at this moment. Then the store, which was copied
    earlier, still has its rows.
    """
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


async def until(condition: Callable[[], bool]) -> None:
    """Let other threads and processes work until the condition is true, with a time limit."""
    async with asyncio.timeout(UNTIL_S):
        while not condition():  # noqa: ASYNC110 - nothing tells when it changes
            await asyncio.sleep(0.001)
