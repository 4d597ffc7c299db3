"""The daemon over a real PostgreSQL that stands still for longer than a session."""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from tests.helpers.core.group_view import commit, committed, heartbeat, view
from tests.helpers.daemon.faulty_server import wait_until
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.storage.outage_members import a_member
from tests.helpers.wire.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.helpers.storage.real_postgres import RealPostgres

TOPIC = "orders"
OUTAGE_S = 5
"""Longer than a session of the members here, which is two seconds."""

pytestmark = pytest.mark.postgres


class Site:
    """A server and a daemon over it."""

    def __init__(self, directory: Path, server: RealPostgres) -> None:
        self.server = server
        self.daemon = Groupkeeper(
            directory,
            storage_url=f"{server.url}?schema=s{uuid.uuid4().hex}",
            topics={TOPIC: 4},
            settings={
                "storage.append_timeout_ms": 1_000,
                "group.min_session_timeout_ms": 1_500,
                "cluster.lease_ttl_ms": 1_000,
            },
        )

    def stop_server(self) -> None:
        """Let every process of the server stand still. Its sockets stay open."""
        rows = self.server.sql("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        self.server.stop_processes([int(row["pid"]) for row in rows])

    def lines(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.daemon.log.splitlines() if line[:1] == "{"]
        return [line for line in lines if line["event"] == event]

    def wait_for_line(self, event: str) -> dict[str, Any]:
        wait_until(lambda: bool(self.lines(event)), self.daemon)
        return self.lines(event)[0]

    def wait_ready(self) -> None:
        wait_until(lambda: self.daemon.get("/readyz")[0] == 200, self.daemon)


@pytest.fixture
def site(tmp_path: Path, postgres: RealPostgres) -> Iterator[Site]:
    site = Site(tmp_path / "daemon", postgres)
    site.daemon.start()
    yield site
    site.server.continue_processes()
    site.daemon.stop()


def test_an_outage_with_commits_evicts_nobody_and_loses_nothing(site: Site) -> None:
    with RawClient(site.daemon.port) as client, RawClient(site.daemon.port) as committing:
        member_id = a_member(client)
        mine = {"generation": 1, "member_id": member_id}
        assert commit(committing, "g", TOPIC, {0: 1}, **mine) == {0: ErrorCode.NONE}
        before = view(client, "g")
        site.stop_server()
        beats, commits = set(), set()
        until = time.monotonic() + OUTAGE_S
        while time.monotonic() < until:
            commits |= {*commit(committing, "g", TOPIC, {0: 2}, **mine).values()}
            beats.add(heartbeat(client, "g", member_id, 1))
            time.sleep(0.1)
        assert (beats, commits) == ({ErrorCode.NONE}, {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
        status, text = site.daemon.get("/readyz")
        assert (status, "not ready" in text) == (503, True)
        assert site.daemon.metric("groupkeeper_storage_lease_lapses_total") >= 1
        assert site.daemon.metric("groupkeeper_storage_lease_seconds_left") == 0
        site.server.continue_processes()
        site.wait_ready()
        assert heartbeat(client, "g", member_id, 1) == ErrorCode.NONE
        assert view(client, "g") == before
        assert committed(client, "g")[TOPIC, 0] in (1, 2)
        assert commit(committing, "g", TOPIC, {0: 3}, **mine) == {0: ErrorCode.NONE}
        assert committed(client, "g") == {(TOPIC, 0): 3}
    for event in ("append_failed", "loaded"):
        assert site.lines(event), event


def test_a_quiet_outage_ends_without_a_load(site: Site) -> None:
    with RawClient(site.daemon.port) as client:
        member_id = a_member(client)
        commit(client, "g", TOPIC, {0: 1}, generation=1, member_id=member_id)
        wait_until(
            lambda: site.daemon.metric("groupkeeper_storage_unfolded_requests") == 0, site.daemon
        )
        before, loads = view(client, "g"), len(site.lines("loaded"))
        site.stop_server()
        site.wait_for_line("leases_lapsed")
        beats = set()
        until = time.monotonic() + OUTAGE_S
        while time.monotonic() < until:
            beats.add(heartbeat(client, "g", member_id, 1))
            time.sleep(0.1)
        assert beats == {ErrorCode.NONE}
        assert "does not confirm the leases" in site.daemon.get("/readyz")[1]
        site.server.continue_processes()
        site.wait_ready()
        assert site.wait_for_line("leases_confirmed")["shards"] == 51
        assert heartbeat(client, "g", member_id, 1) == ErrorCode.NONE
        assert view(client, "g") == before
        assert committed(client, "g") == {(TOPIC, 0): 1}
        assert len(site.lines("loaded")) == loads
