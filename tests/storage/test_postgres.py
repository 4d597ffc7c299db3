"""A store in a real PostgreSQL: fencing, failures of the server, names, and what people see."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from groupkeeper.coordinator.core.events import GroupCreated
from groupkeeper.coordinator.core.records import GroupConfigs, GroupRemoved, TopicRecord
from groupkeeper.storage.backends.journal.driver import Fold, LoggedEvent, Value
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.backends.postgres import tables
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import StorageError, StoreBusy, StoreRefused
from groupkeeper.storage.leases.lives import NodeLife
from groupkeeper.storage.tools.move import Moved, move
from groupkeeper.storage.tools.move_targets import journal_target
from groupkeeper.storage.tools.repair import repair
from tests.helpers.core.records import TOPIC_ID, commit, group_record
from tests.helpers.storage.late_appends import TTL_MS, late_append, offset_after_load
from tests.helpers.storage.postgres_site import PostgresSite
from tests.helpers.storage.real_pgbouncer import RealPgBouncer
from tests.helpers.storage.real_postgres import RealPostgres
from tests.helpers.storage.storage_owner import IDENTITY, Owner

pytestmark = pytest.mark.postgres

DAY_MS = 86_400_000

NAMES = ["", ".", "a/b", "\0", "a\0b", "\\0", "\\", "a\\\\0\0", "\\#", "é\U0001f600", "x" * 32_767]


@pytest.fixture
async def site(postgres: RealPostgres) -> AsyncIterator[PostgresSite]:
    site = PostgresSite(postgres)
    yield site
    for owner in site.owners:
        await owner.storage.close()


async def test_a_repair_removes_rows_of_ended_lives_and_nothing_else(site: PostgresSite) -> None:
    for offset in range(3):
        owner = await site.owner()
        await owner.append(0, [commit("g", offset)])
        await owner.storage.close()
    await (await site.owner()).storage.close()  # folds the journal of the third life, and frees it
    found = await repair(site.driver(), IDENTITY, applies=False, lease_ttl_ms=TTL_MS)
    assert found == ["rows of ended lives of node 1: 3"]
    assert len(await site.sql("SELECT * FROM lives")) == 4
    await repair(site.driver(), IDENTITY, applies=True, lease_ttl_ms=TTL_MS)
    rows = await site.sql("SELECT node_id FROM lives ORDER BY node_id")
    assert [row["node_id"] for row in rows] == [0, 1]
    assert await repair(site.driver(), IDENTITY, applies=False, lease_ttl_ms=TTL_MS) == []
    owner = await site.owner()
    await owner.append(0, [commit("g", 9)])
    seqs = [event["seq"] async for event in owner.storage.history("g")]
    assert seqs == sorted(set(seqs))
    assert len(seqs) == 4


# --- loads ----------------------------------------------------------------------------------------


async def filled(site: PostgresSite, groups: int) -> None:
    """Make a store whose groups are in shards 0 to 7, each with a name of its own."""
    await (await site.owner()).storage.close()
    await site.execute(
        "INSERT INTO groups SELECT n % 8, 'g' || n, 'g' || n, 'state ' || n "
        f"FROM generate_series(0, {groups - 1}) AS n"
    )
    await site.execute("INSERT INTO groups VALUES (2, '', '', 'the group without a name')")


async def test_a_load_reads_each_group_of_its_shards_once_and_no_other(site: PostgresSite) -> None:
    await filled(site, 4_000)
    driver = site.driver()
    try:
        await driver.open_to_read()
        async for values in driver.read([2, 3, 6]):
            assert {value.shard for value in values} <= {2, 3, 6}
        found = [each.key async for values in driver.read([2, 3, 6]) for each in values]
    finally:
        await driver.close()
    assert len(found) == len(set(found))
    assert set(found) == {f"g{n}" for n in range(4_000) if n % 8 in (2, 3, 6)} | {""}


async def test_each_portion_of_a_load_costs_the_same_also_the_last(site: PostgresSite) -> None:
    """The list of all shards made PostgreSQL look up every shard again for each portion."""
    import asyncpg

    await filled(site, 20_000)
    settings = {"search_path": site.schema}
    connection = await asyncpg.connect(site.server.url, server_settings=settings)
    try:
        page = tables.GROUPS_PAGE.next
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {page}"
        await connection.fetch(page, 0, "", 7)  # reads what the table has just got
        first, last = [
            json.loads(await connection.fetchval(explain, *after, 7))[0]["Plan"]
            for after in ((0, ""), (7, "g99"))
        ]
    finally:
        await connection.close()
    assert first["Actual Rows"] == 200
    assert last["Actual Rows"] < 200
    for plan in (first, last):
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 300, plan


# --- the end of a life beside an append -----------------------------------------------------------


async def test_an_append_that_has_not_committed_is_committed_before_its_life_ends(
    site: PostgresSite,
) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("g", 1)])
    import asyncpg

    settings = {"search_path": site.schema}
    holder = await asyncpg.connect(site.server.url, server_settings=settings)
    async with holder.transaction():
        await holder.execute("LOCK TABLE journal IN SHARE MODE")
        late = late_append(owner)
        await asyncio.sleep(0.2)
        ending = asyncio.ensure_future(site.end_life())
        await asyncio.sleep(0.2)
        assert not late.done()
        assert not ending.done()
    await holder.close()
    await ending
    assert not await late
    assert await offset_after_load(owner) == 2


# --- a server in trouble --------------------------------------------------------------------------


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(site: PostgresSite) -> None:
    owner = await site.owner()
    acknowledged = 0
    for round_ in range(3):
        killing = asyncio.get_running_loop().call_later(
            0.05, site.server.send, signal.SIGQUIT
        )  # all of its processes die at once
        try:
            while True:
                await owner.append(0, [commit("g", acknowledged + 1)])
                acknowledged += 1
        except StorageError:
            pass
        killing.cancel()
        await asyncio.to_thread(site.server.restart)
        found = await offset_after_load(owner) or 0
        assert acknowledged <= found <= acknowledged + 1, round_
        acknowledged = found


async def test_a_server_that_stands_still_ends_the_reads_and_loses_nothing(
    site: PostgresSite,
) -> None:
    owner = await site.owner(timeout_ms=500)
    await owner.append(0, [commit("g", 1)])
    pids = [row["pid"] for row in await site.sql("SELECT pid FROM pg_stat_activity")]
    try:
        site.server.stop_processes([int(str(pid)) for pid in pids])
        with pytest.raises(StoreBusy):
            await late_append(owner)
        await asyncio.sleep(TTL_MS / 1000)
        assert owner.storage.read_time_left_ms() == 0
    finally:
        site.server.continue_processes()
    assert await offset_after_load(owner) in (1, 2)
    await owner.append(0, [commit("g", 3)])
    assert await offset_after_load(owner) == 3


async def test_a_server_that_is_not_there_can_be_tried_again(site: PostgresSite) -> None:
    with pytest.raises(StoreBusy, match="no answer from the server"):
        await site.storage(port=1).open(IDENTITY)


async def test_a_database_that_does_not_exist_is_refused(site: PostgresSite) -> None:
    site.server.url, url = site.server.url.replace("/postgres", "/none"), site.server.url
    try:
        with pytest.raises(StoreRefused, match='database "none" does not exist'):
            await site.storage().open(IDENTITY)
    finally:
        site.server.url = url


async def test_a_user_without_rights_learns_which(site: PostgresSite) -> None:
    await site.execute("DROP ROLE IF EXISTS guest")
    await site.execute("CREATE ROLE guest LOGIN")
    site.server.url, url = site.server.url.replace("groupkeeper@", "guest@"), site.server.url
    try:
        with pytest.raises(StoreRefused, match=r"permission denied for database.*GRANT CREATE"):
            await site.storage().open(IDENTITY)
    finally:
        site.server.url = url


ADVISORY = "SELECT pg_advisory_xact_lock(hashtextextended('groupkeeper/' || current_schema, 0))"


@pytest.mark.parametrize("lock", [ADVISORY, tables.GOES_ON.replace("life_id = $1", "true")])
async def test_a_suspended_process_keeps_nobody_out_for_longer_than_its_lease(
    site: PostgresSite, lock: str
) -> None:
    """It has sent the text of a new statement, but not its arguments. The server does not count
    this session as idle, and a fold may hold its lock for a minute.
    """
    import asyncpg

    driver = site.driver()
    await driver.open(IDENTITY)
    await driver.begin_life(NodeLife(1, "suspended", "host:1", 0))
    settings = {"search_path": site.schema}
    suspended = await asyncpg.connect(site.server.url, server_settings=settings)
    await suspended.execute(f"BEGIN; {lock}")
    await suspended.prepare("SELECT $1::integer")
    owner = await site.owner()
    await owner.append(0, [commit("g", 1)])
    assert suspended.is_closed()
    await driver.close()


async def test_a_read_only_server_can_be_tried_again(site: PostgresSite) -> None:
    await site.execute("DROP ROLE IF EXISTS reader")
    await site.execute("CREATE ROLE reader LOGIN SUPERUSER")
    await site.execute("ALTER ROLE reader SET default_transaction_read_only = on")
    site.server.url, url = site.server.url.replace("groupkeeper@", "reader@"), site.server.url
    try:
        with pytest.raises(StoreBusy, match="read-only, perhaps a standby"):
            await site.storage().open(IDENTITY)
    finally:
        site.server.url = url


@pytest.mark.pooler
@pytest.mark.parametrize("pool_mode", ["session", "transaction"])
@pytest.mark.parametrize("ignores", [False, True])
async def test_a_pooler_is_refused_with_the_reason(
    site: PostgresSite, pool_mode: str, ignores: bool
) -> None:
    """A pooler that drops the settings would lead to the tables of another schema."""
    settings = "search_path,statement_timeout,idle_in_transaction_session_timeout"
    pooler = RealPgBouncer(site.server, pool_mode, settings if ignores else "options")
    try:
        with pytest.raises(StoreRefused, match=r"a pooler between .* name the server itself"):
            await site.storage(port=pooler.port).open(IDENTITY)
    finally:
        pooler.end()
    assert not await site.sql(
        "SELECT 1 FROM pg_tables WHERE tablename = 'lives' AND schemaname = 'public'"
    )


async def test_a_server_with_tls_is_used_and_its_name_is_verified(site: PostgresSite) -> None:
    certificate = await asyncio.to_thread(site.server.begin_tls)
    url = site.server.url
    try:
        site.server.url = f"{url}?sslmode=verify-full&sslrootcert={certificate}"
        with pytest.raises(StorageError, match="certificate"):
            await site.storage().open(IDENTITY)
        site.server.url = site.server.url.replace("127.0.0.1", "localhost")
        owner = await site.owner()
        await owner.append(0, [commit("g", 1)])
    finally:
        site.server.url = url
    rows = await site.sql(
        "SELECT bool_and(ssl) AS tls FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
        "WHERE application_name = 'groupkeeper'"
    )
    assert rows == [{"tls": True}]


async def test_appends_that_a_promoted_standby_lacks_are_noticed_by_a_beat(
    site: PostgresSite,
) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("g", 1)])
    await owner.append(0, [commit("g", 2)])
    await site.execute(
        "WITH lost AS (DELETE FROM journal WHERE first_seq = 2 RETURNING life_id) "
        "UPDATE lives SET next_seq = 2 FROM lost WHERE lives.life_id = lost.life_id"
    )
    while owner.storage.read_time_left_ms():  # noqa: ASYNC110 - until a beat has found it
        await asyncio.sleep(0.05)
    assert await offset_after_load(owner) == 1
    assert owner.storage.stats()["set_backs"] == 1
    await owner.append(0, [commit("g", 3)])
    events = site.server.events(site.schema)
    assert [event["reason"] for event in events if event["kind"] == "log_started"] == [
        "older_store"
    ]


async def test_an_append_is_one_round_trip(site: PostgresSite) -> None:
    owner = await site.owner()
    for offset in range(20):
        await owner.append(0, [commit("g", offset)])
    await owner.fold_all()
    stats = owner.storage.stats()
    assert stats["round_trips.append"] == 20
    assert stats["round_trips.fold"] > 0


async def test_a_file_moves_to_a_server_with_every_name(site: PostgresSite, tmp_path: Path) -> None:
    file = SqliteOffsetStorage(tmp_path / "a.db")
    source = await Owner(file).start()
    for name in NAMES:
        await source.append(1, [commit(name, 7), group_record(name)])
    await file.close()
    driver = site.storage()._driver
    opening = journal_target(driver, IDENTITY, TTL_MS)
    moved = await move(SqliteOffsetStorage(tmp_path / "a.db"), opening, IDENTITY)
    assert moved == Moved(len(NAMES), len(NAMES))
    owner = await site.owner()
    assert owner.model.keys == source.model.keys


# --- names, sizes and views -----------------------------------------------------------------------


async def test_every_name_comes_back_from_the_journal_and_from_its_value(
    site: PostgresSite,
) -> None:
    owner = await site.owner()
    for name in NAMES:
        await owner.append(1, [commit(name, 7), group_record(name)])
        await owner.append(-1, [GroupConfigs(name, {"a": "1"})])
    wanted = owner.model.keys
    await owner.reload()
    assert owner.model.keys == wanted
    await owner.fold_all()
    await owner.storage.close()
    again = await site.owner()
    assert again.model.keys == wanted
    for name in NAMES:
        await again.append(1, [GroupRemoved(name)])
        await again.append(-1, [GroupConfigs(name, {})])
    await again.fold_all()
    assert await site.sql("SELECT key FROM groups UNION ALL SELECT key FROM keyed") == []


async def test_ordinary_names_are_readable_and_u_0000_breaks_no_view(site: PostgresSite) -> None:
    owner = await site.owner()
    await owner.append(0, [group_record("billing"), commit("billing", 42, metadata="note")])
    for number, metadata in enumerate(("\0", "a\0", "\\u0000", "\\\0", "\0\0", '"\0')):
        await owner.append(0, [commit("odd", 1, topic=f"t{number}", metadata=metadata)])
    await owner.fold_all()
    (row,) = await site.sql("SELECT * FROM offsets WHERE group_id = 'billing'")
    assert {key: row[key] for key in ("topic", "partition", "committed_offset", "metadata")} == {
        "topic": "orders",
        "partition": 0,
        "committed_offset": 42,
        "metadata": "note",
    }
    metadata = {row["metadata"] for row in await site.sql("SELECT metadata FROM offsets")}
    assert metadata == {"note", "␀", "a␀", "\\u0000", "\\␀", "␀␀", '"␀'}
    members = await site.sql("SELECT * FROM members WHERE group_id = 'billing'")
    assert len(members) == 1


async def test_events_leave_the_journal_for_a_table_that_people_query(site: PostgresSite) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("a", 1)], [GroupCreated(group_id="a")])
    await owner.append(0, [commit("b", 1)])
    await owner.fold_all()
    rows = await site.sql("SELECT seq FROM event_log WHERE key = 'a' ORDER BY seq")
    assert [row["seq"] for row in rows] == [1, 2]
    assert await site.sql("SELECT row FROM journal") == []
    await owner.append(0, [commit("a", 2)])
    events = [event async for event in owner.storage.history("a")]
    assert [(event["seq"], event["kind"]) for event in events] == [
        (1, "group_created"),
        (2, "commit"),
        (4, "commit"),
    ]


async def test_old_events_leave_the_table_a_day_at_a_time(site: PostgresSite) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("a", 1)])
    await owner.fold_all()
    await site.execute("UPDATE event_log SET day = day - 2")
    await owner.append(0, [commit("a", 2)])
    await owner.fold_all()
    (row,) = await site.sql("SELECT max(ts_ms) AS newest FROM event_log")
    storage = owner.storage
    assert isinstance(storage, JournalStorage)
    await storage._driver.delete_events(str(storage._life_id), int(str(row["newest"])))
    assert await site.sql("SELECT seq FROM event_log") == [{"seq": 2}]


async def test_a_group_of_ten_thousand_partitions(site: PostgresSite) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("g", 5, partitions=10_000)])
    await owner.append(-1, [TopicRecord("orders", TOPIC_ID, 10_000)])
    await owner.fold_all()
    wanted = owner.model.keys
    await owner.reload()
    assert owner.model.keys == wanted
    assert await site.sql("SELECT count(*) AS many FROM offsets") == [{"many": 10_000}]


async def test_a_value_that_cannot_be_read_is_named(site: PostgresSite) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("good", 1)])
    await owner.append(1, [commit("bad", 1)])
    await owner.fold_all()
    await site.execute("UPDATE groups SET state = '{' WHERE group_id = 'bad'")
    with pytest.raises(StoreRefused, match="the value of group 'bad' cannot be read"):
        await owner.read()
    assert ("group", 0, "good") in (await owner.read([0])).keys


# --- large groups ---------------------------------------------------------------------------------


@pytest.mark.parametrize("may_stage", [True, False])
async def test_a_large_group_is_sent_in_pieces_if_the_role_may_have_temporary_tables(
    site: PostgresSite, monkeypatch: pytest.MonkeyPatch, may_stage: bool
) -> None:
    from groupkeeper.storage.backends.postgres import tables, values

    if not may_stage:
        monkeypatch.setattr(tables, "MAY_STAGE", "SELECT false")
        monkeypatch.setattr(tables, "STAGE", "SELECT 1 / 0")
    monkeypatch.setattr(values, "PIECE_BYTES", 10_007)  # cuts characters of two bytes
    owner = await site.owner()
    for offset in (1, 2):
        await owner.append(0, [commit("g", offset, partitions=200, metadata="é" * 4_000)])
        await owner.fold_all()
        await owner.append(0, [commit("h", offset)])
        await owner.fold_all()
    expected = owner.model.keys
    await owner.reload()
    assert owner.model.keys == expected
    sent = await site.sql("SELECT metadata FROM offsets WHERE group_id = 'g'")
    assert [row["metadata"] for row in sent] == ["é" * 4_000] * 200


async def test_a_fold_may_take_longer_than_an_append_but_waits_for_no_lock_so_long(
    site: PostgresSite,
) -> None:
    """Otherwise a large group in a slow server is never folded, nor any other one after it, and no
    start ends.
    """
    import asyncpg

    await (await site.owner()).storage.close()
    await site.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_sleep(2.5); RETURN NEW; END'"
    )
    await site.execute(
        "CREATE TRIGGER slow BEFORE INSERT ON groups FOR EACH ROW EXECUTE FUNCTION slow()"
    )
    driver = site.driver(timeout_ms=2_000)
    await driver.open(IDENTITY)
    await driver.begin_life(NodeLife(1, "life", "test", 0))
    value = Value(0, True, "g", b"{}")
    await driver.fold("life", "life", Fold([value], 0, []))
    assert await driver.read_groups([(0, "g")]) == [value]
    await site.execute("DROP TRIGGER slow ON groups")
    other = await asyncpg.connect(site.server.url, server_settings={"search_path": site.schema})
    async with other.transaction():
        await other.execute("LOCK TABLE groups IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StorageError, match="lock timeout"):
            await driver.fold("life", "life", Fold([value], 0, []))
    await other.close()
    await driver.end_life("life", None)
    await driver.close()


async def test_old_events_are_deleted_in_portions(
    site: PostgresSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy day has millions. One statement for all of them would exceed its time limit again and
    again.
    """
    from groupkeeper.storage.backends.postgres.driver import DELETIONS_AT_ONCE

    monkeypatch.setattr(tables, "DELETED_AT_ONCE", 2)
    small = tables.DELETE_EVENTS.replace("LIMIT 50000", "LIMIT 2")
    monkeypatch.setattr(tables, "DELETE_EVENTS", small)
    driver = site.driver()
    await driver.open(IDENTITY)
    await driver.begin_life(NodeLife(1, "life", "test", 0))
    lines = [(DAY_MS * day, b'{"seq": %d}' % seq) for seq, day in enumerate([1] * 9 + [2, 3], 1)]
    events = [LoggedEvent("l", seq, ts, ("g", line)) for seq, (ts, line) in enumerate(lines, 1)]
    await driver.fold("life", "life", Fold([], 0, events))
    left = []
    for _ in range(3):
        await driver.delete_events("life", 2 * DAY_MS + 1)
        left.append(
            [row["seq"] for row in await site.sql("SELECT seq FROM event_log ORDER BY seq")]
        )
    assert [len(seqs) for seqs in left] == [11 - 2 * DELETIONS_AT_ONCE, 2, 2]
    assert left[-1] == [10, 11]
    await driver.end_life("life", None)
    await driver.close()
