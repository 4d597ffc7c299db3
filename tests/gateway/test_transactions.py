"""Exactly-once copies through the gateway: each record once, although transactions are aborted and
the daemon is killed.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.gateway.test_clients import a_topic, committed_here, committed_upstream
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.daemon.gateways import FailpointGateway, a_failing_gateway
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.wire.raw_client import RawClient

pytestmark = [pytest.mark.gateway, pytest.mark.slow, pytest.mark.java]

RECORDS = 400
AT_ONCE = 20
LIMIT_S = 150
JOURNAL = "__groupkeeper_transactions"
RECOVERY = "none"
"""With its default, rebootstrap, librdkafka 2.16 may send no request of a group any more after all
of its connections were refused. A copier then waits for minutes: docs/operate/troubleshooting.md.
"""


class Copier:
    """Copies a topic with librdkafka. Every third transaction is aborted."""

    def __init__(self, bootstrap: str, source: str, sink: str, group: str) -> None:
        self.bootstrap, self.source, self.sink, self.group = bootstrap, source, sink, group
        self.transactions = 0
        self.failures: list[str] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "metadata.recovery.strategy": RECOVERY,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self.consumer.subscribe([source])
        self.producer = self._producer()

    def _producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "metadata.recovery.strategy": RECOVERY,
                "transactional.id": f"copy-{self.group}",
                "transaction.timeout.ms": 60_000,
            }
        )
        producer.init_transactions(60)
        return producer

    def run(self) -> None:
        """Copy until everything is committed."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            messages = [m for m in self.consumer.consume(AT_ONCE, 2) if m.error() is None]
            if messages:
                self._copy(messages)
            elif self.consumer.assignment() and self._is_done():
                break
        self.consumer.close()

    def _copy(self, messages: list[Message]) -> None:
        self.transactions += 1
        try:
            self.producer.begin_transaction()
            for message in messages:
                self.producer.produce(self.sink, value=message.value())
            positions = self.consumer.position(self.consumer.assignment())
            metadata = self.consumer.consumer_group_metadata()
            self.producer.send_offsets_to_transaction(positions, metadata, 60)
            if self.transactions % 3 == 0:
                self._abort()
                self._rewind()
            else:
                self.producer.commit_transaction(60)
        except KafkaException as error:
            self.failures.append(str(error))
            self._recover(error)
            self._rewind()

    def _recover(self, error: KafkaException) -> None:
        try:
            if not error.args[0].fatal():
                self._abort()
                return
        except KafkaException as again:
            self.failures.append(str(again))
        self.producer = self._producer()

    def _abort(self) -> None:
        """Abort after all records have left the queue: docs/operate/troubleshooting.md."""
        self.producer.flush(60)
        self.producer.abort_transaction(60)

    def _rewind(self) -> None:
        """Go back to what is committed."""
        for _ in range(30):
            try:
                for each in self.consumer.committed(self.consumer.assignment(), 10):
                    offset = max(each.offset, 0)
                    self.consumer.seek(TopicPartition(each.topic, each.partition, offset))
                return
            except KafkaException as error:
                self.failures.append(str(error))
                time.sleep(0.5)

    def _is_done(self) -> bool:
        try:
            committed = self.consumer.committed(self.consumer.assignment(), 10)
        except KafkaException:
            return False
        return sum(max(each.offset, 0) for each in committed) >= RECORDS


def consumed(bootstrap: str, topic: str) -> Counter[bytes]:
    """Return the committed records of a topic, counted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"check-{uuid.uuid4().hex}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    found: Counter[bytes] = Counter()
    silent = 0
    while silent < 4:
        messages = consumer.consume(500, 1)
        values = [m.value() for m in messages if m.error() is None]
        silent = 0 if values else silent + (bool(consumer.assignment()))
        found.update(values)
    consumer.close()
    return found


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(RECORDS):
        producer.produce(topic, value=str(n))
    assert producer.flush(60) == 0


@pytest.fixture
def failing(kafka: RealKafka, tmp_path: Path) -> Iterator[FailpointGateway]:
    gateway = a_failing_gateway(tmp_path / "gateway", kafka.bootstrap)
    try:
        yield gateway.start()
    finally:
        gateway.stop()


@pytest.fixture
def killed(failing: FailpointGateway) -> Iterator[threading.Event]:
    """Set it, and the daemon dies: first when an answer of the journal is lost, then at any time.

    ``test_exactly_once_long`` has the other steps of a transaction.
    """
    begin, stop = threading.Event(), threading.Event()

    def kill() -> None:
        begin.wait()
        while not failing.is_dead():
            if stop.wait(0.05):
                return
        failing.start()
        if not stop.wait(4):
            failing.kill()
            failing.start()

    failing.arm("unanswered", 3)
    thread = threading.Thread(target=kill)
    thread.start()
    yield begin
    begin.set()
    stop.set()
    thread.join()


def test_each_record_is_copied_once_although_the_daemon_is_killed(
    kafka: RealKafka, failing: FailpointGateway, killed: threading.Event
) -> None:
    gateway = failing
    source, sink = a_topic(gateway.bootstrap), a_topic(gateway.bootstrap)
    fill(gateway.bootstrap, source)
    group = f"copiers-{uuid.uuid4().hex[:8]}"
    copier = Copier(gateway.bootstrap, source, sink, group)
    killed.set()
    copier.run()
    found = consumed(kafka.bootstrap, sink)
    assert committed_here(gateway, group) == RECORDS, copier.failures
    assert committed_upstream(kafka, group) == []
    assert found == Counter(str(n).encode() for n in range(RECORDS)), copier.failures
    assert copier.transactions > RECORDS / AT_ONCE


def test_no_client_can_delete_the_journal_through_us(
    kafka: RealKafka, gateway: Groupkeeper
) -> None:
    upstream = AdminClient({"bootstrap.servers": kafka.bootstrap})
    end = time.monotonic() + LIMIT_S
    while JOURNAL not in upstream.list_topics(timeout=LIMIT_S).topics:
        assert time.monotonic() < end, "no journal"
        time.sleep(0.1)
    first, second = a_topic(gateway.bootstrap), a_topic(gateway.bootstrap)

    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    deleted = admin.delete_topics([JOURNAL, first])
    deleted[first].result(LIMIT_S)
    with pytest.raises(KafkaException) as refused:
        deleted[JOURNAL].result(LIMIT_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    with RawClient(gateway.port) as raw:  # our own node
        for names in ([JOURNAL], [JOURNAL, second]):
            reply = raw.call("delete_topics", 5, topic_names=names, timeout=30_000)
            codes = {each["name"]: each["error_code"] for each in reply["responses"]}
            assert codes == {name: 29 if name == JOURNAL else 0 for name in names}
    assert JOURNAL in upstream.list_topics(timeout=LIMIT_S).topics
