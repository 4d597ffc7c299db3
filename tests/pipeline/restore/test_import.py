"""What was imported of a real Kafka tells, for any moment, what Kafka told then."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode

from pyspark.sql import functions as F

from groupkeeper.pipeline.restore.plan import Committed, Partition
from groupkeeper.pipeline.tables.bronze import read_coverage, read_events
from groupkeeper.pipeline.tables.lake import Lake
from groupkeeper.pipeline.tables.offsets import offsets_as_of
from groupkeeper.protocol.offsets_topic import ENTITIES, encode
from tests.helpers.clients.kafka_life import (
    a_new_consumer,
    a_static_member,
    a_transaction,
    commit,
    join,
    members_come_and_go,
)
from tests.pipeline.restore.conftest import a_moment, command, open_cluster

ORDERS = [Partition("orders", number) for number in range(4)]
GROUPS = ["history-reset", "history-members", "history-static", "history-new", "history-tx"]


def test_as_of_equals_what_kafka_answered(kafka, spark, tmp_path):
    snapshots = []

    def look():
        with open_cluster(kafka.bootstrap) as cluster:
            snapshots.append((a_moment(), cluster.offsets(GROUPS)))

    with open_cluster(kafka.bootstrap) as cluster:
        cluster.commit("history-reset", {ORDERS[0]: Committed(5, 0, "ü"), ORDERS[1]: Committed(7)})
        look()
        cluster.commit("history-reset", {ORDERS[0]: Committed(-3, -1, "x\0y")})
        cluster.delete("history-reset", [ORDERS[1]])
    look()
    members_come_and_go(kafka.bootstrap, "history-members", "orders")
    a_static_member(kafka.bootstrap, "history-static", "orders")
    look()
    newer = a_new_consumer(kafka.bootstrap, "history-new")
    join(newer, "orders")
    commit(newer, {("orders", 2): 33})
    newer.close()
    look()
    a_transaction(kafka.bootstrap, "history-tx", "orders", commit=True)
    look()
    a_transaction(kafka.bootstrap, "history-tx", "orders", commit=False)
    with open_cluster(kafka.bootstrap) as cluster:
        cluster.commit("history-members", {ORDERS[0]: Committed(0)})
    look()

    command("dump-offsets", "--server", kafka.bootstrap, "--out", tmp_path / "dump")
    said = command("import", tmp_path / "dump", "--tables", tmp_path / "lake")
    assert "events out of" in said.out
    lake = Lake(str(tmp_path / "lake"))
    assert read_coverage(spark, lake).gaps() == []
    events = read_events(spark, lake).where(F.col("group").isin(GROUPS)).cache()
    for at, theirs in snapshots:
        ours = {group: {} for group in GROUPS}
        for row in offsets_as_of(events, at).collect():
            value = Committed(row["offset"], row["leader_epoch"], row["metadata"])
            ours[row["group"]][Partition(row["topic"], row["partition"])] = value
        assert ours == theirs

    # who did it: a member while there was one, an administrator afterwards
    commits = events.where("kind = 'commit' and group = 'history-members'").collect()
    by_member = [row for row in commits if row["generation"] > 0]
    assert {row["client_id"] for row in by_member} == {"grün"}
    assert all(row["member_id"].startswith("grün-") for row in by_member)
    assert [row["generation"] for row in commits].count(-1) == 1
    (newer_commit,) = events.where("kind = 'commit' and group = 'history-new'").collect()
    assert (newer_commit["group_type"], newer_commit["member_id"]) == ("consumer", "(not told)")
    in_transaction = events.where("api = 'TxnOffsetCommit'").select("group").distinct().collect()
    assert [row["group"] for row in in_transaction] == ["history-tx"]
    kinds = {row["kind"] for row in events.select("kind").distinct().collect()}
    assert kinds == {"commit", "offset_deleted", "group_created", "assignment"}

    # counted and let go before the second import: it replaces the files under what is cached
    imported = events.count()
    events.unpersist()
    again = command("import", tmp_path / "dump", "--tables", tmp_path / "lake")
    assert again.out == said.out
    assert read_events(spark, lake).where(F.col("group").isin(GROUPS)).count() == imported


def a_dump(folder, lines):
    """A dump of one partition of the topic: offset, time, key, value."""
    folder.mkdir()
    file = folder / "partition-00000.jsonl.gz"
    with gzip.open(file, "wb") as out:
        for offset, ts_ms, key, value in lines:
            line = {"offset": offset, "ts_ms": ts_ms, "key": b64encode(key).decode()}
            line["value"] = None if value is None else b64encode(value).decode()
            out.write(json.dumps(line).encode() + b"\n")
    edges = {"start_offset": 0, "end_offset": lines[-1][0] + 1}
    partition = {"partition": 0, "file": file.name, "records": len(lines), **edges}
    header = {"format": "groupkeeper-offsets-dump", "version": 1, "id": "import-1"}
    header |= {"server": "here", "created_ms": 1, "partitions": [partition]}
    (folder / "dump.json").write_text(json.dumps(header))


def test_a_record_that_cannot_be_read_stops_the_import_and_is_named(spark, tmp_path, monkeypatch):
    key = b"\0\1\0\1g\0\1t\0\0\0\0"
    a_dump(tmp_path / "dump", [(4, 1, key, b"\0\x09xyz"), (5, 1, key, None)])
    where = [tmp_path / "dump", "--tables", tmp_path / "lake"]
    stopped = command("import", *where, code=1)
    assert "the record at offset 4 cannot be read" in stopped.err
    assert "OffsetCommitValue of version 9" in stopped.err
    # a dump may be named as it is seen from here, wherever tasks work
    monkeypatch.chdir(tmp_path)
    where[0] = "dump"
    assert "1 event out of 2 records" in command("import", *where, "--skip-unreadable").out


def test_what_compaction_took_is_left_alone_by_a_restore_and_told(daemon, group, spark, tmp_path):
    """Of orders-1 the broker kept what was committed after the moment, and not what was before; of
    orders-2 a deletion after it, too.
    """

    def kept(record_offset, ts_ms, partition, offset=None):
        key = ENTITIES["OffsetCommitKey", 1](group=group, topic="orders", partition=partition)
        if offset is None:
            return record_offset, ts_ms, encode(key), None
        value = ENTITIES["OffsetCommitValue", 4]
        stands = value(offset=offset, metadata="", commit_timestamp=ts_ms)
        return record_offset, ts_ms, encode(key), encode(stands)

    left = [kept(10, 1_000, 0, 5), kept(12, 3_000, 1, 7), kept(14, 3_000, 2), kept(15, 3_100, 2, 8)]
    a_dump(tmp_path / "dump", left)
    command("import", tmp_path / "dump", "--tables", tmp_path / "lake")
    asked = ["restore", "--group", group, "--tables", tmp_path / "lake"]
    asked += ["--server", daemon.bootstrap, "--out", tmp_path / "plan.json"]
    with open_cluster(daemon.bootstrap) as cluster:
        cluster.commit(group, dict.fromkeys(ORDERS[:3], Committed(9)))
        said = command(*asked, "--as-of", "1970-01-01T00:00:02Z", "--apply")
        assert "the offsets of orders-1, orders-2 at that moment are unknown" in said.err
        assert cluster.offsets([group])[group] == {
            ORDERS[0]: Committed(5),
            ORDERS[1]: Committed(9),
            ORDERS[2]: Committed(9),
        }
    too_early = command(*asked, "--as-of", "1970-01-01T00:00:00Z", code=4)
    assert "are unknown: Kafka's compaction removed those before 1970-01-01T00:00:01" in (
        too_early.err
    )


def test_a_dump_that_was_not_finished_is_no_dump(spark, tmp_path):
    stopped = command("import", tmp_path, "--tables", tmp_path / "lake", code=1)
    assert "the dump was interrupted" in stopped.err
