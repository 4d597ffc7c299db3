"""An older copy of a store is put in its place: its log goes on before the end of another one."""

from __future__ import annotations

from datetime import date

import pytest

from groupkeeper.coordinator.core import events as core
from groupkeeper.pipeline.reports.jobs import write_reports
from groupkeeper.pipeline.reports.report import Scope
from groupkeeper.pipeline.restore.restore import events_of_log, group_as_of, require_whole
from groupkeeper.pipeline.restore.sealed import coverage_of_log
from groupkeeper.pipeline.run import summary
from groupkeeper.pipeline.tables.bronze import read_bronze, read_events
from groupkeeper.pipeline.tables.offsets import offsets_as_of
from tests.pipeline.conftest import Site, a_site
from tests.pipeline.events import DAY_MS, at, commit

FIRST, SECOND, THIRD = date(1970, 1, 1), date(1970, 1, 2), date(1970, 1, 3)
LINE = (
    "the store was put back to event 3 of log old, and log new continues from there: events 4 to 7 "
    "of log old no longer count"
)


def joined(seq: int, member: str, ts_ms: int, log_id: str = "old") -> dict:
    made = commit(seq, [], member=member, ts_ms=ts_ms, log_id=log_id)
    return {**made, "kind": "member_join", "topics": None}


BEFORE = [
    joined(1, "m", 1_000),
    commit(2, [("orders", 0, 5)], ts_ms=2_000, log_id="old"),
    commit(3, [("orders", 0, 8, 5)], ts_ms=DAY_MS + 1_000, log_id="old"),
]
ABANDONED = [
    joined(4, "ghost", DAY_MS + 2_000),
    commit(5, [("orders", 0, 90, 8)], member="ghost", ts_ms=DAY_MS + 3_000, log_id="old"),
    commit(6, [("bills", 0, 7)], member="ghost", ts_ms=2 * DAY_MS + 1_000, log_id="old"),
    commit(7, [("orders", 0, 95, 90)], group="lost", ts_ms=2 * DAY_MS + 2_000, log_id="old"),
]
STARTED = core.LogStarted(previous_log_id="old", previous_seq=3, reason="start")
AFTER = [
    at(4, STARTED, 2 * DAY_MS + 60_000, log_id="new"),
    commit(5, [("orders", 0, 9, 8)], ts_ms=2 * DAY_MS + 61_000, log_id="new"),
]


@pytest.fixture(scope="module")
def put_back(spark, tmp_path_factory) -> Site:
    """Return one whose tables held what the older copy does not know of."""
    site = a_site(spark, tmp_path_factory.mktemp("put_back"))
    site.seal([*BEFORE, *ABANDONED])
    done = site.run()
    assert done.published == [FIRST, SECOND, THIRD]
    assert done.put_backs == []
    for segment in site.log_dir.rglob("events-old-*"):  # the copy's segments come with it
        segment.unlink()
    (site.log_dir / "_manifest.jsonl").unlink()
    site.seal([*BEFORE, *AFTER])
    return site


@pytest.fixture(scope="module")
def told_lines(put_back) -> list[str]:
    done = put_back.run()
    assert done.published == [SECOND, THIRD], "the day before it stays as it was"
    assert (done.held_back, done.accepted) == ({}, [])
    return summary(done)


def test_the_days_are_published_anew_without_a_gap_and_one_line_says_why(put_back, told_lines):
    assert [line for line in told_lines if "no longer count" in line] == [LINE]
    assert put_back.run().published == [], "and then nothing has changed"


@pytest.mark.usefixtures("told_lines")
def test_what_was_overtaken_stays_in_bronze_and_counts_for_nothing_that_stands(put_back):
    site = put_back
    kept = read_bronze(site.spark, site.lake).where("log_id = 'old'").select("seq").distinct()
    assert kept.count() == 7
    standing = offsets_as_of(read_events(site.spark, site.lake)).collect()
    assert [(r["store"], r["group"], r["offset"]) for r in standing] == [("old", "g", 9)]
    lag = site.gold("lag_1m")
    assert {(r["group"], r["topic"], r["offset"]) for r in lag if r["dt"] == THIRD} == {
        ("g", "orders", 8),
        ("g", "orders", 9),
    }
    assert "ghost" not in {row["member_id"] for row in site.silver("member_sessions")}
    carried = site.valid("_carried/offsets").where(f"dt = '{THIRD}'")
    assert {(r["topic"], r["offset"]) for r in carried.collect()} == {("orders", 9)}


@pytest.mark.usefixtures("told_lines")
def test_tables_that_go_on_are_those_that_are_made_at_once(put_back, tmp_path):
    at_once = a_site(put_back.spark, tmp_path)
    at_once.seal([*BEFORE, *ABANDONED])
    at_once.seal(AFTER)
    at_once.run()
    for table in ("lag_1m", "commit_rate_1m", "rebalances", "group_daily", "audit"):
        assert at_once.gold(table) == put_back.gold(table), table


@pytest.mark.usefixtures("told_lines")
def test_reports_say_it_in_one_line(put_back, tmp_path):
    said: list[str] = []
    scope = Scope(put_back.spark, put_back.lake)
    write_reports(scope, ["audit"], tmp_path, said.append)
    line = f"T{LINE[1:]}."
    assert said.count(line) == 1
    assert line in (tmp_path / "audit.html").read_text()


def test_a_restore_out_of_the_folder_follows_the_log_that_goes_on(spark, tmp_path):
    site = a_site(spark, tmp_path)
    site.seal([*BEFORE, *ABANDONED])
    site.seal(AFTER)
    coverage = coverage_of_log(site.log_dir)
    events = events_of_log(spark, site.log_dir)
    require_whole(events, coverage, 3 * DAY_MS, site.log_dir)
    found = group_as_of(events, "g", 3 * DAY_MS)
    assert [each.offset for each in found.offsets.values()] == [9]
