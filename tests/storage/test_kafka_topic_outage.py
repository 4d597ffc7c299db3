"""The daemon over topics of a real Kafka: it is killed, and its broker stands still or dies."""

from __future__ import annotations

import os
import signal
import time
import uuid
from typing import TYPE_CHECKING

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from tests.helpers.core.group_view import commit, committed, heartbeat, view
from tests.helpers.daemon.faulty_server import wait_until
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.storage.outage_members import a_member
from tests.helpers.wire.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.helpers.clients.real_kafka import RealKafka

TOPIC = "orders"
OUTAGE_S = 5
"""Longer than a session of the members here, which is two seconds."""


@pytest.fixture
def daemon(tmp_path: Path, kafka: RealKafka) -> Iterator[Groupkeeper]:
    daemon = Groupkeeper(
        tmp_path / "daemon",
        storage_url=f"kafka://{kafka.bootstrap}/t{uuid.uuid4().hex}",
        topics={TOPIC: 4},
        settings={
            "storage.append_timeout_ms": 1_000,
            "group.min_session_timeout_ms": 1_500,
            "cluster.lease_ttl_ms": 1_000,
        },
    )
    daemon.start()
    yield daemon
    daemon.stop()


def wait_ready(daemon: Groupkeeper) -> None:
    wait_until(lambda: daemon.get("/readyz")[0] == 200, daemon)


@pytest.mark.kafka_topic
def test_what_a_killed_daemon_acknowledged_is_there_after_its_next_start(
    daemon: Groupkeeper,
) -> None:
    with RawClient(daemon.port) as client:
        for offset in range(20):
            assert commit(client, "g", TOPIC, {0: offset}) == {0: ErrorCode.NONE}
        daemon.kill()
    daemon.start()
    with RawClient(daemon.port) as client:
        assert committed(client, "g") == {(TOPIC, 0): 19}
        assert commit(client, "g", TOPIC, {1: 7}) == {1: ErrorCode.NONE}
        assert committed(client, "g") == {(TOPIC, 0): 19, (TOPIC, 1): 7}


def stand_still(kafka: RealKafka) -> Callable[[], object]:
    """Suspend the broker. Return what lets it go on."""
    os.kill(kafka.pid, signal.SIGSTOP)
    return lambda: os.kill(kafka.pid, signal.SIGCONT)


def die(kafka: RealKafka) -> Callable[[], object]:
    """Kill the broker. Return what starts it again."""
    kafka.kill()
    return kafka.start


@pytest.mark.parametrize(
    "fail",
    [
        pytest.param(stand_still, marks=pytest.mark.kafka_topic),
        pytest.param(die, marks=pytest.mark.storage_long),  # its start takes long
    ],
)
def test_a_broker_that_does_not_answer_evicts_nobody_and_loses_nothing(
    daemon: Groupkeeper, kafka: RealKafka, fail: Callable[[RealKafka], Callable[[], object]]
) -> None:
    with RawClient(daemon.port) as client, RawClient(daemon.port) as committing:
        member_id = a_member(client)
        mine = {"generation": 1, "member_id": member_id}
        assert commit(committing, "g", TOPIC, {0: 1}, **mine) == {0: ErrorCode.NONE}
        before = view(client, "g")
        go_on = fail(kafka)
        try:
            beats, commits = set(), set()
            until = time.monotonic() + OUTAGE_S
            while time.monotonic() < until:
                commits |= {*commit(committing, "g", TOPIC, {0: 2}, **mine).values()}
                beats.add(heartbeat(client, "g", member_id, 1))
                time.sleep(0.1)
        finally:
            go_on()
        assert (beats, commits) == ({ErrorCode.NONE}, {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
        wait_ready(daemon)
        assert heartbeat(client, "g", member_id, 1) == ErrorCode.NONE
        assert view(client, "g") == before
        assert committed(client, "g")[TOPIC, 0] in (1, 2)
        assert commit(committing, "g", TOPIC, {0: 3}, **mine) == {0: ErrorCode.NONE}
        assert committed(client, "g") == {(TOPIC, 0): 3}
