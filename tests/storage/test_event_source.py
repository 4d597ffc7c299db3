"""What every backend that keeps events promises to whoever seals or reads them
(storage/event_log/source.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from groupkeeper.coordinator.core.events import GroupCreated
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import Batch, StoreIdentity
from groupkeeper.storage.event_log.log_clock import LogReason
from groupkeeper.storage.event_log.reader import group_history, read_events
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from groupkeeper.storage.event_log.source import EventSource, LogNote, SealableStorage
from tests.helpers.core.records import commit
from tests.helpers.storage.sealed_store import until
from tests.helpers.storage.storage_owner import Owner

NOW_MS = 1_700_000_000_000


@pytest.fixture(params=["memory", "sqlite"])
async def owner(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Owner]:
    storage: SealableStorage = (
        MemoryOffsetStorage(clock=lambda: NOW_MS)
        if request.param == "memory"
        else SqliteOffsetStorage(tmp_path / "store.db", clock=lambda: NOW_MS, fold_after=0)
    )
    yield await Owner(storage).start()
    await storage.close()


def door(owner: Owner) -> EventSource:
    source: EventSource = owner.storage.event_source()  # type: ignore[attr-defined]
    return source


async def three_appends(owner: Owner) -> None:
    """The second one of two events, all at the same moment."""
    await owner.append(0, [commit("g", 1)])
    await owner.append(0, [commit("g", 2), commit("other", 1)])
    await owner.append(1, [commit("g", 3)])


async def test_rows_are_those_of_the_appends_and_go_on_above_any_seq(owner: Owner) -> None:
    await three_appends(owner)
    with closing(door(owner).open_rows()) as rows:
        assert rows.ends() == (1, 4)
        found = [row for row in rows.rows(0) if row.first_seq <= row.last_seq]
        assert [(row.first_seq, row.last_seq) for row in found] == [(1, 1), (2, 3), (4, 4)]
        assert sorted({row.row for row in found}) == [row.row for row in found]
        for seq in (4, 0, 1, 3):  # in any order: whoever goes on is only faster
            above = [row.last_seq for row in rows.rows(seq) if row.last_seq > seq]
            assert above == [last for last in (1, 3, 4) if last > seq]


async def test_a_row_is_rendered_as_events_and_as_the_same_lines(owner: Owner) -> None:
    await three_appends(owner)
    with closing(door(owner).open_rows()) as rows:
        for row in rows.rows(0):
            if row.first_seq <= row.last_seq:
                lines = row.lines()
                assert (lines.first_seq, lines.ts_ms) == (row.first_seq, NOW_MS)
                assert lines.log_id == rows.log_id_at(row.first_seq)
                told = [(group, msgspec.json.decode(line)["seq"]) for group, line in lines.lines]
                assert told == [(event["group"], event["seq"]) for event in row.events()]
            assert list(row.events(since_ms=NOW_MS + 1)) == []


async def test_rows_that_are_held_stay_as_they_are(owner: Owner) -> None:
    await three_appends(owner)
    with closing(door(owner).open_rows()) as held, closing(door(owner).open_rows()) as rows:
        held.hold()
        assert held.ends() == (1, 4)
        await owner.append(0, [commit("g", 4)])
        assert (held.ends().last_seq, rows.ends().last_seq) == (4, 5)
        assert max(row.last_seq for row in held.rows(0)) == 4


async def test_a_store_without_events_has_no_head_and_no_log(owner: Owner) -> None:
    assert await door(owner).head() == (None, 0)
    with closing(door(owner).open_rows()) as rows:
        assert rows.ends() == (1, 0)
        assert (rows.log_id_at(0), rows.log_id_at(1)) == (None, None)
        assert rows.note() == LogNote(frozenset(), None, door(owner).clock.store)


async def test_the_head_is_the_last_event(owner: Owner) -> None:
    await three_appends(owner)
    with closing(door(owner).open_rows()) as rows:
        assert await door(owner).head() == (rows.log_id_at(4), 4)
        assert rows.log_id_at(5) is None


async def test_a_log_that_is_left_goes_on_as_another(owner: Owner) -> None:
    await three_appends(owner)
    source = door(owner)
    before, _ = await source.head()
    source.clock.begin(before, reason=LogReason.OLDER_STORE)
    await owner.append(0, [commit("g", 4)])
    with closing(source.open_rows()) as rows:
        (new,) = (row for row in rows.rows(4) if row.last_seq > 4)
        started, _ = new.events()
        assert (started["kind"], started["reason"]) == ("log_started", "older_store")
        assert rows.log_id_at(5) != rows.log_id_at(4) == before


async def test_all_logs_of_a_store_have_its_name_which_is_that_of_the_first(owner: Owner) -> None:
    names = []
    for offset in range(3):
        await owner.append(0, [commit("g", offset)])
        await owner.storage.close()
        await owner.start()
        with closing(door(owner).open_rows()) as rows:
            names.append(rows.note().store)
    with closing(door(owner).open_rows()) as rows:
        events = [event for row in rows.rows(0) for event in row.events()]
    started = [event["store"] for event in events if event["kind"] == "log_started"]
    assert [*names, *started] == [events[0]["log_id"]] * 5


async def test_what_is_noted_is_read_again(owner: Owner) -> None:
    await three_appends(owner)
    source = door(owner)
    await source.note_place("/somewhere")
    await source.note_sealed(4, {"a", "b"}, ())
    await source.note_sealed(4, (), {"a"})
    with closing(source.open_rows()) as rows:
        assert rows.note() == LogNote(frozenset({"b"}), "/somewhere", source.clock.store, 4)


async def test_nothing_goes_that_is_not_noted_as_sealed(owner: Owner) -> None:
    await three_appends(owner)
    await owner.fold_all()
    source = door(owner)
    await source.trim(10**9)
    with closing(source.open_rows()) as rows:
        assert rows.ends() == (1, 4)


async def test_a_store_without_files_tells_which_events_it_has_no_more() -> None:
    memory = MemoryOffsetStorage(max_events=2)
    owner = await Owner(memory).start()
    rows = memory.event_source().open_rows

    def read(after_seq: int = 0, **asked: bool) -> tuple[list[int], list[tuple[int, int]]]:
        gaps: list[tuple[int, int]] = []
        found = read_events(rows, after_seq, on_gap=lambda *gap: gaps.append(gap), **asked)
        return [event["seq"] for event in found], gaps

    for offset in range(2):
        await owner.append(0, [commit("g", offset)])
    assert read() == ([1, 2], [])
    for offset in range(2):
        await owner.append(0, [commit("g", offset)])
    assert read() == ([3, 4], [(1, 2)])
    assert read(1) == ([3, 4], [(2, 2)])
    assert read(2) == ([3, 4], [])
    assert read(live_only=True) == ([3, 4], [])


async def test_sealing_adds_no_call_to_an_append(owner: Owner, tmp_path: Path) -> None:
    store: SealableStorage = owner.storage  # type: ignore[assignment]
    sealed = SealedStorage(store, SealSettings(directory=tmp_path / "log"))
    assert sealed.append == store.append
    assert sealed.unfolded == store.unfolded


async def test_history_of_a_sealed_store_is_told_from_files_and_rows(tmp_path: Path) -> None:
    memory = MemoryOffsetStorage(clock=lambda: NOW_MS, max_events=2)
    settings = SealSettings(directory=tmp_path / "log", segment_bytes=1)
    storage = SealedStorage(memory, settings, clock=lambda: NOW_MS, poll_s=0.001)
    await storage.open(StoreIdentity("test", 4))
    owner = Owner(storage)
    await owner.reload()
    for number in range(1, 6):
        await owner.append(0, [], [GroupCreated(group_id="g")])
        await until(lambda seq=number: storage.stats()["sealed_seq"] == seq)  # type: ignore[misc]
    assert [event["seq"] for event in memory.events()] == [4, 5]
    assert [event["seq"] async for event in storage.history("g")] == [1, 2, 3, 4, 5]
    rows = memory.event_source().open_rows
    assert [event["seq"] async for event in group_history(rows, "g")] == [1, 2, 3, 4, 5]
    await storage.close()


async def test_days_of_a_sealed_store_in_memory_go_by_the_horizon(tmp_path: Path) -> None:
    now_ms = NOW_MS
    memory = MemoryOffsetStorage(clock=lambda: now_ms)
    settings = SealSettings(directory=tmp_path / "log", segment_bytes=1, retention_ms=86_400_000)
    storage = SealedStorage(memory, settings, clock=lambda: now_ms, poll_s=0.001)
    owner = await Owner(storage).start()
    shard, first = 0, Batch([commit("g", 1)], [])
    assert not await storage.append([owner.item(shard, first)])
    await until(lambda: storage.stats()["sealed_seq"] == 1)
    (day,) = (tmp_path / "log").glob("dt=*/events-*")
    now_ms += 5 * 86_400_000
    await until(lambda: not day.exists())
    await storage.close()
