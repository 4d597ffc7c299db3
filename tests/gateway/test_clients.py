"""Real clients behind the gateway: data goes to the broker, groups are ours."""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Callable
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.wire.raw_client import RawClient

pytestmark = [pytest.mark.gateway, pytest.mark.slow, pytest.mark.java]

RECORDS = 300
LIMIT_S = 60


def a_topic(bootstrap: str, partitions: int = 3) -> str:
    """Create a topic through this address."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(LIMIT_S)
    return name


def committed_upstream(kafka: RealKafka, group: str) -> Any:
    with RawClient(kafka.port) as raw:
        groups = [{"group_id": group, "topics": None}]
        reply = raw.call("offset_fetch", 8, groups=groups, require_stable=False)
    return reply["groups"][0]["topics"]


def committed_here(gateway: Groupkeeper, group: str) -> int:
    """The sum of the group's offsets."""
    with RawClient(gateway.port) as raw:
        groups = [{"group_id": group, "topics": None}]
        reply = raw.call("offset_fetch", 8, groups=groups, require_stable=False)
    return sum(
        part["committed_offset"]
        for topic in reply["groups"][0]["topics"]
        for part in topic["partitions"]
    )


async def librdkafka(bootstrap: str, topic: str, group: str) -> set[bytes]:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for n in range(RECORDS):
        producer.produce(topic, key=str(n), value=str(n))
    assert producer.flush(LIMIT_S) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    got: set[bytes] = set()
    end = time.monotonic() + LIMIT_S
    while len(got) < RECORDS and time.monotonic() < end:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            got.add(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return got


async def kafka_python(bootstrap: str, topic: str, group: str) -> set[bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # it calls importlib.resources.read_text
        from kafka import KafkaConsumer, KafkaProducer
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for n in range(RECORDS):
        producer.send(topic, key=str(n).encode(), value=str(n).encode())
    producer.flush(LIMIT_S)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    got: set[bytes] = set()
    end = time.monotonic() + LIMIT_S
    while len(got) < RECORDS and time.monotonic() < end:
        for records in consumer.poll(1_000).values():
            got |= {record.value for record in records}
    consumer.commit()
    consumer.close()
    return got


async def aiokafka_client(bootstrap: str, topic: str, group: str) -> set[bytes]:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for n in range(RECORDS):
            await producer.send(topic, key=str(n).encode(), value=str(n).encode())
        await producer.flush()
    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    got: set[bytes] = set()
    async with consumer:
        end = time.monotonic() + LIMIT_S
        while len(got) < RECORDS and time.monotonic() < end:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                got |= {record.value for record in records}
        await consumer.commit()
    return got


@pytest.mark.parametrize("client", [librdkafka, kafka_python, aiokafka_client])
async def test_a_group_consumes_through_the_gateway_and_its_offsets_are_ours(
    kafka: RealKafka, gateway: Groupkeeper, client: Callable[..., Any]
) -> None:
    topic, group = a_topic(gateway.bootstrap), f"g-{uuid.uuid4().hex[:8]}"
    got = await client(gateway.bootstrap, topic, group)
    assert got == {str(n).encode() for n in range(RECORDS)}
    assert committed_here(gateway, group) == RECORDS
    assert committed_upstream(kafka, group) == []


def test_a_client_sees_our_addresses_and_the_upstreams_cluster(
    kafka: RealKafka, gateway: Groupkeeper
) -> None:
    with RawClient(gateway.port) as ours, RawClient(kafka.port) as theirs:
        asked = {"topics": None, "allow_auto_topic_creation": False}
        shown = ours.call("metadata", 9, **asked)
        upstream = theirs.call("metadata", 9, **asked)
        found = ours.call("find_coordinator", 3, key="g", key_type=0)
    first = int(str(gateway.settings["upstream.ports"]).split("-")[0])
    at = {broker["node_id"]: (broker["host"], broker["port"]) for broker in shown["brokers"]}
    assert at == {1: ("127.0.0.1", first), 1_000_000: ("127.0.0.1", gateway.port)}
    assert shown["cluster_id"] == upstream["cluster_id"]
    assert found["node_id"] == 1_000_000
    assert found["port"] == gateway.port
    with RawClient(first) as broker:
        assert broker.call("metadata", 9, **asked)["brokers"] == shown["brokers"]
        assert broker.call("find_coordinator", 3, key="g", key_type=0)["port"] == gateway.port


def test_the_traffic_of_each_broker_is_counted(gateway: Groupkeeper) -> None:
    a_topic(gateway.bootstrap)
    page = gateway.get("/metrics")[1]
    assert 'groupkeeper_upstream_up{broker="1"} 1.0' in page
    for name in ("sent_bytes_total", "received_bytes_total", "connections"):
        assert f'groupkeeper_upstream_{name}{{broker="1"}}' in page
    assert "groupkeeper_upstream_metadata_age_seconds" in page
    status, text = gateway.get("/readyz")
    assert (status, text.split("\n")[0]) == (200, "ready")
    assert "the upstream answered" in text


def test_records_of_20_mb_pass_both_ways(gateway: Groupkeeper) -> None:
    """They are longer than kafka.max_frame_bytes, which limits only requests for groups."""
    topic = a_topic(gateway.bootstrap, 1)
    size = 20_000_000
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "message.max.bytes": 30_000_000})
    for letter in b"abc":
        producer.produce(topic, value=bytes([letter]) * size)
    assert producer.flush(LIMIT_S) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": "large",
            "fetch.message.max.bytes": 30_000_000,
            "fetch.max.bytes": 90_000_000,
            "receive.message.max.bytes": 100_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = [consumer.poll(LIMIT_S) for _ in range(3)]
    assert [(m.value()[0], len(m.value())) for m in messages if m] == [
        (letter, size) for letter in b"abc"
    ]
    consumer.close()
