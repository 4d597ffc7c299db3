"""The daemon as a process over a store that is taken away from under it, or written by another."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from tests.helpers.core.group_view import commit, committed
from tests.helpers.daemon.servers import ForgetfulDaemon, Groupkeeper
from tests.helpers.wire.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOPIC = "orders"

pytestmark = pytest.mark.slow


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Groupkeeper]:
    daemon = Groupkeeper(tmp_path / "daemon", topics={TOPIC: 1})
    yield daemon
    daemon.stop()


def database(daemon: Groupkeeper) -> Path:
    return daemon.directory / "groupkeeper.db"


def lines(daemon: Groupkeeper) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.log.splitlines() if line.startswith("{")]


def wait_until(condition: Callable[[], bool], daemon: Groupkeeper) -> None:
    for _ in range(1_000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(daemon.log)


def is_refused_for(daemon: Groupkeeper, words: str) -> bool:
    status, text = daemon.get("/readyz")
    return status == 503 and words in text


def test_a_moved_database_is_noticed_without_traffic_and_never_ready_again(
    daemon: Groupkeeper,
) -> None:
    daemon.start()
    with RawClient(daemon.port) as client:
        commit(client, "g", TOPIC, {0: 7})
        elsewhere = database(daemon).with_name("elsewhere.db")
        database(daemon).rename(elsewhere)
        wait_until(lambda: is_refused_for(daemon, "was moved or deleted"), daemon)
        told = [line for line in lines(daemon) if line["event"] == "append_failed"]
        assert told[0]["level"] == "error"
        assert "put back groupkeeper.db" in told[0]["error"]
        assert commit(client, "g", TOPIC, {0: 8}) == {0: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        assert daemon.get("/healthz")[0] == 200
        elsewhere.rename(database(daemon))
        refusals = len(lines(daemon))
        wait_until(
            lambda: "load_refused" in [line["event"] for line in lines(daemon)[refusals:]], daemon
        )
        assert is_refused_for(daemon, "was moved or deleted")
    assert daemon.terminate() == 0
    daemon.start()
    with RawClient(daemon.port) as client:
        assert committed(client, "g") == {(TOPIC, 0): 7}


def test_a_database_that_was_moved_is_not_begun_anew_by_a_supervisor(daemon: Groupkeeper) -> None:
    daemon.start()
    with RawClient(daemon.port) as client:
        commit(client, "g", TOPIC, {0: 7})
    elsewhere = database(daemon).with_name("elsewhere.db")
    database(daemon).rename(elsewhere)
    daemon.kill()
    daemon.launch()
    assert daemon.wait() == 1
    assert "the database was moved or deleted. Put it back" in daemon.log
    elsewhere.rename(database(daemon))
    daemon.start()
    with RawClient(daemon.port) as client:
        assert committed(client, "g") == {(TOPIC, 0): 7}


def test_a_second_daemon_is_refused_by_every_name_of_the_database(
    daemon: Groupkeeper, tmp_path: Path
) -> None:
    daemon.start()
    (daemon.directory / "linked.db").hardlink_to(database(daemon))
    (tmp_path / "same").symlink_to(daemon.directory)
    for place, words in (
        (daemon.directory / "linked.db", "is in use by another process, under another name"),
        (tmp_path / "same" / "groupkeeper.db", f"another groupkeeper (process {daemon.pid} of"),
    ):
        second = Groupkeeper(tmp_path / "second", storage_url=f"sqlite:///{place}")
        second.launch()
        assert second.wait() == 1
        assert words in second.log
    with RawClient(daemon.port) as client:
        assert commit(client, "g", TOPIC, {0: 7}) == {0: ErrorCode.NONE}
    assert daemon.terminate() == 0


def test_a_daemon_is_refused_although_the_lock_file_was_removed(
    daemon: Groupkeeper, tmp_path: Path
) -> None:
    daemon.start()
    (daemon.directory / "groupkeeper.db.lock").unlink()
    second = Groupkeeper(tmp_path / "second", storage_url=f"sqlite:///{database(daemon)}")
    second.launch()
    assert second.wait() == 1
    assert "or with another .lock file" in second.log
    wait_until(lambda: is_refused_for(daemon, "groupkeeper.db.lock: was"), daemon)


def test_a_daemon_that_is_fenced_stops(daemon: Groupkeeper) -> None:
    """Somebody else has raised the epoch: to raise it again would let two acknowledge in turns."""
    daemon.start()
    with RawClient(daemon.port) as client:
        assert commit(client, "g", TOPIC, {0: 7}) == {0: ErrorCode.NONE}
        with closing(sqlite3.connect(database(daemon), isolation_level=None)) as thief:
            thief.execute("UPDATE lease SET epoch = epoch + 1, owner = 'thief'")
        assert commit(client, "g", TOPIC, {0: 8}) == {0: ErrorCode.NOT_COORDINATOR}
        assert daemon.wait() == 1
    assert "somebody else writes to the store" in daemon.log.splitlines()[-1]
    with closing(sqlite3.connect(database(daemon))) as connection:
        assert connection.execute("SELECT owner FROM lease").fetchall() == [("thief",)]
        running = connection.execute("SELECT value FROM store WHERE key = 'running'").fetchall()
        assert running == [(1,)]
    assert not os.path.exists(f"{database(daemon)}-wal")
    daemon.start()
    with RawClient(daemon.port) as client:
        assert committed(client, "g") == {(TOPIC, 0): 7}


class Unlocked(Groupkeeper):
    """A daemon on a file system whose locks do nothing."""

    entry = ("-m", "tests.helpers.daemon.unlocked_daemon")


def test_of_two_daemons_without_locks_the_first_one_stops_even_if_it_is_idle(
    tmp_path: Path,
) -> None:
    """The first one would answer from its memory, which the second one's commits do not reach."""
    first = Unlocked(tmp_path / "first", topics={TOPIC: 1})
    second = Unlocked(
        tmp_path / "second", topics={TOPIC: 1}, storage_url=f"sqlite:///{database(first)}"
    )
    try:
        first.start()
        with RawClient(first.port) as client:
            assert commit(client, "g", TOPIC, {0: 7}) == {0: ErrorCode.NONE}
        second.start()
        assert first.wait() == 1
        assert "somebody else writes to the store" in first.log.splitlines()[-1]
        with RawClient(second.port) as client:
            assert committed(client, "g") == {(TOPIC, 0): 7}
            assert commit(client, "g", TOPIC, {0: 8}) == {0: ErrorCode.NONE}
        first.start()
        with RawClient(first.port) as client:
            assert committed(client, "g") == {(TOPIC, 0): 8}
        assert second.wait() == 1
        assert first.terminate() == 0
        assert first.log.count('"store_given_up"') == 1
        assert second.log.count('"store_given_up"') == 1
    finally:
        first.stop()
        second.stop()


