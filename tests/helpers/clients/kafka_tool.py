"""Apache Kafka's own command line in one JVM, with members of a group for it to look at."""

from __future__ import annotations

import csv
import os

from tests.helpers.clients.ecosystem import Host
from tests.helpers.core.group_view import commit, committed
from tests.helpers.daemon.servers import Server
from tests.helpers.wire.raw_client import RawClient

GROUPS_OF_CONSUMERS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

Rows = list[dict[str, str]]


def rows(out: str) -> Rows:
    """Return the table that the tool printed; no value of ours has a space in it."""
    lines = [line.split() for line in out.splitlines() if line.strip()]
    return [dict(zip(lines[0], line, strict=False)) for line in lines[1:]]


def plan_of(exported: str) -> list[tuple[str, ...]]:
    """Return the lines of a plan; the tool quotes a long name, and keeps no order."""
    return sorted(tuple(line) for line in csv.reader(exported.split()))


class Tool:
    """The command line, with members of a group for it to look at."""

    def __init__(self, host: Host, group: str) -> None:
        self._host = host
        self.group = group
        self.topic = f"{group}-topic"
        self._members: list[str] = []

    def __call__(self, *arguments: str, main: str = GROUPS_OF_CONSUMERS) -> str:
        """Return what it printed to stdout."""
        answer = self._host.do(tool=list(arguments), main=main)
        assert answer["status"] == 0, answer
        out: str = answer["out"]
        return out

    def of_group(self, *arguments: str) -> str:
        """Return the same, for the test's own group."""
        return self(*arguments, "--group", self.group)

    def new_offsets(self, *arguments: str) -> dict[int, int]:
        """Return what a reset says that it does: partition to offset."""
        out = self.of_group("--reset-offsets", *arguments)
        assert "Error" not in out, out
        return {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in rows(out)}

    def join(self, **settings: str) -> None:
        """A KafkaConsumer in the test's group, assigned when this returns."""
        name = f"{self.group}-{len(self._members)}"
        self._members.append(name)
        self._host.do(join=name, group=self.group, topic=self.topic, settings=settings)

    def leave(self) -> None:
        """Close them all."""
        while self._members:
            self._host.do(leave=self._members.pop())


def topic_with_ends(raw: RawClient, server: Server, topic: str, ends: dict[int, int]) -> None:
    wanted = [{"name": topic, "num_partitions": len(ends), "replication_factor": 1}]
    reply = raw.call("create_topics", 5, topics=wanted, timeout=30_000)
    assert reply["topics"][0]["error_code"] == 0, reply
    if os.environ.get("CONFORMANCE_KAFKA"):
        _fill(server, topic, ends)
    else:
        # in static mode a partition ends at the largest offset that any group committed
        assert set(commit(raw, f"{topic}-ends", topic, ends).values()) == {0}


def _fill(server: Server, topic: str, ends: dict[int, int]) -> None:
    """A real broker wants records."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": f"127.0.0.1:{server.port}"})
    for partition, end in ends.items():
        for _ in range(end):
            producer.produce(topic, b"", partition=partition)
    assert producer.flush(60) == 0


def mine(raw: RawClient, tool: Tool) -> dict[int, int]:
    """Return what the group has committed in the test's topic."""
    return {
        p: offset
        for (topic, p), offset in committed(raw, tool.group).items()
        if topic == tool.topic
    }
