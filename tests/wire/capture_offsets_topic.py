"""Captures tests/wire/offsets_topic/records.jsonl from a real Apache Kafka; run by hand.

    python -m tests.wire.capture_offsets_topic

Groups live on a broker: commits of members, of administrators and of transactions, deleted offsets,
a static member, a deleted group. What the broker wrote into ``__consumer_offsets`` is dumped by our
own reader, and read by Kafka's own classes (``Vectors.java``), which also write a record of every
older version. Each line is a key, a value, and both as Kafka's classes print them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from groupkeeper.pipeline.kafka_history.dump import dump, read_partition
from groupkeeper.pipeline.restore.cluster import ClusterEndpoint
from groupkeeper.pipeline.restore.plan import Committed, Partition
from tests.helpers.clients.ecosystem import JDK, kafka_jars, need
from tests.helpers.clients.kafka_life import a_static_member, a_transaction, members_come_and_go
from tests.helpers.clients.real_kafka import RealKafka

PLACE = Path(__file__).with_name("offsets_topic")
READ_BY_KAFKA = (1, 2)
"""Record types that Vectors.java reads: offsets and classic groups."""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        server = RealKafka(Path(scratch), {"orders": 3})
        try:
            server.start()
            live(server.bootstrap)
            records = dumped(server.bootstrap, Path(scratch) / "dump")
        finally:
            server.stop()
    lines = read_by_kafka(records)
    made = len(lines) - len(records)
    with (PLACE / "records.jsonl").open("w") as out:
        for number, (key, value, key_json, value_json) in enumerate(lines):
            row = {
                "from": "Kafka's classes" if number < made else "a broker",
                "key": key,
                "value": None if value == "-" else value,
                "key_as_json": json.loads(key_json),
                "value_as_json": json.loads(value_json),
            }
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    sys.stdout.write(f"{len(lines)} records, {len(records)} of them from a broker\n")


def live(bootstrap: str) -> None:
    """Groups live their lives."""
    orders = [Partition("orders", number) for number in range(3)]
    with ClusterEndpoint(bootstrap).open("administrator") as cluster:
        cluster.commit("reset", {orders[0]: Committed(5, 0, "ü"), orders[1]: Committed(7)})
        cluster.commit("reset", {orders[0]: Committed(-3, -1, "x\0y")})
        cluster.delete("reset", [orders[1]])
    members_come_and_go(bootstrap, "members", "orders")
    a_static_member(bootstrap, "static", "orders")
    a_transaction(bootstrap, "transactions", "orders", commit=True)
    a_transaction(bootstrap, "transactions", "orders", commit=False)


def dumped(bootstrap: str, directory: Path) -> list[tuple[str, str]]:
    """Every record of ours, key and value in hexadecimal."""
    done = dump(ClusterEndpoint(bootstrap), directory, 1)
    return [
        (record.key.hex(), "-" if record.value is None else record.value.hex())
        for partition in done.partitions
        for record in read_partition(directory / partition.file)
        if int.from_bytes(record.key[:2], "big") in READ_BY_KAFKA
    ]


def read_by_kafka(records: list[tuple[str, str]]) -> list[Any]:
    """Let Kafka's classes read them."""
    done = subprocess.run(
        [need("java", JDK), "-cp", f"{kafka_jars()}/*", str(PLACE / "Vectors.java")],
        input="".join(f"{key} {value}\n" for key, value in records),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


if __name__ == "__main__":
    main()
