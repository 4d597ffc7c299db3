"""A Kafka with messages to read: each says in its value where it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from tests.helpers.clients.certificates import make_certificates
from tests.helpers.clients.real_kafka import JAAS, RealKafka
from tests.helpers.daemon.daemon import free_port
from tests.helpers.wire.recording_proxy import RecordingProxy

TOPIC = "events"
PARTITIONS = 12
MESSAGES = 100_000
COUNTS = [MESSAGES // PARTITIONS + (p < MESSAGES % PARTITIONS) for p in range(PARTITIONS)]
"""How many messages each partition has."""


CODECS = ["gzip", "snappy", "lz4", "zstd"]
"""One for each partition of the topic of this name."""


def value_at(partition: int, offset: int) -> bytes:
    """What the message there holds."""
    return f"{partition}/{offset}/".encode().ljust(100, b".")


async def fill(bootstrap: str, topic: str, counts: Sequence[int]) -> None:
    """Write messages of 100 bytes into each partition of a topic."""
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, max_batch_size=32_768, enable_idempotence=True
    ) as producer:
        for partition, count in enumerate(counts):
            batch = producer.create_batch()
            for offset in range(count):
                row = {"key": b"%d" % offset, "value": value_at(partition, offset)}
                if batch.append(timestamp=1_700_000_000_000 + offset, **row) is None:
                    await producer.send_batch(batch, topic, partition=partition)
                    batch = producer.create_batch()
                    batch.append(timestamp=1_700_000_000_000 + offset, **row)
            await producer.send_batch(batch, topic, partition=partition)
        await producer.flush()


def compress(bootstrap: str, codec: str, count: int) -> None:
    """Write messages in compressed batches into the partition of a codec."""
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50}
    partition = CODECS.index(codec)
    producer = Producer(settings | {"log_level": 0})
    for offset in range(count):
        producer.produce("codecs", value_at(partition, offset), partition=partition)
    assert producer.flush(60) == 0


def sell(bootstrap: str, topic: str, *counts: int) -> None:
    """Write transactions of so many messages each. Every second one is aborted."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": "seller", "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    for number, count in enumerate(counts):
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(topic, b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        end = producer.abort_transaction if number % 2 else producer.commit_transaction
        end(30)


class Watched:
    """A broker with a second listener behind a proxy that sees every request."""

    def __init__(self, directory: Path) -> None:
        others = {"empty": 1, "short": 2, "long": 1, "sold": 1, "codecs": len(CODECS)}
        self.kafka = RealKafka(directory, {TOPIC: PARTITIONS} | others)
        inner, outer, safe = free_port(), free_port(), free_port()
        make_certificates(directory)
        plain, seen = f"PLAINTEXT://127.0.0.1:{self.kafka.port}", "SEEN://127.0.0.1"
        self.kafka.settings = {
            "log.retention.ms": -1,  # the messages are of 2023
            "broker.session.timeout.ms": 3_000,  # a broker that was killed is let in again after it
            "broker.heartbeat.interval.ms": 500,
            "listeners": f"{plain},{seen}:{inner},SAFE://127.0.0.1:{safe},"
            f"CONTROLLER://127.0.0.1:{self.kafka.port + 1}",
            "advertised.listeners": f"{plain},{seen}:{outer},SAFE://127.0.0.1:{safe}",
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SEEN:PLAINTEXT,SAFE:SASL_SSL"
            ),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.safe.plain.sasl.jaas.config": JAAS,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": directory / "server.pem",
        }
        self.kafka.start()
        self.proxy = RecordingProxy(outer, inner)
        self.watched = f"127.0.0.1:{outer}"
        self.safe = f"127.0.0.1:{safe}"
        """Over TLS, for the user ``admin`` with the password ``secret``."""
        self.authority = directory / "ca.pem"

    @property
    def bootstrap(self) -> str:
        """Past the proxy."""
        return self.kafka.bootstrap

    def fetches(self) -> int:
        """How many Fetch requests passed the proxy since the last call."""
        return sum((f.api_key, f.direction) == (1, "request") for f in self.proxy.take())

    def stop(self) -> None:
        """End both."""
        self.proxy.stop()
        self.kafka.stop()
