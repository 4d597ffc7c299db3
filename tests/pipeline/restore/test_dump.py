"""A dump of a real Kafka's offsets: transactions count as for Kafka, and what fails says why."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from groupkeeper.pipeline.kafka_history.dump import DumpError, dump, open_dump
from groupkeeper.pipeline.kafka_history.history import decode_file
from groupkeeper.pipeline.restore.cluster import ClusterEndpoint
from groupkeeper.pipeline.restore.plan import Committed, Partition
from tests.helpers.clients.kafka_life import OpenTransaction, a_consumer
from tests.pipeline.restore.conftest import SASL_PORT, a_moment, command, open_cluster

ORDERS = [Partition("orders", number) for number in range(4)]


def test_a_transaction_counts_from_its_commit_and_hides_nothing(kafka, group, tmp_path):
    snapshots = []
    consumer = a_consumer(kafka.bootstrap, group)
    transaction = partial(OpenTransaction, kafka.bootstrap, consumer)

    def look():
        at, offsets = a_moment(), cluster.offsets([group])[group]
        snapshots.append((at, {each: value.offset for each, value in offsets.items()}))

    with open_cluster(kafka.bootstrap) as cluster:
        cluster.commit(group, {each: Committed(10) for each in ORDERS})
        look()
        ends = transaction({ORDERS[0]: 20, ORDERS[1]: 21, ORDERS[2]: 22})
        look()
        cluster.commit(group, {ORDERS[1]: Committed(5)})
        cluster.delete(group, [ORDERS[2]])
        look()
        fails = transaction({ORDERS[3]: 33})
        ends.commit()
        look()
        fails.abort()
        hangs = transaction({ORDERS[0]: 90, ORDERS[3]: 93})
        cluster.commit(group, {ORDERS[3]: Committed(44)})
        look()
    try:
        done = command("dump-offsets", "--server", kafka.bootstrap, "--out", tmp_path / "dump")
    finally:
        hangs.abort()
        consumer.close()
    assert f"1 transaction has not ended: 1 offset of 1 group ({group})" in done.err
    header = json.loads((tmp_path / "dump" / "dump.json").read_text())
    # nothing was compacted here; what markers take of the numbers is no hole
    assert all(each["whole_until"] == each["end_offset"] for each in header["partitions"])
    (left_out,) = [each for partition in header["partitions"] for each in partition["open"]]
    assert (left_out["offsets"], left_out["groups"]) == (1, [group])

    for at, theirs in snapshots:
        assert offsets_at(tmp_path / "dump", group, at) == theirs


def offsets_at(directory: Path, group: str, at_ms: int) -> dict[Partition, int]:
    """What the events of a dump say; test_import asks Spark."""
    found: dict[Partition, int] = {}
    made = open_dump(directory)
    for each in made.partitions:
        for event in decode_file(directory, made, each.partition, each.file):
            if event["group"] == group and event["ts_ms"] <= at_ms and "topics" in event:
                (topic,) = event["topics"]
                (partition,) = topic["partitions"]
                name = Partition(topic["topic"], partition["partition"])
                found.pop(name, None)
                if event["kind"] == "commit":
                    found[name] = partition["offset"]
    return found


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ("security.protocol=SASL_PLAINTEXT", "sasl"),
        ("security.protocol=SSL\nssl.ca.location=/nope", "ssl.ca.location=/nope: "),
    ],
)
def test_settings_that_do_not_go_are_told_in_a_line(properties, says, tmp_path):
    (tmp_path / "client.properties").write_text(properties)
    stopped = command(
        *("dump-offsets", "--server", f"127.0.0.1:{SASL_PORT}", "--out", tmp_path / "dump"),
        *("--client-config", tmp_path / "client.properties"),
        code=1,
    )
    assert says in stopped.err
    assert one_line(stopped.err)
    settings = dict(line.split("=") for line in properties.splitlines())
    with pytest.raises(DumpError, match=says):
        dump(ClusterEndpoint("127.0.0.1:1", settings), tmp_path / "dump", 1)


def test_a_file_in_the_place_of_the_directory_is_told_in_a_line(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    for out in (file, file / "below"):
        stopped = command("dump-offsets", "--server", "127.0.0.1:1", "--out", out, code=1)
        assert f"{out} cannot be a directory" in stopped.err
        assert one_line(stopped.err)
    assert file.read_text() == "mine"


def test_a_server_that_never_answers_is_given_up(tmp_path):
    with mute_server() as address:
        stopped = command(
            *("dump-offsets", "--server", address, "--out", tmp_path / "dump", "--timeout", 1),
            code=1,
        )
    assert f"{address}: cannot read __consumer_offsets" in stopped.err


@contextmanager
def mute_server() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def one_line(err: str) -> bool:
    """Whether it is one, but for the bar of the progress."""
    return len([line for line in err.splitlines() if line.startswith("groupkeeper: ")]) == 1
