"""Days are published whole, once, and again when a late segment changes them."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest

from groupkeeper.coordinator.core import events as core
from groupkeeper.pipeline.reports.jobs import write_reports
from groupkeeper.pipeline.reports.report import NoTables, Scope
from groupkeeper.pipeline.run import main, summary
from groupkeeper.pipeline.tables import bronze, ingest, publish
from groupkeeper.pipeline.tables.bronze import read_events
from groupkeeper.pipeline.tables.verify import verify
from groupkeeper.storage.event_log.sealing.snapshots import OffsetsAsOf
from groupkeeper.storage.event_log.segments import read_segment
from groupkeeper.storage.event_log.snapshot_logs import SnapshotLog
from tests.pipeline.conftest import SMALL_DATA, a_site
from tests.pipeline.events import DAY_MS, at, commit
from tests.pipeline.restore.conftest import command

FIRST, SECOND, THIRD, FOURTH = (date(1970, 1, day) for day in range(1, 5))


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
    write = ingest.write_events

    def write_and_die(*args):
        write(*args)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(ingest, "write_events", write_and_die)
        with pytest.raises(Killed):
            site.ingest()
    site.ingest()
    assert seqs(site) == list(range(1, 11))
    assert bronze.read_bronze(site.spark, site.lake).count() == 10


def run_and_die_before_the_switch(site, monkeypatch, **options) -> None:
    def die(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(publish, "switch", die)
        with pytest.raises(Killed):
            site.run(**options)


def test_a_publication_that_dies_before_its_switch_is_done_again(site, monkeypatch):
    site.seal(ten_commits())
    run_and_die_before_the_switch(site, monkeypatch)
    with pytest.raises(NoTables):
        write_reports(Scope(site.spark, site.lake), [], Path(site.lake.root), print)
    assert site.run().published == [FIRST]
    assert Scope(site.spark, site.lake).warnings() == []
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
    assert done.published == []
    assert [str(gap) for gap in done.held_back[FIRST]] == [
        "events 5 to 6 of log log are missing "
        "(dt=1970-01-01/events-log-5-6.jsonl.gz is in the manifest and not there)"
    ]
    assert rates(site) == []

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


LATE = "dt=1970-01-02/events-log-16-20.jsonl.gz"


@pytest.fixture(scope="module")
def held_back(spark, tmp_path_factory):
    """Four days, of which the second half of the second is hidden, as they are published."""
    site = a_site(spark, tmp_path_factory.mktemp("held-back"))
    for day in range(4):
        site.seal(ten_commits(day, first_seq=1 + 10 * day), segment_events=5)
    (site.log_dir / "_manifest.jsonl").unlink()
    (site.log_dir / LATE).rename(site.log_dir / "elsewhere")
    return site, site.run()


@pytest.fixture(scope="module")
def accepted(held_back, tmp_path_factory):
    """The same, published without it."""
    site = held_back[0].copied_to(tmp_path_factory.mktemp("accepted"))
    return site, site.run(accept_gaps=[SECOND])


def test_days_after_a_gap_are_held_back_for_they_go_on_from_what_is_missing(held_back, tmp_path):
    site, done = held_back
    site = site.copied_to(tmp_path)
    assert done.published == [FIRST]
    lacks = (
        "is not published: events 16 to 20 of log log are missing. Put a good copy of the segment "
        "in its place (`groupkeeper log verify --dir DIR` checks all), or publish the day without "
        "these events: --accept-gap"
    )
    assert summary(done) == [
        "published 1970-01-01, from 10 events",
        f"1970-01-02 {lacks} 1970-01-02",
        f"1970-01-03 {lacks} 1970-01-03",
        "1970-01-04: not published either, because offsets, members and ends of these days depend "
        "on the missing events",
    ]
    site.seal(ten_commits(4, first_seq=41))  # a new day goes on from them as well
    assert (site.run().published, rates(site)) == ([], [(FIRST, 10)])
    (site.log_dir / "elsewhere").rename(site.log_dir / LATE)
    assert site.run().published == [SECOND, THIRD, FOURTH, date(1970, 1, 5)]
    assert [commits for _, commits in rates(site)] == [10] * 5


def test_a_late_segment_changes_what_a_later_day_tells_though_no_event_of_that_changed(site):
    """An end was sampled a day after the last commits: its lag is told from what stood then."""
    site.seal(ten_commits())
    (last,) = site.seal(ten_commits(1, first_seq=11))
    sample = core.EndOffset(topics=[core.EndTopic("orders", "", [core.EndPartition(0, 50)])])
    site.seal([at(21, sample, ts_ms=2 * DAY_MS)])
    hidden = last.rename(last.with_name("elsewhere"))
    (site.log_dir / "_manifest.jsonl").unlink()
    assert sorted(site.run().held_back) == [FIRST, THIRD]
    assert site.gold("lag_1m") == []
    site.run(accept_gaps=[FIRST])
    assert [row["lag"] for row in site.gold("lag_1m") if row["dt"] == THIRD] == [40]
    hidden.rename(last)
    assert site.run().published == [FIRST, SECOND, THIRD]
    assert [row["lag"] for row in site.gold("lag_1m") if row["dt"] == THIRD] == [30]


def test_a_gap_that_is_accepted_is_told_on_every_later_day(accepted):
    site, done = accepted
    assert (done.published, done.held_back) == ([SECOND, THIRD, FOURTH], {})
    missing = "events 16 to 20 of log log are missing"
    assert summary(done) == [
        "published 3 days, 1970-01-02 to 1970-01-04, from 25 events",
        f"1970-01-02 to 1970-01-03 and later days: published although {missing}",
    ]
    of_later = "the state at its beginning is uncertain: of 1970-01-02 to 1970-01-03 "
    assert Scope(site.spark, site.lake).warnings() == [
        f"1970-01-02 is published although {missing}.",
        f"1970-01-03 is published although {missing}.",
        f"1970-01-04 is published although {of_later}{missing}.",
    ]


def test_a_gap_stays_accepted_when_its_day_goes_on_and_when_a_part_of_it_arrives(
    accepted, tmp_path
):
    site = accepted[0].copied_to(tmp_path)
    site.seal(ten_commits(3, first_seq=41))
    assert site.run().published == [FOURTH]
    content = list(read_segment(site.log_dir / "elsewhere"))
    site.seal(content[:2])
    done = site.run()
    assert (done.published, done.held_back) == ([SECOND, THIRD, FOURTH], {})
    assert [str(gap) for gap in done.accepted] == ["events 18 to 20 of log log are missing"]
    site.seal(ten_commits(3, first_seq=52))  # 51 is missing, and nobody accepted that
    assert sorted(site.run().held_back) == [FOURTH]


def test_an_acceptance_outlives_a_run_that_died(held_back, tmp_path, monkeypatch):
    site = held_back[0].copied_to(tmp_path)
    run_and_die_before_the_switch(site, monkeypatch, accept_gaps=[SECOND])
    assert rates(site) == [(FIRST, 10)]
    assert site.run().published == [SECOND, THIRD, FOURTH]


def test_a_folder_that_is_not_there_is_told_in_one_line(spark, tmp_path, monkeypatch):
    absent = tmp_path / "nowhere"
    out = tmp_path / "tables"
    said = command("run", "--log-dir", absent, "--out", out, code=1).err
    assert said == f"groupkeeper: {absent} does not exist\n"
    assert not out.exists()
    said = command("report", "--tables", absent, code=4).err
    assert said.startswith(f"groupkeeper: {absent} does not exist: is that the --out of")
    # elsewhere a path may mean what this machine does not know
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    said = command("run", "--log-dir", absent, "--out", out, code=1).err
    assert said.endswith(f"groupkeeper: {absent} does not exist\n")
    assert "starting Spark" in said


def test_a_place_that_no_tables_can_be_in_is_told_in_one_line(tmp_path):
    place = tmp_path / "settings.toml"
    place.touch()
    said = command("run", "--log-dir", tmp_path, "--out", place, code=1).err
    assert said == f"groupkeeper: {place}: tables cannot be written there: File exists\n"


def test_a_command_in_the_process_of_the_tests_leaves_their_session_as_it_is(site, tmp_path):
    """It would set it up for large data, and every later test would pay for that."""
    command("run", "--log-dir", tmp_path / "nowhere", "--out", site.lake.root, code=1)
    of_sql = {key: value for key, value in SMALL_DATA.items() if key.startswith("spark.sql.")}
    assert {key: site.spark.conf.get(key) for key in of_sql} == of_sql


def test_a_day_of_which_the_beginning_of_the_log_is_missing_is_held_back(site):
    site.seal(ten_commits()[4:])
    done = site.run()
    assert [str(gap) for gap in done.held_back[FIRST]] == ["events 1 to 4 of log log are missing"]
    assert rates(site) == []


def test_a_published_day_whose_end_turns_out_to_be_missing_stays_as_it_was(site):
    first, second = ten_commits(), ten_commits(day=1, first_seq=11)
    site.seal(first[:7])
    assert site.run().published == [FIRST]
    site.seal(second)
    done = site.run()
    assert (sorted(done.held_back), done.stale) == ([FIRST, SECOND], {FIRST})
    assert rates(site) == [(FIRST, 7)]
    missing = "events 8 to 10 of log log are missing"
    of_first, of_second = summary(done)
    assert of_first.startswith(f"1970-01-01 stays as it was published: {missing}. Put a good copy")
    assert of_second.startswith(f"1970-01-02 is not published: {missing}. Put a good copy")
    assert Scope(site.spark, site.lake).warnings() == [
        f"1970-01-01 is shown as it was published earlier, and is not up to date: {missing}.",
        f"1970-01-02 is not in this report: {missing}.",
    ]
    assert site.run().published == []
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
    for again in (None, (FIRST, SECOND)):
        site.run(again=again)
        assert [each for each in verify(site.spark, site.lake) if each.problem] == []


def test_a_gap_that_is_accepted_is_published_and_stays_so(site):
    first = ten_commits()
    site.seal(first[:4])
    site.seal(first[6:])
    assert site.run().published == []
    assert site.run(accept_gaps=[FIRST]).published == [FIRST]
    assert site.run().held_back == {}
    assert rates(site) == [(FIRST, 8)]


def test_days_that_another_version_computed_are_computed_again(site, monkeypatch):
    for day in range(2):
        site.seal(ten_commits(day, first_seq=1 + 10 * day))
    site.run()
    monkeypatch.setattr(publish, "COMPUTATION", publish.COMPUTATION + 1)
    said: list[str] = []
    assert site.run(progress=said.append).published == [FIRST, SECOND]
    assert said[0] == "2 days were computed by another version of groupkeeper: computing again"
    assert site.run().published == []


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
    return sorted(Path(site.lake.root).glob(f"gold/*/dt={day}/v=*/*.parquet"))


class Enough(Exception):
    """What was to be seen was seen."""


def test_a_continuous_run_takes_and_refuses_what_comes_and_publishes(site, monkeypatch):
    monkeypatch.setattr(ingest, "CONTINUOUS_INTERVAL_S", 0)
    days = [ten_commits(day, first_seq=1 + 10 * day) for day in range(2)]
    site.seal(days[0])
    seen, before = [], []

    def after_each(lacking):
        seen.append((publish.publish(site.spark, site.lake).published, list(map(str, lacking))))
        match len(seen):
            case 1:
                (path,) = site.seal(days[1])
                site.whole = path.read_bytes()
                path.write_bytes(site.whole[:-9])
            case 2:
                (path,) = site.log_dir.glob("dt=*/events-log-11-20.*")
                path.write_bytes(site.whole)
            case 3:
                raise Enough

    with pytest.raises(Enough):
        ingest.ingest_for_ever(
            site.spark, str(site.log_dir), site.lake, after_each, lambda: before.append(len(seen))
        )
    assert before == [1, 2]
    size = len(site.whole)
    second = "dt=1970-01-02/events-log-11-20.jsonl.gz"
    assert seen == [
        ([FIRST], []),
        ([], [f"{second} has {size - 9} bytes, the manifest says {size}"]),
        ([SECOND], []),
    ]
    assert rates(site) == [(FIRST, 10), (SECOND, 10)]


def test_a_static_member_is_known_after_midnight_by_its_name(spark, tmp_path):
    """It came back before midnight: its old id, which the assignment has, is forgotten by then."""

    def joined(seq, member, ts_ms, replaces=None):
        who = {"group_id": "g", "member_id": member, "client_id": "ann"}
        who["group_instance_id"] = "static"
        return at(seq, core.MemberJoin(**who, replaces=replaces), ts_ms)

    def assigned(seq, member, ts_ms):
        held = {member: {"orders": [0, 1]}}
        event = core.Assignment(group_id="g", protocol_type="consumer", partitions=held)
        return at(seq, event, ts_ms)

    start = core.RebalanceStart(group_id="g", reason="member_join", members=1)
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


@pytest.mark.parametrize("given", ["log[1]", "{a,b}", "log?", "log*", "log\\\\1"])
def test_spark_submit_refuses_a_path_that_spark_takes_for_a_pattern(given, capsys, tmp_path):
    for arguments in (["--log-dir", given, "--out", "o"], ["--log-dir", "l", "--out", given]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        assert "as a pattern of names" in capsys.readouterr().err


def test_days_that_are_asked_for_are_computed_again_with_the_same_result(site):
    site.seal([commit(1, [("orders", 0, 5)]), commit(2, [("orders", 0, 9, 5)], ts_ms=DAY_MS)])
    site.run()
    before = site.gold("lag_1m")
    assert site.run().published == []
    assert site.run(again=(SECOND, SECOND)).published == [SECOND]
    assert site.run(again=(FIRST, FIRST)).published == [FIRST, SECOND], "later days depend on it"
    assert site.gold("lag_1m") == before
