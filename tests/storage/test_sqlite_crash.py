"""Whatever moment the power goes, a start loads a prefix that holds all that was acknowledged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from groupkeeper import read_events
from groupkeeper.coordinator.core.records import (
    GroupRemoved,
    PartitionEnd,
    Record,
    TopicRecord,
    TopicRemoved,
)
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from tests.helpers.core.records import commit, group_record
from tests.helpers.storage.spying_connection import Spy
from tests.helpers.storage.storage_owner import Owner

WAL_HEADER_BYTES = 32
FRAME_BYTES = 24 + 4096

STEPS: list[tuple[int, list[Record]]] = [
    (-1, [TopicRecord("orders", "x", 3)]),
    (0, [group_record("a"), commit("a", 1, partitions=3)]),
    (1, [commit("b", 1), PartitionEnd("x", 0, 9)]),
    (0, [commit("a", 2, partitions=3)]),
    (1, [GroupRemoved("b")]),
    (0, [commit("c", 1, metadata="x" * 9_000)]),
    (-1, [TopicRemoved("orders")]),
    (1, [commit("b", 5)]),
    (0, [commit("a", 3), PartitionEnd("x", 0, -1)]),
]

Keys = dict[Any, Any]


async def load_copy(path: Path) -> Keys:
    """Start on a copy as a new process would."""
    owner = await Owner(SqliteOffsetStorage(path)).start()
    try:
        return owner.model.keys
    finally:
        await owner.storage.close()


def copy_store(source: Path, target: Path) -> Path:
    """Copy what a power cut would leave: the file and its WAL, but no shared memory."""
    target.mkdir()
    for suffix in ("", "-wal"):
        if (file := source.with_name(source.name + suffix)).exists():
            shutil.copy(file, target / file.name)
    return target / source.name


@pytest.mark.parametrize("fold_after", [0, 50_000])
async def test_a_wal_cut_anywhere_loads_a_prefix_of_what_was_acknowledged(
    tmp_path: Path, fold_after: int
) -> None:
    path = tmp_path / "store.db"
    wal = tmp_path / "store.db-wal"
    owner = await Owner(SqliteOffsetStorage(path, fold_after=fold_after)).start()
    states: list[Keys] = [{}]
    durable_at = [0]
    for shard, records in STEPS:
        await owner.append(shard, records)
        states.append(dict(owner.model.keys))
        durable_at.append(wal.stat().st_size)
    image = copy_store(path, tmp_path / "image")
    await owner.storage.close()
    whole = image.with_name("store.db-wal").read_bytes()

    frames = range(WAL_HEADER_BYTES, len(whole) + 1, FRAME_BYTES)
    assert frames[-1] == len(whole)
    seen = 0
    for cut in [0, *frames, *(end - FRAME_BYTES // 2 for end in frames[1:])]:
        copy = tmp_path / f"cut-{cut}" / "store.db"
        copy.parent.mkdir()
        shutil.copy(image, copy)
        copy.with_name("store.db-wal").write_bytes(whole[:cut])
        keys = await load_copy(copy)
        acknowledged = sum(size <= cut for size in durable_at) - 1
        assert keys in states[acknowledged:]
        seen = max(seen, acknowledged)
        shutil.rmtree(copy.parent)
    assert seen == len(STEPS)


class Killed(NamedTuple):
    """What a kill leaves, and which of the states it may load to."""

    path: Path
    may_be: list[Keys]


async def kill_around_any_statement(tmp_path: Path) -> list[Killed]:
    """Take the steps, and a picture before and after each statement of the writer."""
    path = tmp_path / "store.db"
    spy = Spy()
    owner = await Owner(SqliteOffsetStorage(path, fold_after=0, connect=spy.connect)).start()
    images: list[tuple[Path, int]] = []
    acknowledged = 0

    def photograph(sql: str) -> None:
        image = copy_store(path, tmp_path / f"image-{len(images)}")
        images.append((image, acknowledged))

    spy.before = spy.after = photograph
    states: list[Keys] = [dict(owner.model.keys)]
    for shard, records in STEPS:
        await owner.append(shard, records)
        states.append(dict(owner.model.keys))
        acknowledged += 1
    await owner.storage.close()
    assert len(images) > 4 * len(STEPS)  # a row and a fold at least, before and after each
    # At most the one append in flight is there besides.
    return [Killed(image, states[least : least + 2]) for image, least in images]


async def test_a_kill_around_any_statement_loses_nothing_acknowledged(tmp_path: Path) -> None:
    for killed in await kill_around_any_statement(tmp_path):
        assert await load_copy(killed.path) in killed.may_be


async def test_what_a_start_finds_after_a_kill_is_found_by_every_later_one(tmp_path: Path) -> None:
    """The rows written since say how much of the log is folded, the row before the kill included:
    also where the kill came between it and the table that its topics and ends stand in.
    """
    for killed in await kill_around_any_statement(tmp_path):
        owner = await Owner(SqliteOffsetStorage(killed.path)).start()
        assert owner.model.keys in killed.may_be
        await owner.fold_all()
        for _ in range(2):
            await owner.append(2, [commit("later", 1)])
            await owner.fold_all()
        await owner.storage.close()
        assert await load_copy(killed.path) == owner.model.keys


async def test_a_second_start_after_a_crash_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    owner = await Owner(SqliteOffsetStorage(path, fold_after=2)).start()
    for shard, records in STEPS:
        await owner.append(shard, records)
    image = copy_store(path, tmp_path / "image")
    await owner.storage.close()
    for _ in range(2):
        assert await load_copy(image) == owner.model.keys
    events = list(read_events(image))
    assert events == list(read_events(path))
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
