"""The ends of a real Kafka, sampled and read as lag."""

from __future__ import annotations

import json
import time

from confluent_kafka.admin import AdminClient, NewTopic

from groupkeeper.coordinator.core import events as core
from tests.helpers.clients.kafka_life import produce
from tests.helpers.daemon.daemon import free_port
from tests.pipeline.conftest import Site, a_site
from tests.pipeline.events import at, commit
from tests.pipeline.restore.conftest import RECORDS, command

TOPIC = "grows"
PARTITIONS = 4


def ends_of_coordinator() -> core.EndOffset:
    rows = [core.EndPartition(number, 10 * number) for number in range(PARTITIONS)]
    return core.EndOffset(topics=[core.EndTopic(TOPIC, "", rows)])


def stands(site: Site) -> dict[int, tuple[int, int]]:
    """The last end and lag of each partition."""
    rows = sorted(site.gold("lag_1m"), key=lambda row: row["minute_ms"])
    return {row["partition"]: (row["end_offset"], row["lag"]) for row in rows}


def test_lag_is_the_distance_to_the_ends_that_kafka_has(spark, kafka, tmp_path):
    site = a_site(spark, tmp_path)
    now_ms = int(time.time() * 1000)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result()
    produce(kafka.bootstrap, TOPIC, PARTITIONS, RECORDS)
    # the only group of the topic is at the end, as far as the coordinator knows
    offsets = [(TOPIC, number, 10 * number) for number in range(PARTITIONS)]
    site.seal([commit(1, offsets, ts_ms=now_ms), at(2, ends_of_coordinator(), now_ms)])
    where = ("--log-dir", site.log_dir)
    command("sample-ends", "--data", kafka.bootstrap, *where)
    command("run", *where, "--out", site.lake.root)
    assert stands(site) == {
        number: (RECORDS, RECORDS - 10 * number) for number in range(PARTITIONS)
    }

    produce(kafka.bootstrap, TOPIC, PARTITIONS, 5)
    command("run", *where, "--out", site.lake.root, "--data", kafka.bootstrap)
    assert stands(site)[3] == (RECORDS + 5, RECORDS + 5 - 30)
    command("report", "partitions", "--tables", site.lake.root)
    rows = json.loads((tmp_path / "lake" / "reports" / "partitions.json").read_text())
    assert [row["lag"] for row in rows] == [
        RECORDS + 5 - 10 * number for number in range(PARTITIONS)
    ]
    assert all(0 <= row["behind_ms"] < 3_600_000 for row in rows)

    # a broker that does not answer is reported, and the last samples count
    gone = command(
        "run", *where, "--out", site.lake.root, "--data", f"127.0.0.1:{free_port()}", code=1
    )
    assert "Lag is as of the last sample" in gone.err
    assert stands(site)[3] == (RECORDS + 5, RECORDS + 5 - 30)


def test_a_coordinator_without_records_has_no_true_ends(daemon, tmp_path):
    (tmp_path / "log").mkdir()
    address = daemon.bootstrap
    answer = command("sample-ends", "--data", address, "--log-dir", tmp_path / "log", code=1)
    assert answer.err == (
        f"groupkeeper: {address}: keeps no records; name the brokers that hold them\n"
    )


def test_samples_need_a_folder_of_this_machine(tmp_path):
    far = command("sample-ends", "--data", "localhost:1", "--log-dir", "s3a://bucket/log", code=2)
    assert "a folder of this machine" in far.err
    absent = command("sample-ends", "--data", "localhost:1", "--log-dir", tmp_path / "no", code=1)
    assert "does not exist" in absent.err
