"""What an append on SQLite is made of, and what happens when it goes wrong."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing, suppress

import pytest

from groupkeeper import read_events
from groupkeeper.coordinator.core.records import (
    GroupRemoved,
    OffsetsCommitted,
    TopicRecord,
    TopicRemoved,
)
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import Batch, StorageError
from tests.helpers.core.records import commit, group_record
from tests.helpers.storage.noise import noise
from tests.helpers.storage.sqlite_bench import (
    DELETE_GROUPS,
    INSERT_GROUPS,
    INSERT_KEYED,
    INSERT_ROW,
    Bench,
    seqs,
)
from tests.helpers.storage.storage_owner import IDENTITY, SHARDS

# --- the shape of an append ----------------------------------------------------------------------


async def test_an_append_is_one_statement_and_one_row(bench: Bench) -> None:
    owner = await bench.owner()
    items = [
        owner.item(shard, *(Batch([commit(f"{shard}-{n}", n)], []) for n in range(16)))
        for shard in (0, 1, 2, 3)
    ]
    assert not await owner.storage.append(items)
    assert bench.spy.statements == [INSERT_ROW]
    assert bench.sql("SELECT row, first_seq, count FROM log") == [(0, 1, 0), (1, 1, 64)]


async def test_a_fold_is_one_statement_more(bench: Bench) -> None:
    bench.fold_after = 0
    owner = await bench.owner()
    await owner.append(0, [commit("a", 1)])
    await owner.append(0, [commit("b", 1), group_record("c")])
    await bench.folded(owner)
    assert bench.spy.statements == [INSERT_ROW, INSERT_GROUPS] * 2


async def test_a_group_that_is_gone_leaves_the_folded_table(bench: Bench) -> None:
    bench.fold_after = 0
    owner = await bench.owner()
    await owner.append(0, [commit("a", 1)])
    await bench.folded(owner)
    assert bench.sql("SELECT shard, group_id FROM groups") == [(0, "a")]
    await owner.append(0, [GroupRemoved("a")])
    await bench.folded(owner)
    assert bench.spy.statements[-1] == DELETE_GROUPS
    assert bench.sql("SELECT shard, group_id FROM groups") == []


async def test_topics_are_in_their_table_with_the_append_that_sets_them(bench: Bench) -> None:
    owner = await bench.owner()
    await owner.append(-1, [TopicRecord("orders", "x", 3)])
    assert owner.storage.unfolded() == 0
    await bench.folded(owner)
    assert bench.spy.statements == [INSERT_ROW, INSERT_KEYED]
    assert bench.sql("SELECT shard, key FROM keyed") == [(-1, "topic/orders")]


async def test_an_idle_store_that_is_folded_gets_no_statement(bench: Bench) -> None:
    owner = await bench.owner()
    await owner.append(0, [commit("a", 1)])
    await owner.fold_all()
    bench.spy.statements.clear()
    assert not await owner.storage.append([owner.item(shard) for shard in SHARDS])
    assert bench.spy.statements == []


# --- failure -------------------------------------------------------------------------------------


async def test_a_failed_append_burns_no_seq_and_must_be_followed_by_a_load(bench: Bench) -> None:
    bench.append_timeout_ms = 20
    owner = await bench.owner()
    await owner.append(0, [commit("g", 1)])
    with closing(sqlite3.connect(bench.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match=r"store\.db: database is locked"):
            await owner.append(0, [commit("g", 2), commit("h", 2)])
        other.execute("ROLLBACK")
    with pytest.raises(StorageError, match="before a load"):
        await owner.append(0, [commit("g", 3)])
    await owner.reload()
    assert owner.model.keys["offset", 0, "g", "orders", 0][0] == 1
    await owner.append(0, [commit("g", 4)])
    assert seqs(bench) == [1, 2]


async def test_an_append_that_was_stored_and_then_failed_is_found_by_the_load(
    bench: Bench,
) -> None:
    owner = await bench.owner()

    def fail(sql: str) -> None:
        if sql.startswith(INSERT_ROW):
            bench.spy.after = lambda sql: None
            raise sqlite3.OperationalError("disk I/O error")

    bench.spy.after = fail
    with pytest.raises(StorageError, match="disk I/O error"):
        await owner.append(0, [commit("g", 1)])
    await owner.reload()
    assert owner.model.keys["offset", 0, "g", "orders", 0][0] == 1
    await owner.append(0, [commit("g", 2)])
    assert seqs(bench) == [1, 2]


@pytest.mark.parametrize("statement", [INSERT_ROW, INSERT_KEYED])
async def test_a_topic_whose_table_was_not_written_is_written_by_the_load(
    bench: Bench, statement: str
) -> None:
    """A row that is stored and said to have failed, or a disk that is full behind it."""
    owner = await bench.owner()

    def fail(sql: str) -> None:
        if sql.startswith(statement):
            bench.spy.after = bench.spy.before = lambda sql: None
            raise sqlite3.OperationalError("disk I/O error")

    if statement == INSERT_ROW:
        bench.spy.after = fail
    else:
        bench.spy.before = fail
    with suppress(StorageError):
        await owner.append(-1, [TopicRecord("orders", "x", 3)])
    await owner.reload()
    assert bench.sql("SELECT shard, key FROM keyed") == [(-1, "topic/orders")]
    for offset in (1, 2):
        await owner.append(0, [commit("g", offset)])
        await owner.fold_all()
        await owner.reload()
        assert owner.model.keys["topic", -1, "orders"] == ("x", 3)


async def test_a_load_writes_nothing_where_the_table_has_everything(bench: Bench) -> None:
    owner = await bench.owner()
    await owner.append(-1, [TopicRecord("orders", "x", 3)])
    await owner.append(-1, [TopicRemoved("orders")])
    await owner.append(-1, [TopicRecord("orders", "y", 1), TopicRecord("other", "z", 1)])
    await bench.folded(owner)
    bench.spy.statements.clear()
    await owner.read()
    assert bench.spy.statements == []


async def test_an_append_is_reported_before_its_fold_is_written(bench: Bench) -> None:
    bench.fold_after = 0
    owner = await bench.owner()
    let_go = threading.Event()

    def hang(sql: str) -> None:
        if sql.startswith(INSERT_GROUPS):
            let_go.wait(20)

    bench.spy.before = hang
    await owner.append(0, [commit("g", 1)])
    assert bench.sql("SELECT * FROM groups") == []
    assert seqs(bench) == [1]
    let_go.set()
    await bench.folded(owner)
    assert len(bench.sql("SELECT * FROM groups")) == 1


async def test_a_clean_end_after_a_fold_that_failed_forgets_nothing(bench: Bench) -> None:
    bench.fold_after = 0
    owner = await bench.owner()

    def fail(sql: str) -> None:
        if sql.startswith(INSERT_GROUPS):
            raise sqlite3.OperationalError("disk full")

    bench.spy.before = fail
    await owner.append(0, [commit("g", 1)])
    await owner.storage.close()
    bench.spy.before = lambda sql: None
    assert (await bench.owner()).model.keys == owner.model.keys


async def test_an_append_given_up_in_the_queue_is_refused_under_the_next_lease(
    bench: Bench,
) -> None:
    owner = await bench.owner()
    reached, let_go = threading.Event(), threading.Event()

    def hang(sql: str) -> None:
        if sql.startswith(INSERT_ROW):
            reached.set()
            let_go.wait(20)

    bench.spy.before = hang
    late = asyncio.ensure_future(owner.append(0, [commit("g", 1)]))
    await asyncio.to_thread(reached.wait, 20)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    # Another process (or a second connection) has taken the lease meanwhile.
    bench.sql("UPDATE lease SET epoch = epoch + 1")
    let_go.set()
    await owner.reload()
    assert owner.model.keys == {}
    assert seqs(bench) == []


async def test_an_append_under_a_lease_that_is_no_longer_in_the_store_is_fenced_whole(
    bench: Bench,
) -> None:
    bench.fold_after = 0
    owner = await bench.owner()
    await owner.append(0, [commit("g", 1)])
    bench.sql("UPDATE lease SET epoch = epoch + 1")
    items = [
        owner.item(0, Batch([commit("g", 2)], [])),
        owner.item(-1, Batch([TopicRecord("t", "", 1)], [])),
    ]
    assert sorted(await owner.storage.append(items)) == [-1, 0]
    wanted = owner.model.keys
    await owner.reload()
    assert owner.model.keys == wanted
    assert bench.sql("SELECT * FROM keyed") == []


async def test_a_fold_under_a_lease_that_is_no_longer_in_the_store_writes_nothing(
    bench: Bench,
) -> None:
    owner = await bench.owner()
    await owner.append(0, [commit("g", 1)])
    bench.sql("UPDATE lease SET epoch = epoch + 1")
    assert await owner.storage.append([owner.item(0)]) == [0]
    assert bench.sql("SELECT * FROM groups") == []


async def test_waiting_for_a_lock_of_another_process_ends_before_the_append_is_given_up(
    bench: Bench,
) -> None:
    """Else the thread still waits, and may yet write, when the next lease is taken."""
    owner = await bench.owner()
    assert bench.spy.busy_timeout_s > 0
    assert bench.spy.busy_timeout_s * 1_000 < bench.append_timeout_ms
    await owner.storage.close()


async def test_a_stamp_that_was_never_stored_leaves_no_trace_in_the_log(bench: Bench) -> None:
    """A clock that jumped an hour ahead for one append, which failed, begins no new log."""
    owner = await bench.owner()
    await owner.append(0, [commit("g", 1)])

    def fail(sql: str) -> None:
        if sql.startswith(INSERT_ROW):
            bench.spy.before = lambda sql: None
            raise sqlite3.OperationalError("disk full")

    bench.spy.before = fail
    bench.wall_ms += 3_600_000
    with pytest.raises(StorageError, match="disk full"):
        await owner.append(0, [commit("g", 2)])
    bench.wall_ms -= 3_600_000
    await owner.reload()
    await owner.append(0, [commit("g", 3)])
    before, after = read_events(bench.path)
    assert (after["log_id"], after["ts_ms"]) == (before["log_id"], bench.wall_ms)


async def test_one_append_at_a_time(bench: Bench) -> None:
    owner = await bench.owner()
    first = asyncio.ensure_future(owner.append(0, [commit("g", 1)]))
    await asyncio.sleep(0)
    with pytest.raises(StorageError, match="another is in flight"):
        await owner.append(0, [commit("g", 2)])
    await first


async def test_a_load_that_is_given_up_leaves_nothing_behind(bench: Bench) -> None:
    owner = await bench.owner()
    for number in range(3):
        await owner.append(0, [commit(f"g{number}", 1)])
    load = owner.storage.load(SHARDS)
    await anext(load)
    await load.aclose()  # type: ignore[attr-defined]
    await owner.reload()
    assert len(owner.model.keys) == 6


# --- after an unclean end ------------------------------------------------------------------------


async def test_a_damaged_file_is_told_in_one_line_and_only_after_an_unclean_end(
    bench: Bench,
) -> None:
    owner = await bench.owner()
    for number in range(200):
        group = f"g{number}"
        await owner.append(0, [commit(group, number, metadata="x" * 300)])
    await owner.fold_all()
    await owner.storage.close()
    bench.sql("UPDATE store SET value = 1 WHERE key = 'running'")
    pages = bytearray(bench.path.read_bytes())
    (root,) = bench.sql(
        "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_groups_1'"
    )
    start = (int(str(root[0])) - 1) * 4096
    pages[start + 100 : start + 4000] = bytes(3900)
    bench.path.write_bytes(pages)
    damaged = SqliteOffsetStorage(bench.path)
    await damaged.open(IDENTITY)
    message = await damaged.check_after_unclean_end()
    await damaged.close()
    assert message is not None
    assert str(bench.path) in message
    assert "\n" not in message


async def test_stats_tell_the_sizes_of_the_files_and_what_waits_for_the_fold(bench: Bench) -> None:
    owner = await bench.owner()
    before = owner.storage.stats()
    big: OffsetsCommitted = commit("g", 1, metadata=noise(100_000))
    await owner.append(0, [big])
    after = owner.storage.stats()
    assert after["wal_bytes"] >= max(before["wal_bytes"], 100_000)
    assert (after["rows"], after["last_seq"], after["unfolded"]) == (1, 1, 1)
    assert after["database_bytes"] > 0
