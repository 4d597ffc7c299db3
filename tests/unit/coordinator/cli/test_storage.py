"""``groupkeeper storage``: what it finds, copies and refuses."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from groupkeeper import read_events
from groupkeeper.coordinator.cli.main import app
from groupkeeper.storage import open as stores
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import OffsetStorage
from groupkeeper.storage.event_log.manifest import MANIFEST
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from groupkeeper.storage.event_log.segments import read_segment, segment_names
from groupkeeper.storage.tools import by_url
from tests.helpers.core.records import commit, group_record
from tests.helpers.storage.fake_driver import DriverWithLeftovers, FakeDriver, FakeServer
from tests.helpers.storage.sealed_store import until
from tests.helpers.storage.storage_owner import IDENTITY, Owner


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["storage", *arguments], prog_name="groupkeeper")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "groupkeeper.db"


async def offsets(path: Path) -> dict[Any, Any]:
    owner = await Owner(SqliteOffsetStorage(path)).start()
    await owner.storage.close()
    return owner.model.keys


def test_a_backup_of_a_store_in_use_has_everything_that_was_acknowledged(store: Path) -> None:
    async def copy() -> dict[Any, Any]:
        owner = await Owner(SqliteOffsetStorage(store, fold_after=2)).start()
        for offset in range(10):
            await owner.append(0, [group_record("g"), commit("g", offset)])
        result = await asyncio.to_thread(run, "backup", "copy.db")
        assert result.exit_code == 0, result.output
        assert result.output.startswith("copy.db: ")
        await owner.append(0, [commit("g", 99)])
        await owner.storage.close()
        return owner.model.keys

    after = asyncio.run(copy())
    copied = asyncio.run(offsets(store.with_name("copy.db")))
    key = ("offset", 0, "g", "orders", 0)
    assert (after[key][0], copied[key][0]) == (99, 9)
    assert not store.with_name("copy.db.part").exists()


def test_a_backup_overwrites_nothing(store: Path) -> None:
    asyncio.run(offsets(store))
    store.with_name("copy.db").write_text("mine")
    result = run("backup", "copy.db")
    assert (result.exit_code, "exists already" in result.stderr) == (1, True)
    assert store.with_name("copy.db").read_text() == "mine"


def test_a_backup_of_what_is_no_store_is_refused(store: Path) -> None:
    assert "there is no such file" in run("backup", "copy.db").stderr
    store.write_text("a text that is longer than the header of a database" * 9)
    result = run("backup", "copy.db")
    assert (result.exit_code, "is not a SQLite database" in result.stderr) == (1, True)
    assert not store.with_name("copy.db").exists()


def test_a_check_counts_what_a_store_has_while_it_is_used(store: Path) -> None:
    async def check() -> Any:
        owner = await Owner(SqliteOffsetStorage(store, fold_after=0)).start()
        await owner.append(0, [group_record("g"), commit("g", 1, partitions=3)])
        await owner.append(1, [commit("other", 1)])
        await owner.fold_all()
        result = await asyncio.to_thread(run, "check", "--output", "json")
        await owner.storage.close()
        return result

    result = asyncio.run(check())
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["groups"], found["offsets"], found["problems"]) == (2, 4, [])
    assert (found["largest_group"], found["largest_offsets"]) == ("g", 3)
    assert "groups: 2, with 4 offsets" in run("check").output


def test_a_check_names_a_value_that_cannot_be_read(store: Path) -> None:
    async def fill() -> None:
        owner = await Owner(SqliteOffsetStorage(store, fold_after=0)).start()
        await owner.append(0, [group_record("bad")])
        await owner.fold_all()
        await owner.storage.close()

    asyncio.run(fill())
    with closing(sqlite3.connect(store)) as connection:
        tables = connection.execute("SELECT name, sql FROM sqlite_schema").fetchall()
        assert tables
        connection.execute("UPDATE groups SET state = '{'")
        connection.commit()
    result = run("check")
    assert result.exit_code == 1
    assert "bad" in result.stderr


@pytest.mark.parametrize("command", [["check"], ["backup", "copy.db"]])
def test_a_store_in_memory_has_nothing_to_look_at(
    store: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("GROUPKEEPER_STORAGE__URL", "memory:")
    result = run(*command)
    assert result.exit_code in (1, 2)
    assert result.stderr.startswith("groupkeeper: ")


def test_a_repair_tells_what_it_would_mend_and_mends_it_only_when_told_to(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeServer()
    server.leftovers.append("an old part")
    monkeypatch.setenv("GROUPKEEPER_STORAGE__URL", "postgresql://me@h/db")
    monkeypatch.setattr(by_url, "url_error", lambda url: None)
    monkeypatch.setattr(by_url, "journal_driver", lambda *_: DriverWithLeftovers(server))
    told = run("check", "--repair")
    assert told.exit_code == 0, told.output
    assert "to mend: an old part\nnothing was changed: --apply mends it\n" in told.output
    assert json.loads(run("check", "--repair", "-o", "json").stdout)["left_behind"] == [
        "an old part"
    ]
    assert server.leftovers
    assert "mended: an old part\n" in run("check", "--repair", "--apply").output
    assert not server.leftovers
    assert "there is nothing to mend" in run("check", "--repair").output
    assert "mend" not in run("check").output


def test_a_repair_is_for_stores_on_a_server(store: Path) -> None:
    asyncio.run(offsets(store))
    refused = run("check", "--repair")
    assert (refused.exit_code, "nothing to repair in a sqlite store" in refused.stderr) == (1, True)
    alone = run("check", "--apply")
    assert (alone.exit_code, "--apply is only for --repair" in alone.stderr) == (2, True)


def as_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPKEEPER_KAFKA__CLUSTER_ID", IDENTITY.cluster_id)
    monkeypatch.setenv("GROUPKEEPER_OFFSETS__TOPIC_NUM_PARTITIONS", str(IDENTITY.shards))


def test_a_move_writes_the_events_into_files_and_says_where_they_are(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fill() -> None:
        owner = await Owner(SqliteOffsetStorage(store)).start()
        for offset in range(5):
            await owner.append(0, [commit("g", offset)])
        await owner.storage.close()

    asyncio.run(fill())
    before = list(read_events(store))
    as_in_the_store(monkeypatch)
    monkeypatch.setenv("GROUPKEEPER_LOG__SEALING", "off")
    left = run("move", "--to", "sqlite:///new.db")
    assert left.exit_code == 0, left.output
    assert "the events stay in sqlite:///" in left.output
    assert not (store.parent / "groupkeeper-log").exists()
    monkeypatch.setenv("GROUPKEEPER_LOG__SEALING", "auto")
    for written in (5, 0):
        moved = run("move", "--to", "sqlite:///new.db")
        assert moved.exit_code == 0, moved.output
        wanted = (
            "the events up to 5 of the old store are in files in groupkeeper-log "
            f"({written} were written now): keep them, they are not in the new store\n"
        )
        assert moved.output.endswith(wanted)
    store.unlink()
    (segment,) = segment_names(store.parent / "groupkeeper-log")
    assert [*read_segment(store.parent / "groupkeeper-log" / str(segment))] == before


ON_SERVER = "postgresql://me@h/db"
_TICKS = count(1_700_000_000_000)


@pytest.fixture
def server(store: Path, monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """The server of the store ``ON_SERVER``."""
    server = FakeServer()
    as_in_the_store(monkeypatch)
    monkeypatch.setattr(stores, "journal_driver", lambda *_: FakeDriver(server))
    monkeypatch.setattr(by_url, "journal_driver", lambda *_: FakeDriver(server))
    return server


def a_node(server: FakeServer, node_id: int) -> JournalStorage:
    """Make a storage in which no two appends have the same time."""
    return JournalStorage(
        FakeDriver(server),
        node_id=node_id,
        name="host:1",
        lease_ttl_ms=2_000,
        clock=_TICKS.__next__,
    )


async def use(storage: OffsetStorage, commits: int) -> None:
    """Start, commit, stop."""
    owner = await Owner(storage).start()
    for offset in range(commits):
        await owner.append(0, [commit("g", offset)])
    await storage.close()


def test_a_move_has_the_time_to_live_of_the_daemons(
    store: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a shorter one it would end the life of a daemon between two beats."""
    ttls_ms = []

    def driver(url: str, timeout_ms: int, ttl_ms: int, password: str | None) -> FakeDriver:
        ttls_ms.append(ttl_ms)
        return FakeDriver(server if url == ON_SERVER else FakeServer())

    for module in (stores, by_url):
        monkeypatch.setattr(module, "journal_driver", driver)
    monkeypatch.setenv("GROUPKEEPER_CLUSTER__LEASE_TTL_MS", "30000")
    asyncio.run(use(a_node(server, 1), 1))
    moved = run("move", "--from", ON_SERVER, "--to", "postgresql://me@h/new")
    assert moved.exit_code == 0, moved.output
    assert ttls_ms[:2] == [30_000, 30_000]