def test_a_daemon_whose_disk_fails_to_sync_ends_and_the_next_start_finds_every_commit(
    tmp_path: Path,
) -> None:
    daemon = ForgetfulDaemon(tmp_path / "daemon", topics={TOPIC: 1})
    try:
        daemon.start()
        with RawClient(daemon.port) as client:
            assert commit(client, "g", TOPIC, {0: 7}) == {0: ErrorCode.NONE}
            daemon.fail_sync()
            assert commit(client, "g", TOPIC, {0: 8}) == {0: ErrorCode.NOT_COORDINATOR}
            assert daemon.wait() == 1
        assert "the disk failed to sync (" in daemon.log.splitlines()[-1]
        assert os.path.getsize(f"{database(daemon)}-wal") > 0
        daemon.start()
        with RawClient(daemon.port) as client:
            assert committed(client, "g") in ({(TOPIC, 0): 7}, {(TOPIC, 0): 8})
    finally:
        daemon.stop()


def test_a_moved_log_dir_is_told_and_groups_are_served(daemon: Groupkeeper) -> None:
    daemon.start()
    log_dir = daemon.directory / "groupkeeper-log"
    with RawClient(daemon.port) as client:
        commit(client, "g", TOPIC, {0: 7})
        wait_until(lambda: log_dir.is_dir(), daemon)
        log_dir.rename(log_dir.with_name("elsewhere"))
        wait_until(lambda: "log_dir_moved" in [line["event"] for line in lines(daemon)], daemon)
        assert commit(client, "g", TOPIC, {0: 8}) == {0: ErrorCode.NONE}
    assert not log_dir.exists()
    assert daemon.get("/readyz")[0] == 200
