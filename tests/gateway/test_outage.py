"""The broker is killed, and we are, while a group works: nobody is evicted, nothing is lost."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.helpers.clients.kafka_pair import FIRST, SECOND, KafkaPair
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.daemon.gateways import a_gateway
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.wire.raw_client import RawClient

pytestmark = [pytest.mark.gateway, pytest.mark.slow, pytest.mark.java]

LIMIT_S = 90
OUTAGE_COMMITS = 20


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[RealKafka]:
    """A broker that a test may kill."""
    server = RealKafka(tmp_path / "kafka", {})
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
def own_gateway(own_kafka: RealKafka, tmp_path: Path) -> Iterator[Groupkeeper]:
    daemon = a_gateway(tmp_path / "gateway", own_kafka.bootstrap)
    try:
        yield daemon.start()
    finally:
        daemon.stop()


def poll(consumer: Consumer, count: int) -> int:
    """Consume so many records, within a limit that is no assertion."""
    got, end = 0, time.monotonic() + LIMIT_S
    while got < count and time.monotonic() < end:
        message = consumer.poll(0.5)
        got += message is not None and message.error() is None
    return got


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": LIMIT_S * 1_000})
    for n in range(count):
        producer.produce(topic, value=str(n))
    assert producer.flush(LIMIT_S) == 0


def described(gateway: Groupkeeper, group: str) -> tuple[str, list[str]]:
    """The state of a group, and the ids of its members."""
    with RawClient(gateway.port) as raw:
        (found,) = raw.call("describe_groups", 5, groups=[group])["groups"]
    return found["group_state"], sorted(member["member_id"] for member in found["members"])


def test_groups_go_on_while_no_broker_runs_and_while_we_are_killed(
    own_kafka: RealKafka, own_gateway: Groupkeeper
) -> None:
    kafka, gateway = own_kafka, own_gateway
    topic, group = f"t-{uuid.uuid4().hex[:8]}", "g"
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(LIMIT_S)
    produce(gateway.bootstrap, topic, 10)
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 45_000,
            "reconnect.backoff.max.ms": 500,
        }
    )
    try:
        consumer.subscribe([topic])
        assert poll(consumer, 10) == 10
        consumer.commit(asynchronous=False)
        before = described(gateway, group)
        assert before[0] == "Stable"
        ports = dict(_ports(gateway))

        kafka.kill()
        for n in range(OUTAGE_COMMITS):
            consumer.poll(0.2)
            offsets = [TopicPartition(topic, 0, n)]
            consumer.commit(offsets=offsets, asynchronous=False)
        assert gateway.get("/readyz")[0] == 200
        assert described(gateway, group) == before

        gateway.kill()
        gateway.start()
        for port in ports.values():  # although nobody knows whether the broker is still there
            with socket.create_connection(("127.0.0.1", port), LIMIT_S):
                pass
        assert described(gateway, group) == before
        _commit(consumer, TopicPartition(topic, 0, 10))
        with RawClient(gateway.port) as raw:
            shown = raw.call("metadata", 9, topics=None, allow_auto_topic_creation=False)
        (partition,) = next(t for t in shown["topics"] if t["name"] == topic)["partitions"]
        assert (partition["error_code"], partition["leader_id"]) == (5, -1)

        kafka.start()
        produce(gateway.bootstrap, topic, 10)
        assert poll(consumer, 10) == 10
        assert described(gateway, group) == before
        assert dict(_ports(gateway)) == ports
    finally:
        consumer.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[KafkaPair]:
    """Two brokers; the second one leads the topic."""
    brokers = KafkaPair(tmp_path / "pair", "moves")
    try:
        yield brokers.start()
    finally:
        brokers.stop()


def test_a_leader_is_killed_and_comes_back_behind_the_same_port(
    pair: KafkaPair, tmp_path: Path
) -> None:
    gateway = a_gateway(tmp_path / "gateway", pair.bootstrap)
    consumer = None
    try:
        gateway.start()
        ports = dict(_ports(gateway))
        assert ports.keys() == {FIRST, SECOND, 1_000_000}
        consumer = Consumer(
            {
                "bootstrap.servers": gateway.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([pair.topic])
        produce(gateway.bootstrap, pair.topic, 10)
        assert poll(consumer, 10) == 10
        before = described(gateway, "g")

        pair.second.kill()
        pair.wait(FIRST, replicas=1)
        produce(gateway.bootstrap, pair.topic, 10)
        assert poll(consumer, 10) == 10
        _until(lambda: SECOND not in dict(_ports(gateway)))

        pair.second.start()
        pair.wait(SECOND, replicas=2)
        _until(lambda: dict(_ports(gateway)) == ports)
        produce(gateway.bootstrap, pair.topic, 10)
        assert poll(consumer, 10) == 10
        assert described(gateway, "g") == before, "nobody was evicted, and nobody rebalanced"
    finally:
        if consumer is not None:
            consumer.close()
        gateway.stop()


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not true() and time.monotonic() < end:
        time.sleep(0.2)
    assert true()


def _commit(consumer: Consumer, offset: TopicPartition) -> None:
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            consumer.commit(offsets=[offset], asynchronous=False)
        except KafkaException:
            if time.monotonic() > end:
                raise
            consumer.poll(0.2)
        else:
            return


def _ports(gateway: Groupkeeper) -> Iterator[tuple[int, int]]:
    with RawClient(gateway.port) as raw:
        shown = raw.call("metadata", 9, topics=[], allow_auto_topic_creation=False)
    for broker in shown["brokers"]:
        yield broker["node_id"], broker["port"]