def test_a_repair_and_a_check_have_the_time_to_live_of_the_daemons(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a shorter one a repair could end the life of a daemon that has just started."""
    ttls_ms = []

    def driver(url: str, timeout_ms: int, ttl_ms: int, password: str | None) -> FakeDriver:
        ttls_ms.append(ttl_ms)
        return FakeDriver(FakeServer())

    monkeypatch.setattr(by_url, "journal_driver", driver)
    monkeypatch.setenv("GROUPKEEPER_STORAGE__URL", ON_SERVER)
    monkeypatch.setenv("GROUPKEEPER_CLUSTER__LEASE_TTL_MS", "30000")
    run("check", "--repair", "--apply")
    assert ttls_ms == [30_000, 30_000]


def test_a_move_writes_the_events_of_every_node_of_the_old_store_into_files(
    store: Path, server: FakeServer
) -> None:
    asyncio.run(use(a_node(server, 1), 5))
    asyncio.run(use(a_node(server, 2), 3))
    in_store = {(each["log_id"], each["seq"]): each for each in server.events()}
    assert len({log_id for log_id, _ in in_store}) == 2
    log_dir = store.parent / "groupkeeper-log"
    for written in ([5, 3], [0, 0]):
        moved = run("move", "--from", ON_SERVER, "--to", "sqlite:///new.db")
        assert moved.exit_code == 0, moved.output
        wanted = [
            f"the events up to {seq} of node {node} of the old store are in files in "
            f"groupkeeper-log ({new} were written now): keep them, they are not in the new store"
            for node, seq, new in zip((1, 2), (5, 3), written, strict=True)
        ]
        assert moved.output.splitlines()[-2:] == wanted
        files = [log_dir / str(name) for name in segment_names(log_dir)]
        in_files = [event for file in files for event in read_segment(file)]
        assert {(each["log_id"], each["seq"]): each for each in in_files} == in_store
        assert len(in_files) == len(in_store)


def test_a_move_says_which_events_are_not_here(store: Path, server: FakeServer) -> None:
    recorded, elsewhere = store.parent / "data" / "log", store.parent / "elsewhere"

    async def seal() -> None:
        settings = SealSettings(directory=recorded, segment_bytes=1)
        storage = SealedStorage(a_node(server, 1), settings, poll_s=0.01)
        owner = await Owner(storage).start()
        for offset in range(5):
            await owner.append(0, [commit("g", offset)])
        await owner.fold_all()
        await until(lambda: len(server.event_log) == 1)
        await storage.close()

    asyncio.run(seal())
    recorded.rename(elsewhere)
    move = ("move", "--from", ON_SERVER, "--to", "sqlite:///new.db")
    away = run(*move)
    assert away.exit_code == 0, away.output
    assert away.output.splitlines()[-2:] == [
        "events of the old store are in files in groupkeeper-log (1 were written now): keep them, "
        "they are not in the new store",
        f"the events 1 to 4 are not here: the store has recorded {recorded}",
    ]
    elsewhere.rename(recorded)
    (damaged,) = [name for name in segment_names(recorded) if name.first_seq == 1]
    (recorded / MANIFEST).unlink()
    (recorded / str(damaged)).write_bytes(b"damaged")
    back = run(*move)
    assert back.exit_code == 0, back.output
    assert back.output.splitlines()[-3:] == [
        f"events of the old store are in files in {recorded} (0 were written now): keep them, they "
        "are not in the new store",
        "the events 1 to 1 are not here",
        f"{damaged} was damaged, and was renamed",
    ]


def test_a_move_uses_the_old_store_as_the_node_of_the_settings(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(use(a_node(server, 2), 3))
    monkeypatch.setenv("GROUPKEEPER_KAFKA__NODE_ID", "2")
    moved = run("move", "--from", ON_SERVER, "--to", "sqlite:///new.db")
    assert moved.exit_code == 0, moved.output
    assert [*server.seal_notes] == [2]


def test_events_that_no_file_can_take_end_a_move_with_an_error(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(offsets(store))
    as_in_the_store(monkeypatch)
    (store.parent / "groupkeeper-log").write_text("a file")
    failed = run("move", "--to", "sqlite:///new.db")
    assert failed.exit_code == 1
    assert "the events of the old store are not in files yet" in failed.stderr
