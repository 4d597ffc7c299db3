"""Tables that grow batch by batch are those that are made at once, whatever the order."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from random import Random

import pytest

from groupkeeper.coordinator.core import events as core
from groupkeeper.pipeline.spark.session import _SMALL, SMALL, is_small
from groupkeeper.pipeline.tables import compute
from groupkeeper.pipeline.tables.bronze import read_bronze
from groupkeeper.pipeline.tables.compute import LIVES_TABLE, TABLES
from groupkeeper.pipeline.tables.versions import read_pointer, write_pointer
from tests.pipeline.conftest import Site, a_site, as_for_large_data
from tests.pipeline.events import DAY_MS, at, commit, joined
from tests.pipeline.histories import a_history
from tests.pipeline.test_hard_days import over_midnights

FIRST, SECOND = date(1970, 1, 1), date(1970, 1, 2)
NOT_COMPARED = "_carried/newest"
"""It has the same rows as ``_carried/minutes``, and is not read by later runs."""


def differences(one: Site, other: Site) -> list[str]:
    tables = [table for table in TABLES if table != NOT_COMPARED]
    return [table for table in tables if one._rows(table) != other._rows(table)]


def bronze(site: Site) -> list[str]:
    """Every row of bronze, whichever batch it came with."""
    return sorted(map(repr, read_bronze(site.spark, site.lake).drop("batch_id").collect()))


def test_batches_in_any_order_make_the_tables_that_all_at_once_make(spark, tmp_path):
    """The first are made as large data are: small data are computed to the same rows."""
    at_once, in_parts = a_site(spark, tmp_path / "at-once"), a_site(spark, tmp_path / "in-parts")
    life = a_history(12, days=3, steps=15).events
    began_ms = life[0]["ts_ms"] // DAY_MS * DAY_MS
    for events in (life, over_midnights(began_ms)):
        at_once.seal(events, segment_events=9)
    with as_for_large_data(spark):
        days = at_once.run().published
    assert len(days) == 3

    random = Random(1)
    files = sorted(file.relative_to(at_once.log_dir) for file in at_once.log_dir.glob("dt=*/*"))
    random.shuffle(files)
    batches = 4
    for number in range(batches):
        for file in files[number::batches]:
            target = in_parts.log_dir / file
            target.parent.mkdir(exist_ok=True)
            shutil.copy(at_once.log_dir / file, target)
        in_parts.run(accept_gaps=days)
    assert bronze(in_parts) == bronze(at_once)
    assert differences(in_parts, at_once) == []
    folders = read_pointer(spark, in_parts.lake).folders("silver/commit_deltas").values()
    files_of = [list(Path(in_parts.lake.root, folder).glob("*.parquet")) for folder in folders]
    assert max(map(len, files_of)) > 1, "a day has grown, and was not made anew"


def commits(first: int, last: int, day: int = 0) -> list[dict]:
    return [
        commit(seq, [("orders", 0, seq, seq - 1)], ts_ms=day * DAY_MS + seq * 1000)
        for seq in range(first, last + 1)
    ]


def test_days_with_commits_alone_are_those_that_are_computed_as_large_data(spark, tmp_path):
    """Of small data, the tables about members are not even computed."""
    small, large = a_site(spark, tmp_path / "small"), a_site(spark, tmp_path / "large")
    for site in (small, large):
        site.seal(commits(1, 3))
        site.seal(commits(4, 6, day=1))
    assert small.run().published == [FIRST, SECOND]
    with as_for_large_data(spark):
        large.run()
    assert differences(small, large) == []
    assert small.silver("member_sessions") == small.gold("rebalances") == []


def members(first: int, last: int) -> list[dict]:
    """Each member joins, and the one before it leaves."""
    return [
        joined(seq, "g", f"m{seq}")
        if seq % 2
        else at(seq, core.MemberLeave(group_id="g", member_id=f"m{seq - 1}"))
        for seq in range(first, last + 1)
    ]


def test_a_day_that_an_earlier_version_computed_gets_its_table_of_lives(spark, tmp_path):
    at_once, grown = a_site(spark, tmp_path / "at-once"), a_site(spark, tmp_path / "grown")
    for first, last in ((1, 3), (4, 6), (7, 8)):
        for site in (at_once, grown):
            site.seal(members(first, last))
        grown.run()
        if first == 1:  # as if 0.2.0.dev11 had written it
            pointer = read_pointer(spark, grown.lake)
            note = pointer.days[FIRST]
            tables = {name: note.tables[name] for name in note.tables if name != LIVES_TABLE}
            days = {FIRST: replace(note, tables=tables)}
            write_pointer(spark, grown.lake, replace(pointer, days=days))
    at_once.run()
    assert differences(grown, at_once) == []
    folder = read_pointer(spark, grown.lake).folders(LIVES_TABLE)[FIRST]
    assert len(list(Path(grown.lake.root, folder).glob("*.parquet"))) == 2


@pytest.mark.parametrize("limit", ["SMALL_EVENTS", "SMALL_BYTES"])
def test_a_run_that_reads_more_than_expected_computes_as_for_large_data(
    spark, tmp_path, monkeypatch, limit
):
    """More new events, or more minutes of a day that grows."""
    at_once, grown = a_site(spark, tmp_path / "at-once"), a_site(spark, tmp_path / "grown")
    events = [commits(1, 3), members(4, 8), commits(9, 12)]
    for each in events:
        at_once.seal(each)
    at_once.run()
    for each in events[:2]:
        grown.seal(each)
    grown.run()
    grown.seal(events[2])
    with settings_kept(spark):
        monkeypatch.setattr(compute, limit, 1)
        grown.run()
        assert not is_small(spark)
    assert is_small(spark)
    assert differences(grown, at_once) == []


@contextmanager
def settings_kept(spark) -> Iterator[None]:
    before = {key: spark.conf.get(key) for key in _SMALL if key.startswith("spark.sql.")}
    try:
        yield
    finally:
        for key, value in {**before, SMALL: "true"}.items():
            spark.conf.set(key, value)


@pytest.fixture
def reads(monkeypatch) -> list[int]:
    """The number of new events that each run computes from."""
    found: list[int] = []
    read = compute.read_events

    def watched(*args, **options):
        events = read(*args, **options)
        if "after" in options:
            found.append(events.count())
        return events

    monkeypatch.setattr(compute, "read_events", watched)
    return found


def test_a_new_segment_costs_its_own_events_only(site, reads):
    site.seal([joined(1, "g", "m"), *commits(2, 20)])
    site.seal([joined(21, "g", "n", ts_ms=DAY_MS), *commits(22, 25, day=1)])
    site.run()
    site.seal(commits(26, 28, day=1))
    assert site.run().published == [SECOND]
    assert reads == [25, 3]
    offsets = {row["offset"] for row in site.silver("commit_deltas") if row["dt"] == SECOND}
    assert offsets == set(range(22, 29))
    (rate,) = [row for row in site.gold("commit_rate_1m") if row["dt"] == SECOND]
    assert (rate["commits"], rate["messages"]) == (7, 7)


def test_a_removal_that_came_before_an_older_commit_stays(site):
    """The commit arrives last, and would bring the offset back."""
    gone = core.OffsetDeleted(
        group_id="g",
        reason="deleted",
        topics=[core.LostTopic("orders", "", [core.LostPartition(0, 1, -1, "", 1)])],
    )
    late = commits(2, 2)
    site.seal(commits(1, 1))
    site.seal([at(3, gone)])
    site.run(accept_gaps=[FIRST])
    assert site._rows("_carried/offsets") == []
    site.seal(late)
    assert site.run().published == [FIRST]
    assert site._rows("_carried/offsets") == []
    assert {row["offset"] for row in site.gold("lag_1m")} == {None}


@pytest.mark.parametrize("why", ["replaced file", "other computation", "renamed store"])
def test_a_day_that_has_not_only_grown_is_made_anew(site, reads, monkeypatch, why):
    site.seal(commits(11, 20) if why == "renamed store" else commits(1, 20))
    if why == "renamed store":
        for event in (late := commits(1, 10)):
            event["log_id"] = "earlier"
    (site.log_dir / "_manifest.jsonl").unlink()
    site.run(accept_gaps=[FIRST])
    if why == "replaced file":
        site.seal([each | {"client_id": "other"} for each in commits(1, 20)])
    elif why == "renamed store":
        site.seal(late)
    else:
        monkeypatch.setattr("groupkeeper.pipeline.tables.publish.COMPUTATION", 99)
    assert site.run().published == [FIRST]
    assert reads[1] == 20
    assert len(site.silver("commit_deltas")) == 20
