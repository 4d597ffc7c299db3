"""What SQLite folds behind an append, in which parts, and what happens when that goes wrong."""

from __future__ import annotations

import sqlite3
import threading

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.core.records import (
    GroupRemoved,
    OffsetsRemoved,
    TopicRecord,
    TopicRemoved,
)
from groupkeeper.storage.backends.sqlite.fold_write import MAX_DELETED_PARTS
from groupkeeper.storage.base import Batch, Lease
from tests.helpers.core.records import commit
from tests.helpers.storage.sqlite_bench import (
    INSERT_GROUPS,
    INSERT_KEYED,
    INSERT_PART,
    INSERT_ROW,
    Bench,
    seqs,
)

# --- the fold ------------------------------------------------------------------------------------


async def test_nothing_is_folded_up_to_the_threshold_and_the_oldest_beyond(bench: Bench) -> None:
    bench.fold_after = 20
    owner = await bench.owner()
    for number in range(20):
        await owner.append(number % 4, [commit(f"g{number}", 1)])
    assert bench.spy.statements == [INSERT_ROW] * 20
    assert owner.storage.unfolded() == 20
    batches = Batch([commit("new", 1)], [])
    owner.model.apply(0, commit("new", 1))
    items = [owner.item(0, batches), *(owner.item(shard) for shard in (1, 2, 3))]
    may_fold = threading.Event()

    def hold_folds(sql: str) -> None:
        if sql.startswith(INSERT_GROUPS):
            may_fold.wait()

    bench.spy.before = hold_folds
    assert not await owner.storage.append(items)
    assert owner.storage.unfolded() == 21, "what was taken counts once it is written"
    may_fold.set()
    await owner.storage.on_writer(lambda _: None)
    assert owner.storage.unfolded() == 13
    oldest = [(f"g{number}",) for number in range(8)]
    assert sorted(bench.sql("SELECT group_id FROM groups")) == oldest


async def test_a_load_reads_only_what_is_above_the_folded_row(bench: Bench) -> None:
    bench.fold_after = 2
    owner = await bench.owner()
    for number in range(40):
        await owner.append(0, [commit(f"g{number % 12}", number)])
    await owner.storage.on_writer(lambda _: None)
    unfolded = owner.storage.unfolded()
    assert unfolded < 15
    await owner.storage.close()
    # Rows that were folded are no longer needed: what trimming will rely on.
    bench.sql(f"DELETE FROM log WHERE row <= {40 - unfolded} AND row < 40")
    again = await bench.owner()
    assert again.model.keys == owner.model.keys
    assert again.storage.unfolded() == unfolded


async def test_folded_tables_are_the_offsets_that_people_query(bench: Bench) -> None:
    owner = await bench.owner()
    await owner.append(3, [commit("g", 7, topic="a.b'\"c", partitions=12, metadata="\u00e9")])
    await owner.fold_all()
    await bench.folded(owner)
    found = bench.sql(
        'SELECT shard, group_id, topic, "partition", committed_offset, metadata FROM offsets'
    )
    assert sorted(found) == [(3, "g", "a.b'\"c", number, 7, "\u00e9") for number in range(12)]


@pytest.mark.parametrize("released", [False, True])
async def test_a_clean_end_keeps_what_an_idle_store_has_folded(
    bench: Bench, released: bool
) -> None:
    owner = await bench.owner()
    for number in range(10):
        await owner.append(0, [commit(f"g{number}", 1)])
    await owner.fold_all()
    if released:
        await owner.storage.release([Lease(0, owner.name, owner.epoch)])
    await owner.storage.close()
    again = await bench.owner()
    assert again.storage.unfolded() == 0
    assert again.model.keys == owner.model.keys


# --- failure ---


