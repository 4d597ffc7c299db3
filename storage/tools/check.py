"""Read a whole store and measure its speed, for ``groupkeeper storage check``. Changes no group."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from groupkeeper.coordinator.core.records import Record, SavedGroup, SavedOffsets
from groupkeeper.storage.backends.journal.others import StoreInUse
from groupkeeper.storage.backends.journal.store import boot_time_ms
from groupkeeper.storage.base import CLUSTER_SHARD, ShardId, StorageError, StoreIdentity
from groupkeeper.storage.codec.records import decode_record, decode_saved
from groupkeeper.storage.tools.short_life import short_life

if TYPE_CHECKING:
    from groupkeeper.storage.backends.journal.driver import JournalDriver, Value

MEASURED_CALLS: Final = 20
SLOW_WRITE_MS: Final = 20.0
"""The report names a durable write that takes longer, because each commit waits for one."""

_T = TypeVar("_T")


@dataclass
class StoreReport:
    """The findings of a check of a whole store."""

    used_by: str = ""
    """The process that uses the store; empty if no process uses it, or if this cannot be found out.
    """
    groups: int = 0
    offsets: int = 0
    unfolded: int = 0
    """The number of requests that a start has to read from the log of a SQLite file, because they
    are not folded: no saved state of a group contains their results yet."""
    largest_group: str = ""
    largest_offsets: int = 0
    read_ms: float = 0.0
    round_trip_ms: float | None = None
    """The median duration of a call that only reads. None for a file."""
    write_ms: float | None = None
    """The median duration of a durable write. None if it was not measured."""
    advice: list[str] = field(default_factory=list)
    """Advice for the operator, a line each. The store works even if nobody follows it."""
    problems: list[str] = field(default_factory=list)
    """A line for each value that is damaged or unreadable."""

    def add(self, record: Record) -> None:
        """Count a record that a load returned. The parts of a large group follow the group's first
        record.
        """
        if isinstance(record, SavedGroup):
            self.groups += 1
        elif not isinstance(record, SavedOffsets):
            return
        many = sum(len(rows) for rows in record.offsets.values())
        self.offsets += many
        if many >= self.largest_offsets:
            self.largest_group, self.largest_offsets = record.group_id, many


async def check_sqlite(path: Path) -> StoreReport:
    """Read and check the file of a SQLite store. A daemon may use the store at the same time."""
    from groupkeeper.storage.backends.sqlite.check import SqliteCheck
    from groupkeeper.storage.backends.sqlite.fold import FoldMap
    from groupkeeper.storage.backends.sqlite.load import SqliteLoad
    from groupkeeper.storage.backends.sqlite.rows import SqliteRows

    report = StoreReport()
    SqliteRows(path).close()  # refuses what is not a store
    if (damage := await SqliteCheck(path, busy_timeout_s=5.0).run()) is not None:
        report.problems.append(damage)

    async def run(work: Callable[[], _T], /) -> _T:
        return work()

    load = SqliteLoad(run, path, 5.0, FoldMap())
    began = time.perf_counter()
    try:
        async for _, records in load.read(_EveryShard()):
            for record in records:
                report.add(record)
    except StorageError as error:
        report.problems.append(str(error))
    report.read_ms = (time.perf_counter() - began) * 1000
    report.unfolded = load.fold.unfolded
    return report


class _EveryShard(frozenset[ShardId]):
    """A set that contains every shard. Only the file itself knows how many shards there are."""

    def __contains__(self, shard: object) -> bool:
        return True


async def check_journal(
    driver: JournalDriver,
    identity: StoreIdentity,
    *,
    lease_ttl_ms: int,
    measures_writes: bool = False,
    timer_ms: Callable[[], int] = boot_time_ms,
) -> StoreReport:
    """Read and check the values of a store with a journal.

    To measure writes, the check registers as a user of the store for a moment. No other process can
    start in this time. If a process that used the store was killed, such as an earlier check, this
    check first waits until the registration of that process counts as dead (``lease_ttl_ms``).
    Nothing is written if a process uses the store.
    """
    report = StoreReport()
    await driver.open(identity)
    try:
        lives = await driver.lives()
        if lives:
            report.used_by = f"node {lives[0].node_id} ({lives[0].name})"
        report.round_trip_ms = await median_ms(driver.lives)
        began = time.perf_counter()
        async for values in driver.read([CLUSTER_SHARD, *range(identity.shards)]):
            for value in values:
                _add_value(report, value)
        report.read_ms = (time.perf_counter() - began) * 1000
        if measures_writes:
            with suppress(StoreInUse):
                await _measure_writes(driver, report, lease_ttl_ms, timer_ms)
    finally:
        await driver.close()
    return report


def _add_value(report: StoreReport, value: Value) -> None:
    kind = "group" if value.is_group else "record"
    try:
        decode = decode_saved if value.is_group else decode_record
        report.add(decode(value.data or b""))
    except StorageError as error:
        report.problems.append(
            f"the value of {kind} {value.key!r} cannot be read ({error}), so shard {value.shard} "
            "stays LOADING: restore the value, or delete it to lose this group"
        )


async def _measure_writes(
    driver: JournalDriver, report: StoreReport, lease_ttl_ms: int, timer_ms: Callable[[], int]
) -> None:
    async with short_life(driver, "check", lease_ttl_ms, timer_ms) as life_id:
        report.used_by = ""  # the process that was registered is dead
        report.write_ms = await median_ms(lambda: driver.beat(life_id))


async def median_ms(call: Callable[[], Awaitable[object]]) -> float:
    """Make some calls, one after another, and return the median duration in milliseconds."""
    took = []
    for _ in range(MEASURED_CALLS):
        began = time.perf_counter()
        await call()
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)
