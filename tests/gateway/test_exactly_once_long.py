"""Exactly-once copies through the gateway by clients of all languages: each record once, although
transactions are aborted, clients and the daemon are killed, and a client stops for longer than
its transaction may take.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.gateway.test_clients import a_topic, committed_here, committed_upstream
from tests.gateway.test_transactions import consumed
from tests.helpers.clients.ecosystem import Unavailable
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.daemon.failpoint_gateway import STEPS
from tests.helpers.daemon.gateways import FailpointGateway, a_failing_gateway, a_gateway
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.gateway.copiers import Copier
from tests.helpers.wire.raw_client import RawClient

pytestmark = [pytest.mark.gateway_long, pytest.mark.java, pytest.mark.go]

RECORDS = int(os.environ.get("RECORDS", "10000"))
PARTITIONS = 4
LIMIT_S = 900
"""No expectation: how long a copy may take before the test gives up."""
STOPPED_S = 16
"""Longer than the session (6 s) and the transaction (10 s) of a copier."""

# how long Kafka may take to see that a transaction is too old
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000}


@pytest.fixture(scope="module", params=[2, 1], ids=["version-2", "version-1"])
def transactional(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealKafka]:
    """A broker with this version of transactions."""
    server = RealKafka(tmp_path_factory.mktemp("transactional"), {}, SETTINGS)
    server.features = {"transaction.version": request.param}
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(scope="module")
def front(
    transactional: RealKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Groupkeeper]:
    settings = {  # for clients of the new protocol: the server says how long a session is
        "group.consumer_min_session_timeout_ms": 10_000,
        "group.consumer_session_timeout_ms": 10_000,
    }
    daemon = a_gateway(tmp_path_factory.mktemp("front"), transactional.bootstrap, settings)
    try:
        yield daemon.start()
    finally:
        daemon.stop()


class Copy:
    """Two copiers of one kind, from one topic to another."""

    def __init__(self, front: Groupkeeper, kind: str, directory: Path) -> None:
        self.front = front
        self.source, self.sink = a_topic(front.bootstrap, PARTITIONS), a_topic(front.bootstrap)
        self.group = f"copiers-{uuid.uuid4().hex[:8]}"
        self.copiers = [self.copier(kind, name, directory) for name in ("a", "b")]

    def copier(self, kind: str, name: str, directory: Path) -> Copier:
        where = [self.front.bootstrap, self.source, self.sink, self.group]
        arguments = [*where, f"{self.group}-{name}"]
        try:
            return Copier(kind, arguments, directory / f"{name}.log")
        except Unavailable as lack:
            pytest.skip(str(lack))

    def fill(self) -> None:
        producer = Producer({"bootstrap.servers": self.front.bootstrap, "linger.ms": 5})
        for n in range(RECORDS):
            producer.produce(self.source, value=str(n), partition=n % PARTITIONS)
            producer.poll(0)
        assert producer.flush(120) == 0

    def is_done(self) -> bool:
        return committed_here(self.front, self.group) >= RECORDS

    def complaint(self) -> str:
        told = [each.complaint() for each in self.copiers]
        return "\n---\n".join([*told, self.front.log[-3000:]])

    def end(self) -> None:
        for each in self.copiers:
            each.kill()


def check(copy: Copy, upstream: RealKafka) -> None:
    """Each record is there once, and the offsets are at the ends, here alone."""
    found = consumed(upstream.bootstrap, copy.sink)
    wanted = {str(n).encode() for n in range(RECORDS)}
    missing = sorted(int(each) for each in wanted - found.keys())
    twice = sorted(int(each) for each, count in found.items() if count > 1)
    assert (missing[:20], len(missing), twice[:20], len(twice)) == ([], 0, [], 0), copy.complaint()
    assert committed_here(copy.front, copy.group) == RECORDS
    assert unstable(copy.front, copy.group) == []
    assert committed_upstream(upstream, copy.group) == []


def unstable(front: Groupkeeper, group: str) -> list[int]:
    """The errors of partitions whose transactions are open."""
    with RawClient(front.port) as raw:
        groups = [{"group_id": group, "topics": None}]
        reply = raw.call("offset_fetch", 8, groups=groups, require_stable=True)
    parts = [part for topic in reply["groups"][0]["topics"] for part in topic["partitions"]]
    return [part["error_code"] for part in parts if part["error_code"]]


@pytest.mark.parametrize("kind", ["java", "java-consumer", "franz-go", "streams"])
def test_two_copiers_copy_each_record_once(
    transactional: RealKafka, front: Groupkeeper, tmp_path: Path, kind: str
) -> None:
    copy = Copy(front, kind, tmp_path)
    copy.fill()
    first, second = copy.copiers
    try:
        first.start()
        second.start()
        first.wait_open(LIMIT_S, copy.is_done)
        front.kill()
        front.start()
        if first.wait_open(LIMIT_S, copy.is_done):
            first.kill()
            first.start()
        if second.wait_open(LIMIT_S, copy.is_done):
            second.signal(signal.SIGSTOP)
            time.sleep(STOPPED_S)
            second.signal(signal.SIGCONT)
        if first.wait_open(LIMIT_S, copy.is_done):
            front.kill()
            first.kill()
            front.start()
            first.start()
        first.wait(copy.is_done, LIMIT_S)
    finally:
        copy.end()
    check(copy, transactional)


@pytest.mark.parametrize("kind", ["java", "franz-go"])
def test_a_copy_goes_on_after_a_death_at_each_step_of_a_transaction(
    transactional: RealKafka, tmp_path: Path, kind: str
) -> None:
    front = a_failing_gateway(tmp_path / "front", transactional.bootstrap)
    try:
        front.start()
        copy = Copy(front, kind, tmp_path)
        copy.fill()
        try:
            for each in copy.copiers:
                each.start()
            died = {step: dies_at(copy, front, step, number) for number, step in enumerate(STEPS)}
            copy.copiers[0].wait(copy.is_done, LIMIT_S)
        finally:
            copy.end()
        check(copy, transactional)
        assert all(died.values()), f"the copy ended before all steps: {died}"
    finally:
        front.stop()


def dies_at(copy: Copy, front: FailpointGateway, step: str, number: int) -> bool:
    """Let the daemon die at a step, and start it again. Return False if all is copied."""

    def is_over() -> bool:
        try:
            return front.is_dead() or copy.is_done()
        except OSError:  # it dies while it is asked
            return False

    front.arm(step, 1 + number % 3)
    copy.copiers[0].wait(is_over, LIMIT_S)
    if not front.is_dead():
        return False
    front.start()
    return True


def test_an_old_client_and_its_successor_copy_each_record_once(
    transactional: RealKafka, front: Groupkeeper, tmp_path: Path
) -> None:
    """aiokafka names no generation: the transactional id alone fences the one before."""
    copy = Copy(front, "aiokafka", tmp_path)
    successor = copy.copier("aiokafka", "a", tmp_path)
    copy.copiers[1] = successor
    copy.fill()
    first = copy.copiers[0].start()
    try:
        first.wait_open(LIMIT_S, copy.is_done)
        front.kill()
        front.start()
        if first.wait_open(LIMIT_S, copy.is_done):
            first.signal(signal.SIGSTOP)
            successor.start()
            successor.wait_open(LIMIT_S, copy.is_done)
            first.signal(signal.SIGCONT)
        for _ in range(5):
            if successor.wait_open(LIMIT_S, copy.is_done):
                successor.kill()
                successor.start()
        successor.wait(copy.is_done, LIMIT_S)
    finally:
        copy.end()
    check(copy, transactional)
