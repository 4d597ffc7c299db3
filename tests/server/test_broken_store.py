"""The daemon as a process over a store that is damaged, fails or hangs."""

from __future__ import annotations

import signal
import socket
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.daemon.app import IMPATIENT_AFTER_S
from tests.helpers.core.group_view import commit, committed
from tests.helpers.daemon.faulty_server import FaultyDaemon, wait_until
from tests.helpers.wire.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "orders"
CUT = "drain_cut"

pytestmark = pytest.mark.slow


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FaultyDaemon]:
    daemon = FaultyDaemon(tmp_path / "daemon")
    yield daemon
    daemon.stop()


def is_refused(port: int) -> bool:
    """Does nobody listen there?"""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_damaged_page_is_told_after_an_unclean_end_beside_the_work(daemon: FaultyDaemon) -> None:
    daemon.start()
    with RawClient(daemon.port) as client:
        commit(client, "g", TOPIC, {0: 7})
    daemon.kill()
    database = daemon.directory / "groupkeeper.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE note (text)")  # pages that no load reads
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'note'")
    with database.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xff" * 4096)
    daemon.start()
    told = daemon.wait_for_log("store_damaged")
    assert told["level"] == "error"
    assert f"{database}: is damaged" in told["problem"]
    assert "ready" in daemon.events()[: daemon.events().index("store_damaged")]
    with RawClient(daemon.port) as client:
        assert committed(client, "g") == {(TOPIC, 0): 7}


def test_a_sound_store_is_not_called_damaged_after_an_unclean_end(daemon: FaultyDaemon) -> None:
    daemon.start()
    daemon.kill()
    daemon.start()
    assert daemon.terminate() == 0
    assert "store_damaged" not in daemon.events()


def test_readyz_says_why_while_the_store_fails_and_that_it_is_back(daemon: FaultyDaemon) -> None:
    daemon.start()
    daemon.fault("fail")
    with RawClient(daemon.port) as client:
        assert commit(client, "g", TOPIC, {0: 1}) == {0: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        said = daemon.wait_for_log("append_failed")["error"]
        assert said
        assert daemon.get("/readyz") == (
            503,
            f"not ready: the store failed, and its shards are loaded again: {said}\n",
        )
        assert daemon.get("/healthz")[0] == 200
        assert daemon.metric("groupkeeper_ready") == 0
        daemon.fault("")
        wait_until(lambda: daemon.get("/readyz") == (200, "ready\n"), daemon)
        assert commit(client, "g", TOPIC, {0: 2}) == {0: ErrorCode.NONE}


def test_readyz_says_why_a_start_waits_for_the_disk(daemon: FaultyDaemon) -> None:
    daemon.directory.mkdir(exist_ok=True)
    daemon.fault("full")
    daemon.launch()
    said = daemon.wait_for_log("open_failed")["error"]
    assert said == "groupkeeper.db: the disk is full; make room"
    status, text = daemon.get("/readyz")
    assert (status, text) == (
        503,
        f"not ready: the store cannot be opened yet, which is tried again: {said}\n",
    )
    daemon.fault("")
    wait_until(lambda: daemon.get("/readyz") == (200, "ready\n"), daemon)


def test_a_stop_ends_with_0_although_an_append_never_returns(daemon: FaultyDaemon) -> None:
    daemon.settings["daemon.drain_timeout_ms"] = 1_000
    daemon.start()
    daemon.fault("hang")
    with RawClient(daemon.port) as client:
        waiting = client.send(
            "offset_commit",
            2,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time=-1,
            topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
        )
        wait_until(lambda: daemon.metric("groupkeeper_received_bytes_total") > 0, daemon)
        daemon.signal(signal.SIGTERM)
        (topic,) = client.receive("offset_commit", 2, waiting)["topics"]
    assert topic["partitions"][0]["error_code"] == ErrorCode.NOT_COORDINATOR
    assert daemon.wait() == 0
    assert daemon.events()[-1] in ("stopped", CUT)
    daemon.fault("")
    daemon.start()
    with RawClient(daemon.port) as client:
        assert committed(client, "g") == {}


def test_a_drain_that_nothing_ends_is_cut_with_0(daemon: FaultyDaemon) -> None:
    daemon.settings["daemon.drain_timeout_ms"] = 500
    daemon.start()
    daemon.fault("stubborn")
    assert daemon.terminate() == 0
    assert daemon.events()[-1] == CUT


def test_a_drain_that_is_cut_after_the_store_was_given_up_ends_with_1(
    daemon: FaultyDaemon,
) -> None:
    daemon.settings["daemon.drain_timeout_ms"] = 500
    daemon.start()
    daemon.fault("stubborn")
    with closing(sqlite3.connect(daemon.directory / "groupkeeper.db")) as other, other:
        other.execute("UPDATE lease SET epoch = epoch + 1")
    assert daemon.wait() == 1
    assert daemon.events()[-1] == CUT
    assert "store_given_up" in daemon.events()


def test_a_second_signal_of_someone_impatient_ends_the_drain_with_1(daemon: FaultyDaemon) -> None:
    daemon.settings["daemon.drain_timeout_ms"] = 600_000
    daemon.start()
    daemon.fault("stubborn")
    daemon.signal(signal.SIGTERM)
    daemon.wait_for_log("stopping")
    time.sleep(IMPATIENT_AFTER_S)
    daemon.signal(signal.SIGINT)
    assert daemon.wait() == 1
    assert daemon.events()[-1] == "stopped_at_once"


def test_while_it_drains_nobody_new_gets_in(daemon: FaultyDaemon) -> None:
    daemon.settings["daemon.drain_timeout_ms"] = 600_000
    daemon.start()
    assert not is_refused(daemon.port)
    daemon.fault("stubborn")
    daemon.signal(signal.SIGTERM)
    wait_until(lambda: is_refused(daemon.port), daemon)
    assert daemon.get("/readyz") == (503, "not ready: stopping\n")
