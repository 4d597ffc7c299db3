"""Stores with several logs are read as one stream, from a seq in each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.event_log.several_logs import Logs, end_of, read_logs
from tests.helpers.core.records import commit
from tests.helpers.storage.storage_owner import Owner

START_MS = 1_000


class TwoLogs:
    """Two stores in memory, as if they were the shards of one."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.owners: dict[str, Owner] = {}

    async def open(self) -> None:
        for name in ("a", "b"):
            storage = MemoryOffsetStorage(clock=lambda: self.now_ms)
            self.owners[name] = await Owner(storage).start()

    async def append(self, name: str, offset: int) -> None:
        self.now_ms += 1
        await self.owners[name].append(0, [commit(name, offset)])

    @property
    def logs(self) -> Logs:
        return {
            name: owner.storage.event_source().open_rows  # type: ignore[attr-defined]
            for name, owner in self.owners.items()
        }


def told(events: Any) -> list[tuple[str, int]]:
    return [(event["group"], event["seq"]) for event in events]


@pytest.fixture
async def two() -> AsyncIterator[TwoLogs]:
    two = TwoLogs()
    await two.open()
    for name in ("a", "b", "b", "a", "b"):
        await two.append(name, 1)
    yield two
    for owner in two.owners.values():
        await owner.storage.close()


async def test_events_come_in_the_order_of_their_times(two: TwoLogs) -> None:
    assert told(read_logs(two.logs)) == [("a", 1), ("b", 1), ("b", 2), ("a", 2), ("b", 3)]


async def test_a_reader_goes_on_behind_a_position_and_ends_at_one(two: TwoLogs) -> None:
    end = end_of(two.logs)
    assert end == {"a": 2, "b": 3}
    await two.append("b", 2)
    await two.append("a", 2)
    later = end_of(two.logs)
    await two.append("b", 3)
    assert told(read_logs(two.logs, end, later)) == [("b", 4), ("a", 3)]
    assert told(read_logs(two.logs, {"b": 4})) == [("a", 1), ("a", 2), ("a", 3), ("b", 5)]


async def test_what_is_asked_of_one_log_is_asked_of_each(two: TwoLogs) -> None:
    assert told(read_logs(two.logs, group_id="a")) == [("a", 1), ("a", 2)]
    assert told(read_logs(two.logs, since_ms=START_MS + 4)) == [("a", 2), ("b", 3)]
