"""Apache Kafka's own command line in one JVM, and members of a group for its reports."""

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
    """Return a table that the tool printed. Values in tests have no spaces."""
    lines = [line.split() for line in out.splitlines() if line.strip()]
    return [dict(zip(lines[0], line, strict=False)) for line in lines[1:]]


def plan_of(exported: str) -> list[tuple[str, ...]]:
    """Return the lines of an exported plan, sorted. The tool quotes long names, and has
    no order.
    """
    return sorted(tuple(line) for line in csv.reader(exported.split()))


class Tool:
    """The command line, and the members of the test's group."""

    def __init__(self, host: Host, group: str) -> None:
        self._host = host
        self.group = group
        self.topic = f"{group}-topic"
        self._members: list[str] = []

    def __call__(self, *arguments: str, main: str = GROUPS_OF_CONSUMERS) -> str:
        """Run a command, and return its standard output."""
        answer = self._host.do(tool=list(arguments), main=main)
        assert answer["status"] == 0, answer
        out: str = answer["out"]
        return out

    def of_group(self, *arguments: str) -> str:
        """Run a command for the test's group, and return its standard output."""
        return self(*arguments, "--group", self.group)

    def new_offsets(self, *arguments: str) -> dict[int, int]:
        """Run a reset, and return partition -> the new offset that it prints."""
        out = self.of_group("--reset-offsets", *arguments)
        assert "Error" not in out, out
        return {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in rows(out)}

    def join(self, **settings: str) -> None:
        """Add a KafkaConsumer to the test's group, and wait until it has an assignment."""
        name = f"{self.group}-{len(self._members)}"
        self._members.append(name)
        self._host.do(join=name, group=self.group, topic=self.topic, settings=settings)

    def leave(self) -> None:
        """Close all members."""
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
    """Write records until each partition has its end. A real broker needs this."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": f"127.0.0.1:{server.port}"})
    for partition, end in ends.items():
        for _ in range(end):
            producer.produce(topic, b"", partition=partition)
    assert producer.flush(60) == 0


def mine(raw: RawClient, tool: Tool) -> dict[int, int]:
    """Return partition -> committed offset of the test's group in the test's topic."""
    return {
        p: offset
        for (topic, p), offset in committed(raw, tool.group).items()
        if topic == tool.topic
    }
