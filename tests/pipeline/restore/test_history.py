"""What a group had at a moment, out of sealed segments, however many logs tell of it."""

from __future__ import annotations

import pytest

from coordinator.core.records import CommittedPartition, CommittedTopic, OffsetsCommitted
from pipeline.plan import Committed, Partition
from pipeline.restore import RestoreError, events_of_log, group_as_of
from storage.event_codec import Stamp, event_dict
from tests.pipeline.restore.conftest import command, open_cluster


def a_commit(log_id, seq, ts_ms, offsets, group="g"):
    partitions = [CommittedPartition(p, offset, -1, -1, "") for p, offset in offsets.items()]
    topics = [CommittedTopic("orders", "", partitions)]
    commit = OffsetsCommitted(group, -1, "", None, "c", "/h", "User:A", ts_ms, -1, topics)
    return event_dict(Stamp(log_id, ts_ms, ts_ms), seq, 1, 1, commit)


def told(found):
    return {partition.partition: value.offset for partition, value in found.offsets.items()}


def test_the_logs_of_one_store_are_one_history_whatever_the_clock_did(site):
    """A clock that is set back begins a new log, whose seq goes on."""
    site.seal([a_commit("first", 1, 100_000, {0: 5, 1: 5}), a_commit("first", 2, 100_001, {0: 6})])
    site.seal([a_commit("second", 3, 50_000, {1: 7})])
    found = group_as_of(events_of_log(site.spark, site.log_dir), "g", 200_000)
    assert told(found) == {0: 6, 1: 7}


def test_of_two_stores_the_one_that_the_group_changed_in_last_counts(site):
    site.seal([a_commit("imported", 1, 1000, {0: 5, 1: 5})])
    site.seal([a_commit("here", 1, 2000, {0: 8})])
    events = events_of_log(site.spark, site.log_dir).cache()
    assert told(group_as_of(events, "g", 1500)) == {0: 5, 1: 5}
    assert told(group_as_of(events, "g", 2500)) == {0: 8}
    events.unpersist()


def test_a_folder_without_segments_is_told(site):
    with pytest.raises(RestoreError, match=r"no sealed segment.*log\.dir"):
        events_of_log(site.spark, site.log_dir)


def test_a_history_that_ends_before_the_moment_is_used_and_said(site, daemon, group, tmp_path):
    site.seal([a_commit("sealed", 1, 1_700_000_000_000, {0: 5}, group)])
    with open_cluster(daemon.bootstrap) as cluster:
        cluster.commit(group, {Partition("orders", 0): Committed(9)})
        where = ["--log-dir", site.log_dir, "--server", daemon.bootstrap]
        options = ["--out", tmp_path / "plan.json", "--apply"]
        said = command("restore", "--group", group, "--as-of", "1m", *where, *options)
        assert "the history ends at 2023-11-14T22:13:20Z" in said.err
        assert cluster.offsets([group])[group] == {Partition("orders", 0): Committed(5)}
