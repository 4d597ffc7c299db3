"""A consumer of `make pipeline-demo`: joins, pretends to read, commits; told to, it misbehaves.

    pipeline_demo_consumer.py NAME BOOTSTRAP GROUP TOPIC MESSAGES_PER_SECOND

It reads commands from standard input: ``rewind N`` rewinds every partition by N messages, ``quit``
leaves the group. groupkeeper stores no messages, so there are none to read. Instead, the position
of every owned partition grows as if messages had arrived.
"""

from __future__ import annotations

import select
import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition

COMMIT_EVERY_S = 0.5
SESSION_TIMEOUT_MS = 2_000


class Reader:
    """One member of the group."""

    def __init__(self, name: str, bootstrap: str, group: str, topic: str, rate: str) -> None:
        self.step = max(1, int(float(rate) * COMMIT_EVERY_S))
        self.positions: dict[int, int] = {}
        self.topic = topic
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "group.id": group,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 500,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "logger": None,
            }
        )
        self.consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        found = consumer.committed(partitions, timeout=5)
        self.positions = {p.partition: max(p.offset, 0) for p in found}

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.positions = {}

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # a zombie: it commits for partitions that it lost, before it rejoins as another member
        self._commit(self.positions)
        self.positions = {}

    def live(self) -> None:
        """Work until the command ``quit``."""
        while True:
            if select.select([sys.stdin], [], [], 0)[0]:
                word, _, number = sys.stdin.readline().strip().partition(" ")
                if word != "rewind":
                    break
                self.positions = {p: max(0, at - int(number)) for p, at in self.positions.items()}
            else:
                self.positions = {p: at + self.step for p, at in self.positions.items()}
            self._commit(self.positions)
            self.consumer.poll(COMMIT_EVERY_S)
        self.consumer.close()

    def _commit(self, positions: dict[int, int]) -> None:
        offsets = [TopicPartition(self.topic, p, at) for p, at in positions.items()]
        if not offsets:
            return
        try:
            self.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            print(f"refused: {error.args[0].name()}", flush=True)


if __name__ == "__main__":
    Reader(*sys.argv[1:6]).live()
