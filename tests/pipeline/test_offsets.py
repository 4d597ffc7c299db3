"""Offsets out of the log are the offsets that the coordinator tells: now, and at any moment."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from pyspark.sql import functions as F

from groupkeeper.coordinator.core import events as core
from groupkeeper.pipeline.log.columns import EVENT_SCHEMA
from groupkeeper.pipeline.restore.sealed import coverage_of_log
from groupkeeper.pipeline.tables.bronze import (
    distinct_events,
    read_events,
    read_segments,
    with_store,
)
from groupkeeper.pipeline.tables.offsets import event_order, offsets_as_of, order_columns
from groupkeeper.storage.event_log.manifest import add, read_manifest
from tests.helpers.core.sample_events import rendered
from tests.pipeline.conftest import a_site
from tests.pipeline.events import at, commit
from tests.pipeline.histories import a_history, told

SEEDS = range(20)


@pytest.fixture(scope="module")
def lives(spark, tmp_path_factory):
    """Many lives in one frame, each a log of its own."""
    histories = {seed: a_history(seed) for seed in SEEDS}
    site = a_site(spark, tmp_path_factory.mktemp("lives"))
    for history in histories.values():
        site.seal(history.events)
    events = with_store(read_segments(spark, str(site.log_dir))).cache()
    yield histories, events
    events.unpersist()


def test_now_they_are_what_the_coordinator_tells(lives):
    histories, events = lives
    rows = offsets_as_of(events).collect()
    for seed, history in histories.items():
        of_log = [row for row in rows if row["store"] == history.events[0]["log_id"]]
        assert told(of_log) == history.snapshots[-1].offsets, f"seed {seed}"
    assert len(rows) > len(SEEDS) * 5


def test_at_any_earlier_moment_they_are_what_it_told_then(lives):
    histories, events = lives
    # one job for all: each log is cut at a moment of its own
    for number in range(4):
        moments = {
            history.events[0]["log_id"]: history.snapshots[number] for history in histories.values()
        }
        cuts = F.create_map(*(F.lit(x) for k, s in moments.items() for x in (k, s.ts_ms)))
        before = events.where(F.col("ts_ms") <= cuts[F.col("log_id")])
        rows = offsets_as_of(before).collect()
        for store, snapshot in moments.items():
            assert told(row for row in rows if row["store"] == store) == snapshot.offsets


def test_a_moment_is_a_time_or_a_seq(lives):
    histories, events = lives
    history = histories[3]
    store = history.events[0]["log_id"]
    of_log = events.where(F.col("store") == store)
    for snapshot in history.snapshots[:3]:
        by_time = offsets_as_of(of_log, snapshot.ts_ms).collect()
        by_seq = offsets_as_of(of_log, as_of_seq=snapshot.seq).collect()
        assert told(by_time) == told(by_seq) == snapshot.offsets


def test_what_is_told_of_an_offset_is_what_was_committed(spark):
    event = commit(7, [("orders", 2, 41)])
    (row,) = offsets_as_of(frame(spark, [event])).collect()
    assert (row["offset"], row["metadata"], row["leader_epoch"]) == (41, "note", 3)
    assert (row["commit_time_ms"], row["expire_time_ms"], row["client_id"]) == (5, -1, "app")
    assert (row["seq"], row["ts_ms"]) == (7, 7_000)


def test_a_later_lease_is_later_whatever_its_seq(spark):
    old, new = commit(9, [("orders", 0, 1)]), commit(2, [("orders", 0, 2)])
    new["lease_epoch"] = old["lease_epoch"] + 1
    (row,) = offsets_as_of(frame(spark, [old, new])).collect()
    assert row["offset"] == 2


def test_a_partition_named_twice_in_a_request_has_the_later_value(spark):
    (row,) = offsets_as_of(
        frame(spark, [commit(1, [("orders", 0, 8), ("orders", 0, 5)])])
    ).collect()
    assert row["offset"] == 5


def test_an_event_that_two_segments_hold_counts_once(site):
    events = [commit(seq, [("orders", 0, seq)]) for seq in range(1, 7)]
    site.seal(events[:4])
    site.seal(events[2:])
    site.ingest()
    assert read_events(site.spark, site.lake).count() == 6
    assert distinct_events(read_segments(site.spark, str(site.log_dir))).count() == 6


def test_a_log_that_a_clock_set_back_began_is_the_same_store(site):
    before = [commit(seq, [("orders", 0, seq)], log_id="a") for seq in (1, 2)]
    after = [commit(seq, [("orders", 0, seq)], log_id="b", ts_ms=1) for seq in (3, 4)]
    site.seal(before + after)
    site.ingest()
    (row,) = offsets_as_of(read_events(site.spark, site.lake)).collect()
    assert (row["store"], row["offset"]) == ("a", 4)


def test_logs_of_two_stores_that_were_started_again_are_told_apart(site):
    """Both had gone as far: only what their new logs begin with tells which is whose."""
    lives = []
    for store, offset in (("a", 10), ("b", 20)):
        before = core.LogStarted(previous_log_id=store, previous_seq=2, reason="start")
        log_id = {"a": "z", "b": "y"}[store]
        lives += [commit(seq, [("orders", 0, offset + seq)], log_id=store) for seq in (1, 2)]
        lives += [at(3, before, log_id=log_id)]
        lives += [commit(4, [("orders", 0, offset + 4)], log_id=log_id)]
    site.seal(lives)
    site.ingest()
    found = offsets_as_of(read_events(site.spark, site.lake)).collect()
    assert {row["store"]: row["offset"] for row in found} == {"a": 14, "b": 24}
    stores = coverage_of_log(site.log_dir).stores()
    assert (stores["z"], stores["y"]) == ("a", "b"), "by the files alone, too"


def test_the_manifest_tells_stores_apart_whose_logs_name_nothing(site):
    """By its numbers alone, the last log would go on behind the other store."""
    logs = {"a": (range(1, 3), 10), "x": (range(1, 6), 20), "c": (range(6, 8), 10)}
    for log_id, (seqs, offset) in logs.items():
        site.seal(commit(seq, [("orders", 0, offset + seq)], log_id=log_id) for seq in seqs)
    listed = read_manifest(site.log_dir).segments.values()
    names = {"a": "a", "x": "x", "c": "a"}
    add(site.log_dir, [replace(each, store=names[each.log_id]) for each in listed])
    site.ingest()
    found = offsets_as_of(read_events(site.spark, site.lake)).collect()
    assert {row["store"]: row["offset"] for row in found} == {"a": 17, "x": 25}
    assert coverage_of_log(site.log_dir).stores() == names, "without Spark, too"


def test_every_kind_of_event_reaches_bronze_as_it_is(site):
    site.seal(rendered())
    site.ingest()
    rows = read_events(site.spark, site.lake).orderBy("seq").collect()
    assert len(rows) == len(rendered())
    for row, event in zip(rows, rendered(), strict=True):
        found = without_nulls(row.asDict(recursive=True))
        expected = without_nulls(event) | {"store": "log"}
        assert {name: found.get(name) for name in expected} == expected
        extra = set(found) - set(expected)
        assert extra == {"segment", "dt", "batch_id"}


def without_nulls(value):
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value]
    return value


def frame(spark, events):
    rows = [{name: event.get(name) for name in EVENT_SCHEMA.names} for event in events]
    return with_store(spark.createDataFrame(rows, EVENT_SCHEMA))


EPOCHS = (1, 2, (1 << 22) - 1, 1 << 22, (1 << 22) + 1, (1 << 31) - 1)
"""A store in topics of Kafka reaches the third one after a month, the last one after 30 years."""


def test_one_number_sorts_events_by_epoch_and_seq_whatever_the_epoch(spark):
    pairs = [(epoch, seq) for epoch in EPOCHS for seq in (1, 2, (1 << 31) - 1)]
    pairs += [(1, (1 << 40) - 1), ((1 << 22) - 1, (1 << 40) - 1)]
    events = spark.createDataFrame(pairs, "lease_epoch long, seq long")
    ordered = events.select(event_order().alias("order")).sort("order").select(*order_columns())
    assert [tuple(row) for row in ordered.collect()] == sorted(pairs)


@pytest.mark.parametrize("pair", [(1 << 31, 1), (1 << 22, 1 << 31)])
def test_a_number_that_would_not_sort_is_an_error(spark, pair):
    events = spark.createDataFrame([pair], "lease_epoch long, seq long")
    with pytest.raises(Exception, match="the lease epoch or the seq of an event is too large"):
        events.select(event_order()).collect()
