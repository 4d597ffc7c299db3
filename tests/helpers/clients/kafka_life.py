"""Short lives of groups with real clients, after which a broker has the records of such groups."""

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
    """Return a consumer with the consumer protocol (KIP-848). The broker has its session
    timeout.
    """
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
    """Subscribe, and poll until there is an assignment. Return it."""
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
    """Let a member join, commit and leave. The group and its offsets stay."""
    consumer = a_consumer(bootstrap, group, client_id="grün")
    assigned = join(consumer, topic)
    commit(consumer, {(topic, each.partition): 10 + each.partition for each in assigned})
    commit(consumer, {(topic, assigned[0].partition): 4})
    consumer.close()


def a_static_member(bootstrap: str, group: str, topic: str) -> None:
    """Let a static member join and commit. It does not leave when it closes."""
    consumer = a_consumer(bootstrap, group, group_instance_id="static-1")
    assigned = join(consumer, topic)
    commit(consumer, {(topic, each.partition): 1 for each in assigned})
    consumer.close()


def a_transaction(bootstrap: str, group: str, topic: str, *, commit: bool) -> None:
    """Send offsets in a transaction, and commit or abort it."""
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
    """An open transaction that has sent offsets of a consumer's group."""

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
        """Wait until Kafka has written the marker, which it does after its answer."""
        self._consumer.committed(self._sent, timeout=30)


def produce(bootstrap: str, topic: str, partitions: int, records: int) -> None:
    """Write ``records`` records into every partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "log_level": 0})
    for number in range(partitions):
        for record in range(records):
            producer.produce(topic, str(record).encode(), partition=number)
    assert producer.flush(60) == 0
