"""Measure the store in topics of Kafka beside the producer of aiokafka.

An append of the store is a transaction for each of its shards. The producer writes the same
messages in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from bench.append_series import Series, print_beside
from bench.storage_bench import Load
from groupkeeper.storage.backends.kafka_topic.link import Fence, KafkaLink
from groupkeeper.storage.backends.kafka_topic.store import KafkaTopicStorage
from groupkeeper.storage.backends.kafka_topic.url import parse_url
from groupkeeper.storage.backends.kafka_topic.written import Message
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.storage.kafka_topic_site import STORE_SETTINGS

TTL_MS = 60_000


_sent: list[tuple[str, int, Message]] = []
"""What the last append wrote: the topic, the partition and the message."""


class _Link(KafkaLink):
    """Adds the messages that it sends to ``_sent``."""

    async def send(
        self, fence: Fence, topic: str, partition: int, messages: Sequence[Message], sequence: int
    ) -> int:
        _sent.extend((topic, partition, message) for message in messages)
        return await super().send(fence, topic, partition, messages, sequence)


async def measure_kafka(directory: Path, appends: int) -> None:
    """Let the store and the producer take turns."""
    server = RealKafka(directory, {"raw": 8, "raw-events": 9}, STORE_SETTINGS)
    server.start()
    url = parse_url(f"kafka://{server.bootstrap}/store", {})
    storage = KafkaTopicStorage(
        url,
        node_id=1,
        name="bench",
        append_timeout_ms=60_000,
        lease_ttl_ms=TTL_MS,
        connect=_Link,
    )
    load = Load(storage, 100)
    producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap, transactional_id="raw")
    try:
        await load.start()
        await producer.start()
        ours, theirs = Series("Kafka, an append of 64"), Series("aiokafka, the same messages")
        for _ in range(appends):
            _sent.clear()
            items = load.items()
            await ours.measure(lambda items=items: storage.append(items))
            await theirs.measure(lambda: _write(producer, url.topic))
        print_beside(ours, theirs)
    finally:
        await producer.stop()
        await storage.close()
        server.stop()


async def _write(producer: Any, topic: str) -> None:
    async with producer.transaction():
        for name, partition, (key, value) in _sent:
            raw = "raw" if name == topic else "raw-events"
            await producer.send(raw, value, key, partition=partition)
