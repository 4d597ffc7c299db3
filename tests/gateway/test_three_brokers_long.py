"""Three brokers behind the gateway: leaders move, one broker is killed, one is replaced, and all
are stopped for a while. The group goes on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.gateway.test_outage import described
from tests.helpers.clients.kafka_pair import BOTH
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.daemon.gateways import a_gateway
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.wire.raw_client import RawClient

pytestmark = [pytest.mark.gateway_long, pytest.mark.java]

TOPIC, GROUP, PARTITIONS, CONSUMERS = "numbers", "readers", 6, 3
LIMIT_S = 180
OUTAGE_S = float(os.environ.get("OUTAGE_S", "120"))


class Broker(RealKafka):
    """A broker of a cluster whose first node is the controller."""

    def __init__(self, directory: Path, node_id: int, first: RealKafka | None) -> None:
        super().__init__(directory, {}, BOTH)
        self.node_id = node_id
        self._first = first or self
        self.settings |= {
            "node.id": node_id,
            "controller.quorum.voters": f"1@127.0.0.1:{self._first.port + 1}",
            "default.replication.factor": 3,
            "offsets.topic.num.partitions": 5,
        }
        if first is not None:
            plain = f"PLAINTEXT://127.0.0.1:{self.port}"
            own = {"process.roles": "broker", "listeners": plain, "advertised.listeners": plain}
            self.settings |= own

    def _answers(self) -> bool:
        try:
            with RawClient(self.port) as client:
                answer = client.call("metadata", 4, topics=[], allow_auto_topic_creation=False)
        except OSError:
            return False
        return self.node_id in {each["node_id"] for each in answer["brokers"]}


class Reader:
    """A consumer in a thread. It remembers the last commit of each partition that was answered."""

    def __init__(self, bootstrap: str) -> None:
        self.values: list[int] = []
        self.assignments = 0
        self.acknowledged: dict[int, int] = {}
        self._stopped = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._assigned)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _assigned(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.assignments += 1

    def _run(self) -> None:
        while not self._stopped.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.values.append(int(message.value()))
                self._commit(message)
        self._consumer.close()

    def _commit(self, message: Message) -> None:
        try:
            self._consumer.commit(message=message, asynchronous=False)
        except KafkaException:
            return
        self.acknowledged[message.partition()] = message.offset() + 1

    def leave(self) -> None:
        self._stopped.set()
        self._thread.join(LIMIT_S)


class Load:
    """Numbers through the gateway, each until it is acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.count = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(bootstrap,))
        self._thread.start()

    def _run(self, bootstrap: str) -> None:
        limit_ms = int(1000 * (OUTAGE_S + LIMIT_S))
        settings = {"enable.idempotence": True, "message.timeout.ms": limit_ms}
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        while not self._stopped.wait(0.02):
            producer.produce(TOPIC, value=str(self.count), partition=self.count % PARTITIONS)
            self.count += 1
            producer.poll(0)
        assert producer.flush(LIMIT_S) == 0

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(LIMIT_S)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[int, Broker]]:
    first = Broker(tmp_path / "1", 1, None)
    found = {1: first}
    try:
        first.start()
        for node_id in (2, 3):
            found[node_id] = Broker(tmp_path / str(node_id), node_id, first)
            found[node_id].start()
        yield found
    finally:
        for each in found.values():
            each.stop()


def assign(port: int, replicas: list[int], *, create: bool = False) -> None:
    """Create the topic with these replicas, or move its partitions to them; leaders take turns."""
    turns = [replicas[n % len(replicas) :] + replicas[: n % len(replicas)] for n in range(6)]
    with RawClient(port) as raw:
        if create:
            rows = [{"partition_index": n, "broker_ids": turn} for n, turn in enumerate(turns)]
            topic = {"name": TOPIC, "num_partitions": -1, "replication_factor": -1}
            topics = [topic | {"assignments": rows}]
            reply = raw.call("create_topics", 5, topics=topics, timeout=30_000)
            assert [each["error_code"] for each in reply["topics"]] == [0], reply
            return
        rows = [{"partition_index": n, "replicas": turn} for n, turn in enumerate(turns)]
        topics = [{"name": TOPIC, "partitions": rows}]
        reply = raw.call("alter_partition_reassignments", 0, topics=topics, timeout=30_000)
        assert reply["error_code"] == 0, reply


def test_a_group_reads_on_whatever_the_brokers_do(
    brokers: dict[int, Broker], tmp_path: Path
) -> None:
    assign(brokers[1].port, [1, 2, 3], create=True)
    bootstrap = ",".join(each.bootstrap for each in brokers.values())
    gateway = a_gateway(tmp_path / "gateway", bootstrap)
    gateway.start()
    load = Load(gateway.bootstrap)
    readers = [Reader(gateway.bootstrap) for _ in range(CONSUMERS)]
    try:
        catch_up(readers, load)
        before, assigned = described(gateway, GROUP), [each.assignments for each in readers]
        assert (before[0], len(before[1])) == ("Stable", CONSUMERS)

        assign(gateway.port, [3, 1, 2])  # leaders move, asked through us
        catch_up(readers, load)
        brokers[2].kill()
        catch_up(readers, load)
        brokers[2].start()
        catch_up(readers, load)
        brokers[4] = Broker(tmp_path / "4", 4, brokers[1])
        brokers[4].start()
        assign(brokers[1].port, [4, 1, 2])  # 3 has nothing any more
        catch_up(readers, load)
        brokers[3].kill()
        catch_up(readers, load)
        gateway.kill()
        gateway.start()
        catch_up(readers, load)
        for node_id in (2, 4, 1):
            brokers[node_id].kill()
        time.sleep(OUTAGE_S)
        for node_id in (1, 2, 4):
            brokers[node_id].start()
        catch_up(readers, load)

        assert described(gateway, GROUP) == before
        assert [each.assignments for each in readers] == assigned, "nobody rebalanced"
        load.stop()
        catch_up(readers, load)
    finally:
        load.stop()
        for each in readers:
            each.leave()
        gateway_offsets = offsets(gateway)
        gateway.stop()
    for reader in readers:
        for partition, offset in reader.acknowledged.items():
            assert gateway_offsets[partition] >= offset, "an acknowledged commit"
    assert {value for each in readers for value in each.values} == set(range(load.count))


def offsets(gateway: Groupkeeper) -> dict[int, int]:
    with RawClient(gateway.port) as raw:
        groups = [{"group_id": GROUP, "topics": None}]
        reply = raw.call("offset_fetch", 8, groups=groups, require_stable=False)
    rows = [row for topic in reply["groups"][0]["topics"] for row in topic["partitions"]]
    return {row["partition_index"]: row["committed_offset"] for row in rows}


def catch_up(readers: list[Reader], load: Load) -> None:
    """Wait until everything that was produced before now has been consumed."""
    count, end = load.count + 50 * (not load.is_stopped), time.monotonic() + LIMIT_S
    while not {v for each in readers for v in each.values} >= set(range(count)):
        assert time.monotonic() < end, (count, [len(each.values) for each in readers])
        time.sleep(0.2)
