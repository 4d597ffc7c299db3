"""Consumers change to the gateway one by one, while records are produced: the group is adopted when
the last one has gone.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.daemon.gateways import a_gateway

pytestmark = [pytest.mark.gateway, pytest.mark.slow, pytest.mark.java]

PARTITIONS = 6
CONSUMERS = 3
LIMIT_S = 90


class Worker:
    """A consumer in a thread. It commits behind each record, and leaves its group when told."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.values: list[int] = []
        self._stopped = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.values.append(int(message.value()))
                self._consumer.commit(message=message, asynchronous=False)
        self._consumer.close()

    def leave(self) -> None:
        self._stopped.set()
        self._thread.join(LIMIT_S)


class Load:
    """Numbers, one after the other, over all partitions."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.count = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(bootstrap, topic))
        self._thread.start()

    def _run(self, bootstrap: str, topic: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        while not self._stopped.wait(0.01):
            producer.produce(topic, value=str(self.count), partition=self.count % PARTITIONS)
            self.count += 1
            producer.poll(0)
        assert producer.flush(LIMIT_S) == 0

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(LIMIT_S)


def until(workers: list[Worker], count: int) -> None:
    """Wait until so many different numbers have been consumed."""
    end = time.monotonic() + LIMIT_S
    while len({value for worker in workers for value in worker.values}) < count:
        assert time.monotonic() < end, [len(worker.values) for worker in workers]
        time.sleep(0.1)


def test_consumers_switch_one_by_one_and_nothing_is_skipped(
    kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic, group = f"t-{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(LIMIT_S)
    gateway = a_gateway(
        tmp_path_factory.mktemp("switch"), kafka.bootstrap, {"upstream.adopt": True}
    )
    gateway.start()
    workers: list[Worker] = []
    load = Load(kafka.bootstrap, topic)
    try:
        there = [Worker(kafka.bootstrap, group, topic) for _ in range(CONSUMERS)]
        workers += there
        until(workers, 100)
        here: list[Worker] = []
        for worker in there:
            assert [each.values for each in here] == [[] for _ in here], "in two places at once"
            worker.leave()
            here.append(Worker(f"127.0.0.1:{gateway.port}", group, topic))
            workers.append(here[-1])
            time.sleep(1)  # they ask again and again, and the load goes on
        until(here, 300)
        load.stop()
        until(workers, load.count)
    finally:
        load.stop()
        for worker in workers:
            worker.leave()
        gateway.stop()
    found = Counter(value for worker in workers for value in worker.values)
    assert found.keys() == set(range(load.count)), "nothing is skipped"
    assert max(found.values()) == 1, "a worker that leaves has committed what it consumed"
