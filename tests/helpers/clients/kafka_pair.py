"""Two real Kafka brokers, with one replica of a partition on each: for a leader that changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.wire.raw_client import RawClient

FIRST, SECOND, NOBODY = 1, 2, -1
CHANGE_LIMIT_S = 60
BOTH = {
    "broker.session.timeout.ms": 3_000,  # after this time a killed broker loses its partitions
    "broker.heartbeat.interval.ms": 500,
    "log.retention.ms": -1,  # the messages have timestamps of 2023
    # a restarted broker becomes leader of its partitions again, while the other one runs
    "leader.imbalance.check.interval.seconds": 1,
    "leader.imbalance.per.broker.percentage": 0,
}


class SecondBroker(RealKafka):
    """Joins the cluster of another broker, which is the controller of both."""

    def __init__(self, directory: Path, first: RealKafka) -> None:
        super().__init__(directory, {})
        controller = first.port + 1
        plain = f"PLAINTEXT://127.0.0.1:{self.port}"
        self._first = first
        self.settings = BOTH | {
            "process.roles": "broker",
            "node.id": SECOND,
            "controller.quorum.voters": f"{FIRST}@127.0.0.1:{controller}",
            "listeners": plain,
            "advertised.listeners": plain,
        }

    def _answers(self) -> bool:
        """Return True if the first broker, which has the groups, knows this broker, and this broker
        listens.
        """
        with RawClient(self._first.port) as client:
            answer = client.call("metadata", 4, topics=[], allow_auto_topic_creation=False)
        if SECOND not in {each["node_id"] for each in answer["brokers"]}:
            return False
        try:
            RawClient(self.port).close()
        except OSError:
            return False
        return True


class KafkaPair:
    """The two brokers, and a topic of one partition that the second one leads at first."""

    def __init__(self, directory: Path, topic: str) -> None:
        self.topic = topic
        self.first = RealKafka(directory / "first", {}, BOTH)
        self.second = SecondBroker(directory / "second", self.first)

    @property
    def bootstrap(self) -> str:
        """Return the addresses of both brokers."""
        return f"{self.first.bootstrap},{self.second.bootstrap}"

    def start(self) -> KafkaPair:
        """Start both and create the topic."""
        self.first.start()
        self.second.start()
        replicas = [{"partition_index": 0, "broker_ids": [SECOND, FIRST]}]
        topic = {"name": self.topic, "num_partitions": -1, "replication_factor": -1}
        with RawClient(self.first.port) as client:
            answer = client.call(
                "create_topics", 5, topics=[topic | {"assignments": replicas}], timeout=30_000
            )
        assert [each["error_code"] for each in answer["topics"]] == [0], answer
        self.wait(SECOND, replicas=2)
        return self

    def leader(self) -> tuple[int, int]:
        """Return the leader of the partition (or NOBODY), and the number of replicas with all
        messages.
        """
        with RawClient(self.first.port) as client:
            topics = [{"name": self.topic}]
            answer = client.call("metadata", 4, topics=topics, allow_auto_topic_creation=False)
        (topic,) = answer["topics"]
        if not topic["partitions"]:  # this broker does not know the topic yet
            return NOBODY, 0
        (partition,) = topic["partitions"]
        return partition["leader_id"], len(partition["isr_nodes"])

    def wait(self, leader: int, replicas: int) -> None:
        """Wait until this broker leads, and this number of replicas have all messages."""
        _until(lambda: self.leader() == (leader, replicas))

    def stop(self) -> None:
        """End both brokers. Fixtures call this."""
        self.second.stop()
        self.first.stop()


def _until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + CHANGE_LIMIT_S
    while not true():
        assert time.monotonic() < until, f"not within {CHANGE_LIMIT_S} s"
        time.sleep(0.1)
