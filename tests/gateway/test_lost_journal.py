"""The journal of transactions is deleted at a real Kafka, and a person decides."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from groupkeeper.coordinator.gateway.status import UpstreamStatus
from tests.gateway.test_clients import a_topic, committed_here
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.daemon.gateways import a_gateway
from tests.helpers.daemon.recorded_gateway import UPSTREAM_HOST
from tests.helpers.daemon.servers import Groupkeeper

pytestmark = [pytest.mark.gateway, pytest.mark.slow, pytest.mark.java]

LIMIT_S = 120
JOURNAL = f"journal-{uuid.uuid4().hex[:8]}"
LOST = "groupkeeper_upstream_journal_lost_shards"


@pytest.fixture
def gateway(kafka: RealKafka, tmp_path: Path) -> Iterator[Groupkeeper]:
    daemon = a_gateway(tmp_path / "gateway", kafka.bootstrap, {"upstream.journal_topic": JOURNAL})
    try:
        yield daemon.start()
    finally:
        daemon.stop()


class Client:
    """A transactional producer that commits offsets of a group which it alone uses."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.topic = topic
        self.producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group})
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        self.producer.init_transactions(LIMIT_S)

    def begin(self, offset: int) -> None:
        self.producer.begin_transaction()
        self.producer.produce(self.topic, value=str(offset))
        position = TopicPartition(self.topic, 0, offset)
        metadata = self.consumer.consumer_group_metadata()
        self.producer.send_offsets_to_transaction([position], metadata, LIMIT_S)


def wait_for(gateway: Groupkeeper, sample: str, value: float) -> None:
    end = time.monotonic() + LIMIT_S
    while gateway.metric(sample) != value:
        assert time.monotonic() < end, gateway.log
        time.sleep(0.2)


def status(gateway: Groupkeeper) -> UpstreamStatus:
    code, said = upstream(gateway, "status", "-o", "json")
    assert code == 0, said
    return msgspec.json.decode(said, type=UpstreamStatus)


def resolve(gateway: Groupkeeper, *options: str) -> tuple[int, str]:
    return upstream(gateway, "resolve", *options)


def upstream(gateway: Groupkeeper, name: str, *options: str) -> tuple[int, str]:
    command = [gateway.python, *gateway.entry, "upstream", name]
    ran = subprocess.run(
        [*command, "--config", str(gateway.config_file), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_person_decides_about_offsets_whose_journal_was_deleted(
    kafka: RealKafka, gateway: Groupkeeper
) -> None:
    topic = a_topic(gateway.bootstrap)
    group = f"lost-{uuid.uuid4().hex[:8]}"
    client = Client(gateway.bootstrap, topic, group)
    client.begin(7)
    before = status(gateway)
    (broker,) = before.brokers
    assert (broker.address, broker.problem) == (f"{UPSTREAM_HOST}:{kafka.port}", "")
    assert broker.connections > 0
    assert before.journal.lost == {}
    assert [(each.group, each.partitions) for each in before.journal.open] == [(group, 1)]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([JOURNAL])[JOURNAL].result(LIMIT_S)
    wait_for(gateway, LOST, 1)  # the other shards go on
    assert "upstream resolve" in gateway.get("/readyz")[1]
    assert len(status(gateway).journal.lost) == 1
    code, said = resolve(gateway)
    assert code == 1, said
    assert "storage.url" in said

    gateway.terminate()
    code, said = resolve(gateway)
    assert code == 0, said
    assert group in said
    assert "deleted and created again" in said
    assert "Nothing was decided" in said
    code, said = resolve(gateway, "--group", "lost-*", "--decision", "commit", "--apply")
    assert code == 0, said
    assert "committed now: 1" in said

    gateway.start()
    assert committed_here(gateway, group) == 7
    client = Client(gateway.bootstrap, topic, group)
    client.begin(9)
    client.producer.commit_transaction(LIMIT_S)
    end = time.monotonic() + LIMIT_S
    while committed_here(gateway, group) != 9:
        assert time.monotonic() < end, gateway.log
        time.sleep(0.2)
    assert gateway.metric(LOST) == 0
    assert gateway.metric("groupkeeper_upstream_ended_transactions_total") == 1
    assert gateway.metric("groupkeeper_upstream_open_transactions") == 0
