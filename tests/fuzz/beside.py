"""Members beside the load: raw ones and real clients, who must not notice it."""

from __future__ import annotations

import threading
import time
from typing import Any

import confluent_kafka

from tests.fuzz.judge import Figures
from tests.helpers.wire.raw_client import RawClient, import_schemas

TOPIC = "quiet"
PARTITIONS = 4
SESSION_MS = 10_000
BEAT_S = 1.0
REAL_GROUP = "quiet-real"
REAL_CONSUMERS = 2
RAW_GROUPS = 3
RETRIABLE = (confluent_kafka.KafkaError._TIMED_OUT, confluent_kafka.KafkaError._TRANSPORT)


class Beside:
    """A thread that acts as a member until it is told to end."""

    def __init__(self, name: str, port: int, figures: Figures) -> None:
        """Nothing runs before ``start``."""
        self.name = name
        self.port = port
        self.figures = figures
        self.settled = threading.Event()
        """Set once the member has its assignment; what happens from then on is a disturbance."""
        self.ending = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self.ending.set()
        self._thread.join(60)

    def complain(self, what: str) -> None:
        self.figures.disturbed.append(f"{self.name}: {what}")

    def live(self) -> None:
        """What the member does."""
        raise NotImplementedError

    def _guarded(self) -> None:
        try:
            self.live()
        except Exception as error:  # noqa: BLE001 - whatever it is, the member was disturbed
            self.complain(repr(error))
        self.settled.set()


class RawMember(Beside):
    """The only member of its group: a heartbeat and a commit a second, each to be answered NONE."""

    def live(self) -> None:
        # An idle connection is closed after 10 s, and on a busy machine these imports take longer.
        import_schemas(("join_group", 9), ("sync_group", 3), ("heartbeat", 4), ("offset_commit", 8))
        with RawClient(self.port, client_id=self.name, timeout_s=SESSION_MS / 1000) as client:
            member: dict[str, Any] = {"group_id": self.name, "member_id": ""}
            for _ in range(2):  # the first answer contains the id
                joined = client.call(
                    "join_group",
                    9,
                    **member,
                    session_timeout=SESSION_MS,
                    rebalance_timeout=SESSION_MS,
                    protocol_type="consumer",
                    protocols=[{"name": "range", "metadata": b""}],
                )
                member["member_id"] = joined["member_id"]
            member["generation_id"] = joined["generation_id"]
            mine = [{"member_id": member["member_id"], "assignment": b"all"}]
            self._check("sync", client.call("sync_group", 3, **member, assignments=mine))
            self.settled.set()
            offset = 0
            while not self.ending.wait(BEAT_S):
                self._check("heartbeat", client.call("heartbeat", 4, **member))
                self.figures.quiet_beats += 1
                offset += 1
                self._commit(client, member, offset)

    def _commit(self, client: RawClient, member: dict[str, Any], offset: int) -> None:
        partitions = [{"partition_index": 0, "committed_offset": offset}]
        reply = client.call(
            "offset_commit",
            8,
            group_id=self.name,
            member_id=member["member_id"],
            generation_id_or_member_epoch=member["generation_id"],
            topics=[{"name": TOPIC, "partitions": partitions}],
        )
        self._check("commit", reply["topics"][0]["partitions"][0])
        self.figures.quiet_commits += 1

    def _check(self, what: str, reply: dict[str, Any]) -> None:
        if reply["error_code"]:
            self.complain(f"{what} was answered {reply['error_code']}")


class RealMember(Beside):
    """One of the consumers of librdkafka that share a group and commit every second."""

    def live(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{self.port}",
                "group.id": REAL_GROUP,
                "client.id": self.name,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": int(BEAT_S * 1000),
                "enable.auto.commit": False,
                # librdkafka would log that idle connections were closed, which a setting asks for
                "log_level": 0,
            }
        )
        consumer.subscribe([TOPIC], on_revoke=self._revoked, on_lost=self._lost)
        try:
            while len(consumer.assignment()) != PARTITIONS // REAL_CONSUMERS:
                consumer.poll(0.1)
                if self.ending.is_set():
                    self.complain("never got its share")
                    return
            self.settled.set()
            due = 0.0
            offset = 0
            while not self.ending.is_set():
                consumer.poll(0.2)
                if time.monotonic() >= due:
                    due = time.monotonic() + BEAT_S
                    offset += 1
                    self._commit(consumer, offset)
        finally:
            self.ending.set()
            consumer.close()

    def _commit(self, consumer: confluent_kafka.Consumer, offset: int) -> None:
        assigned = consumer.assignment()
        marks = [
            confluent_kafka.TopicPartition(each.topic, each.partition, offset) for each in assigned
        ]
        try:
            consumer.commit(offsets=marks, asynchronous=False)
        except confluent_kafka.KafkaException as error:
            self.complain(f"commit: {error}")
            return
        self.figures.quiet_commits += 1

    def _revoked(self, _: object, partitions: list[Any]) -> None:
        if self.settled.is_set() and not self.ending.is_set():
            self.complain(f"{len(partitions)} partitions were revoked")

    def _lost(self, _: object, partitions: list[Any]) -> None:
        if not self.ending.is_set():
            self.complain(f"{len(partitions)} partitions were lost")


def start_beside(port: int, figures: Figures) -> list[Beside]:
    """Start everyone; returns when the shares are dealt."""
    raw = [RawMember(f"quiet-raw-{number}", port, figures) for number in range(RAW_GROUPS)]
    real = [RealMember(f"quiet-real-{number}", port, figures) for number in range(REAL_CONSUMERS)]
    members: list[Beside] = [*raw, *real]
    for member in members:
        member.start()
    for member in members:
        if not member.settled.wait(60):
            member.complain("did not settle before the load")
    return members
