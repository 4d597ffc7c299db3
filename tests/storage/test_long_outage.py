"""The daemon over a store on a server that is away for two minutes, while members commit.

By hand: ``make test-storage-long``. Each test takes the two minutes, so they run side by side.
"""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from tests.helpers.clients.histories import check_offsets, check_undisturbed
from tests.helpers.clients.members import Hosts, Member, hosts_for, wait_until
from tests.helpers.clients.real_consul import RealConsul
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.clients.real_zookeeper import RealZooKeeper
from tests.helpers.core.group_view import committed, view
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.storage.outage_members import BusyMember, a_member
from tests.helpers.storage.real_postgres import RealPostgres
from tests.helpers.wire.raw_client import RawClient

TOPIC, PARTITIONS = "orders", 4
OUTAGE_S = float(os.environ.get("OUTAGE_S", "120"))
APPEND_TIMEOUT_MS = 5_000
SESSION_MS = 10_000
SLACK_S = 1.0
"""What a busy machine needs for an answer that waits for nothing."""
LIBRARIES = ("librdkafka", "aiokafka")

pytestmark = pytest.mark.storage_long


class Away(NamedTuple):
    """A store that can be taken away, and its URL."""

    url: str
    take: Callable[[], None]
    give_back: Callable[[], object]


def postgres_away(server: RealPostgres, how: str) -> Away:
    url = f"{server.url}?schema=s{uuid.uuid4().hex}"
    if how == "killed":
        return Away(url, lambda: server.stop(signal.SIGQUIT), server.start)

    def suspend() -> None:
        rows = server.sql("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        server.stop_processes([int(row["pid"]) for row in rows])

    return Away(url, suspend, server.continue_processes)


def process_away(store: str, server: RealZooKeeper | RealConsul | RealKafka, how: str) -> Away:
    url = f"{store}://127.0.0.1:{server.port}/s{uuid.uuid4().hex}"
    if how == "killed":
        return Away(url, server.stop, server.start)
    return Away(
        url,
        lambda: os.kill(server.pid, signal.SIGSTOP),
        lambda: os.kill(server.pid, signal.SIGCONT),  # ZooKeeper ends all sessions: they are old
    )


@pytest.fixture(
    params=[
        (store, how)
        for store in ("postgres", "zookeeper", "consul", "kafka")
        for how in ("suspended", "killed")
    ],
    ids="-".join,
)
def away(request: pytest.FixtureRequest) -> Iterator[Away]:
    store, how = request.param
    server = request.getfixturevalue(store)
    is_postgres = store == "postgres"
    made = postgres_away(server, how) if is_postgres else process_away(store, server, how)
    yield made
    if how == "suspended":
        made.give_back()


@pytest.fixture
def daemon(tmp_path: Path, away: Away) -> Iterator[Groupkeeper]:
    daemon = Groupkeeper(
        tmp_path / "daemon",
        storage_url=away.url,
        topics={TOPIC: PARTITIONS},
        settings={"storage.append_timeout_ms": APPEND_TIMEOUT_MS},
    )
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def hosts(daemon: Groupkeeper) -> Iterator[Hosts]:
    yield from hosts_for(daemon.bootstrap)


def lines(daemon: Groupkeeper) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.log.splitlines() if line[:1] == "{"]


def settled(members: list[Member], hosts: Hosts) -> None:
    """Wait until each member has its partitions and commits."""
    wait_until(lambda: all(len(m.held) == PARTITIONS for m in members), hosts.all(), "partitions")
    for member in members:
        member.load(5)
    wait_until(lambda: all(m.ledger.count for m in members), hosts.all(), "every one commits")


def commit_again(members: list[Member], hosts: Hosts) -> None:
    counts = [member.ledger.count for member in members]
    wait_until(
        lambda: all(m.ledger.count > n for m, n in zip(members, counts, strict=True)),
        hosts.all(),
        "every one commits again",
    )
    for member in members:
        member.load(0)


def test_an_outage_of_two_minutes_stops_no_consumption(
    away: Away, daemon: Groupkeeper, hosts: Hosts
) -> None:
    members = [hosts.fresh(each).join(each, f"of-{each}", [TOPIC]) for each in LIBRARIES]
    settled(members, hosts)
    held, identities = [m.held for m in members], [m.identity() for m in members]
    with RawClient(daemon.port) as client:
        member_id = a_member(client, session_ms=SESSION_MS)
        busy = BusyMember(daemon.port, "g", member_id, TOPIC)
        with busy.running():
            time.sleep(2)
            before = view(client, "g")
            away.take()
            taken_s = time.monotonic()
            time.sleep(OUTAGE_S)
            status, text = daemon.get("/readyz")
            assert (status, "not ready" in text) == (503, True)
            assert daemon.metric("groupkeeper_storage_lease_seconds_left") == 0
            given_s = time.monotonic()
            away.give_back()
            wait_until(lambda: daemon.get("/readyz")[0] == 200, hosts.all(), "ready again")
            ready_s = time.monotonic()
            commit_again(members, hosts)
            assert view(client, "g") == before
        kept = committed(client, "g")[TOPIC, 0]
        found = {each: committed(client, f"of-{each}") for each in LIBRARIES}

    assert {beat.error for beat in busy.beats} == {ErrorCode.NONE}
    assert max(beat.took_s for beat in busy.beats) < SLACK_S
    during = [each for each in busy.commits if taken_s <= each.sent_s + each.took_s < given_s]
    slow = [each for each in during if each.took_s >= SLACK_S]
    print(  # noqa: T201 - the figures of a run by hand
        f"\n{away.url.partition(':')[0]}: {len(busy.beats)} heartbeats, all NONE, slowest "
        f"{max(b.took_s for b in busy.beats):.2f} s; {len(during)} commits during "
        f"{OUTAGE_S:.0f} s, waited: {[round(each.took_s, 2) for each in slow]} s, slowest other "
        f"{max((e.took_s for e in during if e not in slow), default=0):.3f} s; ready "
        f"{ready_s - given_s:.1f} s after the store was back"
    )
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert {each.error for each in during if each.sent_s >= taken_s} == {loading}
    assert {each.error for each in during} <= {ErrorCode.NONE, loading}
    assert len(slow) <= 1, "only what was sent before the store was known to be away waits"
    assert max(each.took_s for each in during) < APPEND_TIMEOUT_MS / 1000 + SLACK_S
    last = max(each.offset for each in busy.commits if not each.error)
    assert kept == last
    assert busy.commits[-1].error == ErrorCode.NONE

    assert [m.held for m in members] == held
    assert [m.identity() for m in members] == identities
    check_undisturbed(members)
    for member in members:
        assert check_offsets([member], found[member.name]) > 0
    told = [line["event"] for line in lines(daemon)]
    for event in ("append_failed", "loaded"):
        assert event in told, event
    assert "member_evicted" not in told
    assert "core_failed" not in told
