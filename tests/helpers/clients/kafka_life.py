"""Short lives of groups with real clients, so that a broker writes what groups make it write."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

POLLS = 200


def a_consumer(bootstrap: str, group: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def a_new_consumer(bootstrap: str, group: str) -> Consumer:
    """One that speaks the consumer protocol (KIP-848), whose sessions the broker decides."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )


def join(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """Poll until there is an assignment."""
    consumer.subscribe([topic])
    for _ in range(POLLS):
        consumer.poll(0.1)
        if consumer.assignment():
            return list(consumer.assignment())
    raise AssertionError("no assignment")


def commit(consumer: Consumer, offsets: Mapping[tuple[str, int], int]) -> None:
    wanted = [TopicPartition(topic, number, at) for (topic, number), at in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)


def members_come_and_go(bootstrap: str, group: str, topic: str) -> None:
    """One joins and commits and leaves; the group stays with its offsets."""
    consumer = a_consumer(bootstrap, group, client_id="grün")
    assigned = join(consumer, topic)
    commit(consumer, {(topic, each.partition): 10 + each.partition for each in assigned})
    commit(consumer, {(topic, assigned[0].partition): 4})
    consumer.close()


def a_static_member(bootstrap: str, group: str, topic: str) -> None:
    """One with a group.instance.id joins and commits, and does not leave when it closes."""
    consumer = a_consumer(bootstrap, group, group_instance_id="static-1")
    assigned = join(consumer, topic)
    commit(consumer, {(topic, each.partition): 1 for each in assigned})
    consumer.close()


def a_transaction(bootstrap: str, group: str, topic: str, *, commit: bool) -> None:
    """Offsets are sent within a transaction, which is committed or aborted."""
    consumer = a_consumer(bootstrap, group)
    assigned = join(consumer, topic)
    at = 100 if commit else 999
    transaction = OpenTransaction(bootstrap, consumer, {(topic, p.partition): at for p in assigned})
    if commit:
        transaction.commit()
    else:
        transaction.abort()
    consumer.close()


class OpenTransaction:
    """A transaction that has sent offsets in the name of a consumer's group."""

    def __init__(
        self, bootstrap: str, consumer: Consumer, offsets: Mapping[tuple[str, int], int]
    ) -> None:
        self._consumer = consumer
        self._sent = [TopicPartition(topic, number, at) for (topic, number), at in offsets.items()]
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"tx-{uuid.uuid4()}",
                "log_level": 0,
            }
        )
        self._producer.init_transactions(30)
        self._producer.begin_transaction()
        group = consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(self._sent, group)

    def commit(self) -> None:
        self._producer.commit_transaction(30)
        self._settle()

    def abort(self) -> None:
        self._producer.abort_transaction(30)
        self._settle()

    def _settle(self) -> None:
        """Wait for the marker, which Kafka writes after it has answered."""
        self._consumer.committed(self._sent, timeout=30)


def produce(bootstrap: str, topic: str, partitions: int, records: int) -> None:
    """Put records into every partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "log_level": 0})
    for number in range(partitions):
        for record in range(records):
            producer.produce(topic, str(record).encode(), partition=number)
    assert producer.flush(60) == 0