@pytest.mark.parametrize("load_comes_first", [False, True])
async def test_a_fold_that_fails_fails_no_append_and_is_made_up_for(
    bench: Bench, load_comes_first: bool
) -> None:
    bench.fold_after = 0
    owner = await bench.owner()
    await owner.append(0, [commit("g", 1)])
    await bench.written(owner)

    def fail(sql: str) -> None:
        if sql.startswith(INSERT_GROUPS):
            bench.spy.before = lambda sql: None
            raise sqlite3.DataError("string or blob too big")

    bench.spy.before = fail
    with capture_logs() as logged:
        await owner.append(0, [commit("g", 2), commit("h", 2)])
        await bench.written(owner)
        assert owner.storage.unfolded() == 1, "what was not written counts as folded"
    assert [(entry["event"], entry["error"]) for entry in logged] == [
        ("fold_failed", "string or blob too big")
    ]
    assert owner.storage.stats()["fold_failures"] == 1
    await owner.append(0, [commit("i", 3)])
    await bench.written(owner)
    assert owner.storage.unfolded() == 2, "a row above what is not folded counts as folded"
    if load_comes_first:
        await owner.reload()
    assert owner.model.keys["offset", 0, "g", "orders", 0][0] == 2
    await owner.fold_all()
    assert seqs(bench) == [1, 2, 3, 4]
    again = await bench.reopened(owner)
    assert again.storage.unfolded() == 0
    assert again.model.keys == owner.model.keys


async def test_a_group_that_can_never_be_written_holds_up_no_other(bench: Bench) -> None:
    bench.fold_after = 0
    owner = await bench.owner()

    def refuse(sql: str) -> None:
        if sql.startswith(INSERT_GROUPS) and "cursed" in bench.spy.parameters:
            raise sqlite3.DataError("string or blob too big")

    bench.spy.before = refuse
    for number in range(40):
        await owner.append(0, [commit("cursed", number), commit(f"g{number}", 1)])
    for _ in range(100):
        await owner.fold()
    written = {name for (name,) in bench.sql("SELECT group_id FROM groups")}
    assert written == {f"g{number}" for number in range(40)}
    again = await bench.reopened(owner)
    assert again.model.keys == owner.model.keys


async def test_a_table_of_keys_that_cannot_be_written_fails_no_append_and_is_made_up_for(
    bench: Bench,
) -> None:
    owner = await bench.owner()

    def fail(sql: str) -> None:
        if sql.startswith(INSERT_KEYED):
            raise sqlite3.OperationalError("disk I/O error")

    bench.spy.before = fail
    await owner.append(-1, [TopicRecord("orders", "x", 3), TopicRecord("gone", "y", 1)])
    await owner.append(-1, [TopicRemoved("gone")])
    for number in range(3):
        await owner.append(0, [commit("g", number)])
        await owner.fold()
    assert bench.folded_row() < 1, "a load would begin above a topic that is in no table"
    bench.spy.before = lambda sql: None
    await owner.append(0, [commit("g", 4)])
    await bench.written(owner)
    assert bench.sql("SELECT shard, key FROM keyed") == [(-1, "topic/orders")]
    await owner.fold_all()
    again = await bench.reopened(owner)
    assert again.model.keys == owner.model.keys
    assert again.storage.unfolded() == 0


# --- large groups --------------------------------------------------------------------------------


async def test_a_large_group_is_folded_in_parts_of_which_each_append_writes_one(
    bench: Bench,
) -> None:
    bench.part_bytes = 1_000
    owner = await bench.owner()
    await owner.append(0, [commit("large", 1, partitions=50)])
    await owner.append(0, [commit("small", 1)])
    await owner.fold()
    assert bench.sql("SELECT count(*) FROM group_parts") == [(1,)]
    assert owner.storage.unfolded() == 2, "a part is not the group"
    await owner.fold_all()
    ((parts, largest),) = bench.sql("SELECT count(*), max(length(state)) FROM group_parts")
    assert parts == 7
    assert largest < 1_100
    assert bench.offsets("large") == dict.fromkeys(range(50), 1)
    again = await bench.reopened(owner)
    assert again.storage.unfolded() == 0
    assert again.model.keys == owner.model.keys


async def test_what_changes_while_a_group_is_folded_in_parts_is_lost_at_no_point(
    bench: Bench,
) -> None:
    bench.part_bytes = 1_000
    owner = await bench.owner()
    await owner.append(0, [commit("large", 0, partitions=30)])
    await owner.fold_all()
    for offset in range(1, 12):
        await owner.append(0, [commit("large", offset, partitions=offset)])
        if offset == 6:
            await owner.append(0, [OffsetsRemoved("large", [("orders", n) for n in (2, 29)])])
        await owner.fold()
        killed = await bench.copied()
        assert killed.model.keys == owner.model.keys
        await killed.fold_all()
        again = await bench.reopened(killed)
        assert again.model.keys == owner.model.keys
        await again.storage.close()


