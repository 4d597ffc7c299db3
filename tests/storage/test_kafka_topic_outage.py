"""The daemon over topics of a real Kafka: it is killed, and its broker stands still or dies."""

from __future__ import annotations

import os
import signal
import time
import uuid
from typing import TYPE_CHECKING

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from tests.helpers.core.group_view import commit, committed, view
from tests.helpers.daemon.faulty_server import wait_until
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.storage.outage_members import Answered, BusyMember, a_member
from tests.helpers.wire.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
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
    with RawClient(daemon.port) as client:
        member_id = a_member(client)
        before = view(client, "g")
        # A broker takes long to start, and a member that is silent meanwhile would be evicted.
        with BusyMember(daemon.port, "g", member_id, TOPIC).running() as busy:
            wait_until(lambda: ErrorCode.NONE in errors_of(busy.commits), daemon)
            go_on = fail(kafka)
            try:
                began_s = time.monotonic()
                time.sleep(OUTAGE_S)
                refused = errors_of([each for each in [*busy.commits] if each.sent_s > began_s])
            finally:
                go_on()
            wait_ready(daemon)
            again_s = time.monotonic()
            wait_until(lambda: busy.commits[-1].sent_s > again_s, daemon)
        assert refused == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        assert errors_of(busy.beats) == {ErrorCode.NONE}
        assert busy.commits[-1].error == ErrorCode.NONE
        assert view(client, "g") == before
        assert committed(client, "g") == {(TOPIC, 0): busy.commits[-1].offset}


def errors_of(answers: Sequence[Answered]) -> set[int]:
    return {each.error for each in [*answers]}
