"""Days are published whole, once, and again when a late segment changes them."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

from coordinator.core import events as core
from pipeline import bronze, ingest, publish
from pipeline.bronze import read_events
from storage.snapshots import OffsetsAsOf, SnapshotLog
from tests.pipeline.conftest import a_site
from tests.pipeline.events import DAY_MS, at, commit
from tests.pipeline.histories import a_history
from tests.pipeline.restore.conftest import command

FIRST, SECOND = date(1970, 1, 1), date(1970, 1, 2)


class Killed(Exception):
    """The job died here."""


def ten_commits(day: int = 0, first_seq: int = 1) -> list[dict]:
    seqs = range(first_seq, first_seq + 10)
    return [
        commit(seq, [("orders", 0, seq, seq - 1 or -1)], ts_ms=day * DAY_MS + seq * 1000)
        for seq in seqs
    ]


def seqs(site) -> list[int]:
    return sorted(row["seq"] for row in read_events(site.spark, site.lake).collect())


def rates(site) -> list[tuple[date, int]]:
    """The commits that each published day has."""
    days: dict[date, int] = {}
    for row in site.gold("commit_rate_1m"):
        days[row["dt"]] = days.get(row["dt"], 0) + row["commits"]
    return sorted(days.items())


def test_a_job_that_dies_after_its_write_loses_nothing_and_doubles_nothing(site, monkeypatch):
    site.seal(ten_commits(), segment_events=5)
    write = bronze.write_batch

    def write_and_die(*args):
        write(*args)
        raise Killed

    monkeypatch.setattr(ingest, "write_batch", write_and_die)
    with pytest.raises(Exception, match="Killed"):
        site.ingest()
    monkeypatch.setattr(ingest, "write_batch", write)
    site.ingest()
    assert seqs(site) == list(range(1, 11))
    assert bronze.read_bronze(site.spark, site.lake).count() == 10


def test_a_publication_that_dies_before_its_note_is_done_again(site, monkeypatch):
    site.seal(ten_commits())
    note = publish._note

    def die(*args):
        raise Killed

    monkeypatch.setattr(publish, "_note", die)
    with pytest.raises(Killed):
        site.run()
    monkeypatch.setattr(publish, "_note", note)
    assert site.run().published == [FIRST]
    assert rates(site) == [(FIRST, 10)]
    assert site.run().published == []


def test_a_day_with_a_gap_is_held_back_and_says_what_is_missing(site):
    first, second = ten_commits(), ten_commits(day=1, first_seq=11)
    site.seal(first[:4])
    late = site.seal(first[4:6])
    site.seal(first[6:])
    site.seal(second)
    hidden = late[0].rename(late[0].with_name("elsewhere"))
    done = site.run()
    assert done.published == [SECOND]
    assert [str(gap) for gap in done.held_back[FIRST]] == ["events 5 to 6 of log log are missing"]
    assert rates(site) == [(SECOND, 10)]

    # it is held back for good, and nothing is computed again for it
    assert site.run().published == []

    # the late segment changes its own day, and the days after it; it is a month older than the
    # others, and Spark would pass over such files
    hidden.rename(late[0])
    month_s = 30 * 24 * 60 * 60
    os.utime(late[0], (late[0].stat().st_mtime - month_s,) * 2)
    done = site.run()
    assert (done.published, done.held_back) == ([FIRST, SECOND], {})
    assert rates(site) == [(FIRST, 10), (SECOND, 10)]


def test_a_damaged_segment_stops_the_run_until_it_is_mended_or_moved_away(site):
    site.seal(ten_commits(), segment_events=4)
    first, second, *_ = sorted(site.log_dir.glob("dt=*/events-*"))
    whole = {path: path.read_bytes() for path in (first, second)}
    first.write_bytes(whole[first][:-9])
    second.write_bytes(whole[second][:-9])
    arguments = ["run", "--log-dir", site.log_dir, "--out", site.lake.root]
    stopped = command(*arguments, code=1).err
    assert f"groupkeeper: {site.log_dir}/dt=1970-01-01/events-" in stopped
    assert "cannot be read: it is cut off, damaged or gone" in stopped
    first.write_bytes(whole[first])
    second.unlink()
    assert "is not published: events" in command(*arguments, code=1).err
    elsewhere = site.log_dir / "late" / second.name
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(whole[second])
    command(*arguments)
    assert (rates(site), seqs(site)) == ([(FIRST, 10)], list(range(1, 11)))


def test_a_folder_that_is_not_there_is_told_in_one_line(site, tmp_path):
    absent = tmp_path / "nowhere"
    said = command("run", "--log-dir", absent, "--out", site.lake.root, code=1).err
    assert said.endswith(f"groupkeeper: {absent} does not exist\n")


def test_a_day_of_which_the_beginning_of_the_log_is_missing_is_held_back(site):
    site.seal(ten_commits()[4:])
    done = site.run()
    assert [str(gap) for gap in done.held_back[FIRST]] == ["events 1 to 4 of log log are missing"]
    assert rates(site) == []


def test_a_published_day_whose_end_turns_out_to_be_missing_is_withdrawn(site):
    first, second = ten_commits(), ten_commits(day=1, first_seq=11)
    site.seal(first[:7])
    assert site.run().published == [FIRST]
    site.seal(second)
    done = site.run()
    assert sorted(done.held_back) == [FIRST, SECOND]
    assert rates(site) == []
    site.seal(first[7:])
    assert site.run().published == [FIRST, SECOND]
    assert rates(site) == [(FIRST, 10), (SECOND, 10)]


def test_the_snapshot_that_retention_leaves_each_day_makes_nothing_be_computed_again(site):
    first, second = ten_commits(), ten_commits(day=1, first_seq=11)
    site.seal(first)
    site.seal(second)
    assert site.run().published == [FIRST, SECOND]
    stood = OffsetsAsOf()
    for event in first:
        stood.apply(event)
    site.seal(stood.events(SnapshotLog("log", 10), first[-1]["ts_ms"], 10))
    assert site.run().published == []
    assert rates(site) == [(FIRST, 10), (SECOND, 10)]


def test_a_gap_that_is_accepted_is_published_and_stays_so(site):
    first = ten_commits()
    site.seal(first[:4])
    site.seal(first[6:])
    assert site.run().published == []
    assert site.run(accept_gaps=[FIRST]).published == [FIRST]
    assert site.run().held_back == {}
    assert rates(site) == [(FIRST, 8)]


def test_a_late_segment_changes_the_days_it_touches_and_no_earlier_one(site):
    days = [ten_commits(day, first_seq=1 + 10 * day) for day in range(3)]
    site.seal(days[0])
    site.seal([*days[1][:5]])
    site.run()
    before = {path: path.stat().st_mtime_ns for path in parquet_of(site, FIRST)}
    site.seal([*days[1][5:], *days[2]])
    assert site.run().published == [SECOND, date(1970, 1, 3)]
    assert {path: path.stat().st_mtime_ns for path in parquet_of(site, FIRST)} == before


def parquet_of(site, day: date) -> list:
    return sorted(Path(site.lake.root).glob(f"gold/*/dt={day}/*.parquet"))


def test_days_computed_one_by_one_are_those_computed_at_once(spark, tmp_path):
    life = a_history(11, days=3, steps=15)
    at_once, by_day = a_site(spark, tmp_path / "at-once"), a_site(spark, tmp_path / "by-day")
    at_once.seal(life.events)
    at_once.run()
    for day in sorted({event["ts_ms"] // DAY_MS for event in life.events}):
        by_day.seal(event for event in life.events if event["ts_ms"] // DAY_MS == day)
        by_day.run()
    for table in publish.GOLD_TABLES:
        assert by_day.gold(table) == at_once.gold(table), table
        assert at_once.gold(table) or table == "lag_1m"
    for table in ("member_sessions", "rebalances"):
        assert by_day.silver(table) == at_once.silver(table), table


def test_a_continuous_run_publishes_after_a_batch_and_goes_on(site):
    site.seal(ten_commits())
    done = []

    def publish_now():
        done.append(publish.publish(site.spark, site.lake).published)

    query = ingest.start_ingest(
        site.spark, str(site.log_dir), site.lake, continuous=True, after_batch=publish_now
    )
    try:
        while not done:
            query.awaitTermination(1)  # raises what the query died of
        assert query.isActive
    finally:
        query.stop()
    assert done == [[FIRST]]
    assert rates(site) == [(FIRST, 10)]


def test_a_static_member_is_known_after_midnight_by_its_name(spark, tmp_path):
    """It came back before midnight: its old id, which the assignment has, is forgotten by then."""

    def joined(seq, member, ts_ms, replaces=None):
        who = {"group": "g", "member_id": member, "client_id": "ann", "instance_id": "static"}
        return at(seq, core.MemberJoin(**who, replaces=replaces), ts_ms)

    def assigned(seq, member, ts_ms):
        held = {member: {"orders": [0, 1]}}
        event = core.Assignment(group="g", protocol_type="consumer", partitions=held)
        return at(seq, event, ts_ms)

    start = core.RebalanceStart(group="g", reason="member_join", members=1)
    before = [
        joined(1, "old", 1000),
        at(2, start, 1000),
        assigned(3, "old", 1000),
        joined(4, "newer", 2000, "old"),
        joined(5, "new", 3000, "newer"),
    ]
    after = [at(6, start, DAY_MS), assigned(7, "new", DAY_MS)]
    site = a_site(spark, tmp_path)
    site.seal(before)
    site.run()
    site.seal(after)
    site.run()
    (row,) = [row for row in site.gold("rebalances") if row["dt"] == SECOND]
    assert (row["assigned"], row["moved"]) == (2, 0)