@pytest.mark.parametrize("becomes", ["small", "gone", "new"])
async def test_the_parts_of_a_group_go_once_they_count_no_more(bench: Bench, becomes: str) -> None:
    bench.part_bytes = 1_000
    owner = await bench.owner()
    await owner.append(0, [commit("g", 1, partitions=30)])
    await owner.fold_all()
    await owner.append(0, [commit("g", 2, partitions=30)])
    await owner.fold()
    if becomes == "small":
        await owner.append(0, [OffsetsRemoved("g", [("orders", n) for n in range(29)])])
    else:
        await owner.append(0, [GroupRemoved("g")])
    if becomes == "new":
        await owner.append(0, [commit("g", 3, topic="other", partitions=20)])
    await owner.fold_all()
    again = await bench.reopened(owner)
    assert again.model.keys == owner.model.keys
    ((sets,),) = bench.sql("SELECT count(DISTINCT part_set) FROM group_parts")
    assert sets == (1 if becomes == "new" else 0)
    offsets = {"small": {29: 2}, "gone": {}, "new": dict.fromkeys(range(20), 3)}
    assert bench.offsets("g") == offsets[becomes]


@pytest.mark.parametrize("restarts", [False, True])
async def test_the_parts_of_a_deleted_group_go_a_few_with_each_append(
    bench: Bench, restarts: bool
) -> None:
    """All at once would hold the writer's thread, and the appends behind it, for seconds."""
    bench.part_bytes = 1_000
    owner = await bench.owner()
    await owner.append(0, [commit("g", 1, partitions=400)])
    await owner.fold_all()
    ((left,),) = bench.sql("SELECT count(*) FROM group_parts")
    assert left > 3 * MAX_DELETED_PARTS
    await owner.append(0, [GroupRemoved("g")])
    await owner.fold()
    await bench.written(owner)
    if restarts:
        owner = await bench.reopened(owner)
        assert owner.model.keys == {}
    while left:
        before = left
        await owner.append(0, [commit("other", 1, partitions=1)])
        await bench.written(owner)
        ((left,),) = bench.sql("SELECT count(*) FROM group_parts")
        assert before - 2 * MAX_DELETED_PARTS <= left < before


async def test_a_group_that_grows_again_keeps_its_parts_while_earlier_ones_are_deleted(
    bench: Bench,
) -> None:
    bench.part_bytes = 1_000
    owner = await bench.owner()
    await owner.append(0, [commit("g", 1, partitions=400)])
    await owner.fold_all()
    await owner.append(0, [GroupRemoved("g")])
    await owner.fold()
    await owner.append(0, [commit("g", 2, partitions=300)])
    await owner.fold_all()
    assert len(bench.offsets("g")) == 300
    again = await bench.reopened(owner)
    assert again.model.keys == owner.model.keys
    for _ in range(5):
        await again.append(0, [commit("other", 1, partitions=1)])
        await bench.written(again)
    assert bench.sql("SELECT count(DISTINCT part_set) FROM group_parts") == [(1,)]
    assert set(bench.offsets("g").values()) == {2}


async def test_parts_that_are_still_there_count_no_more_once_their_group_is_small(
    bench: Bench,
) -> None:
    bench.part_bytes = 1_000
    owner = await bench.owner()
    await owner.append(0, [commit("g", 1, partitions=30)])
    await owner.fold_all()
    await owner.append(0, [OffsetsRemoved("g", [("orders", n) for n in range(29)])])

    def fail(sql: str) -> None:
        if sql.startswith("DELETE FROM group_parts"):
            raise sqlite3.OperationalError("disk I/O error")

    bench.spy.before = fail
    await owner.fold()
    await bench.written(owner)
    assert bench.sql("SELECT count(*) > 0 FROM group_parts") == [(1,)]
    assert bench.offsets("g") == {29: 1}


async def test_parts_of_which_one_cannot_be_written_are_begun_anew(bench: Bench) -> None:
    bench.part_bytes = 1_000
    owner = await bench.owner()
    await owner.append(0, [commit("large", 1, partitions=30)])
    await owner.fold()

    def fail(sql: str) -> None:
        if sql.startswith(INSERT_PART):
            bench.spy.before = lambda sql: None
            raise sqlite3.OperationalError("disk I/O error")

    bench.spy.before = fail
    await owner.append(0, [commit("large", 2, partitions=3)])
    await owner.fold_all()
    again = await bench.reopened(owner)
    assert again.model.keys == owner.model.keys
    assert len(bench.offsets("large")) == 30
