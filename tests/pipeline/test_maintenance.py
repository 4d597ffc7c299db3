"""Small files are merged and old days removed, and what tables say stays the same."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from groupkeeper.pipeline.restore.restore import events_of_lake, group_as_of
from groupkeeper.pipeline.restore.standing import RestoreError
from groupkeeper.pipeline.run import summary
from groupkeeper.pipeline.tables import compaction, maintenance
from groupkeeper.pipeline.tables.bronze import read_events
from groupkeeper.pipeline.tables.compute import TABLES
from groupkeeper.pipeline.tables.maintenance import maintain
from groupkeeper.pipeline.tables.verify import verify
from groupkeeper.pipeline.tables.versions import read_pointer
from tests.pipeline.conftest import Site, a_site
from tests.pipeline.events import DAY_MS, commit
from tests.pipeline.test_growth import commits

FIRST, SECOND, THIRD = (date(1970, 1, day) for day in (1, 2, 3))
DAY_S = DAY_MS / 1000


def tables(site: Site) -> dict[str, list[dict]]:
    return {table: site._rows(table) for table in TABLES}


def files(site: Site, table: str, day: date) -> int:
    folder = read_pointer(site.spark, site.lake).folders(table)[day]
    return len(list(Path(site.lake.root, folder).glob("*.parquet")))


def wrong(site: Site) -> list[str]:
    return [
        f"{each.table} {each.problem}" for each in verify(site.spark, site.lake) if each.problem
    ]


def batches(site: Site, table: str = "events") -> list[str]:
    found = Path(site.lake.root, "bronze", table).glob("**/batch_id=*")
    return sorted(folder.name.partition("=")[2] for folder in found)


@pytest.fixture(scope="module")
def made_in_parts(spark, tmp_path_factory) -> Site:
    """Two days, of which the first came in several batches."""
    site = a_site(spark, tmp_path_factory.mktemp("in-parts"))
    for first in (1, 6, 11):
        site.seal(commits(first, first + 4))
        site.run()
    site.seal(commits(16, 20, day=1))
    site.run()
    return site


@pytest.fixture
def in_parts(made_in_parts, tmp_path) -> Site:
    return made_in_parts.copied_to(tmp_path)


def test_the_small_files_of_a_day_become_one(in_parts):
    site, before = in_parts, tables(in_parts)
    assert (batches(site), files(site, "silver/commit_deltas", FIRST)) == ([*"0123"], 3)
    now = 2.5 * DAY_S
    assert maintain(site.spark, site.lake, past_day_parts=4, clock=lambda: now).merged == []
    done = maintain(site.spark, site.lake, clock=lambda: now)
    assert done.merged == [FIRST]
    assert files(site, "silver/commit_deltas", FIRST) == 1
    assert tables(site) == before
    assert read_events(site.spark, site.lake).count() == 20
    assert batches(site) == [*"01234"], "readers may still have them open"

    done = maintain(site.spark, site.lake, clock=lambda: now + DAY_S)
    assert done.merged == []
    assert batches(site) == [*"34"]
    assert batches(site, "segments") == [*"34"]
    assert batches(site, "verdicts") == ["4"]
    assert (tables(site), wrong(site)) == (before, [])
    assert site.ingest() == []
    assert site.run().published == []

    site.seal(commits(21, 22, day=1))
    site.seal([commit(23, [("orders", 0, 1)], log_id="late", ts_ms=5)])
    assert site.run(accept_gaps=[FIRST]).published == [FIRST, SECOND]
    assert len(site.silver("commit_deltas")) == 23
    assert wrong(site) == []


def test_a_day_that_may_grow_is_merged_when_it_has_many_parts(in_parts, monkeypatch):
    today = 0.9 * DAY_S
    assert maintain(in_parts.spark, in_parts.lake, clock=lambda: today).merged == []
    monkeypatch.setattr(compaction, "OPEN_DAY_PARTS", 3)
    assert maintain(in_parts.spark, in_parts.lake, clock=lambda: today).merged == [FIRST]


class Killed(Exception):
    """The job died here."""


@pytest.mark.parametrize("place", ["write_small", "add_days", "switch"])
def test_a_merge_that_dies_loses_and_doubles_nothing(in_parts, monkeypatch, place):
    site, before = in_parts, tables(in_parts)
    module = maintenance if place == "switch" else compaction

    def die(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, place, die)
        with pytest.raises(Killed):
            maintain(site.spark, site.lake, clock=lambda: 2.5 * DAY_S)
    site.ingest()
    assert tables(site) == before
    assert read_events(site.spark, site.lake).count() == 20
    site.seal(commits(21, 22, day=1))
    assert site.run().published == [SECOND]
    maintain(site.spark, site.lake, clock=lambda: 4 * DAY_S, keep_versions_hours=0)
    maintain(site.spark, site.lake, clock=lambda: 6 * DAY_S, keep_versions_hours=0)
    assert len(site.silver("commit_deltas")) == 22
    assert len(batches(site)) == 2
    assert wrong(site) == []


def test_old_days_go_and_later_days_stay_as_they_were(site):
    for number in range(3):
        site.seal(commits(1 + 10 * number, 10 + 10 * number, day=number))
    other = commit(31, [("orders", 1, 7)], ts_ms=2 * DAY_MS + 900_000)
    site.run()
    before = site.gold("lag_1m")
    done = maintain(
        site.spark,
        site.lake,
        retention_days={"bronze": 1, "silver": 2, "gold": 3},
        keep_versions_hours=0,
        clock=lambda: 3 * DAY_S + 1,
    )
    assert done.since == {"bronze": THIRD, "silver": SECOND, "gold": FIRST}
    assert site.gold("lag_1m") == before
    assert {row["dt"] for row in site.silver("commit_deltas")} == {SECOND, THIRD}
    maintain(site.spark, site.lake, keep_versions_hours=0, clock=lambda: 3 * DAY_S + 2)
    kept = [folder.parent.name for folder in Path(site.lake.events).glob("dt=*/batch_id=*")]
    assert kept == ["dt=1970-01-03"]
    assert wrong(site) == []

    # later days go on from what was removed
    site.seal([other])
    assert site.run().published == [THIRD]
    assert [row for row in site.gold("lag_1m") if row["partition"] == 0] == before
    offsets = {(row["partition"], row["offset"]) for row in site._rows("_carried/offsets")}
    assert offsets == {(0, 20), (0, 30), (1, 7)}
    assert wrong(site) == []


def test_offsets_at_a_moment_begin_with_those_of_the_removed_days(site):
    site.seal([commit(1, [("orders", 0, 5), ("orders", 1, 6)], ts_ms=1000)])
    site.seal([commit(2, [("orders", 0, 8)], ts_ms=DAY_MS + 1000)])
    site.run()
    clock = datetime(1970, 1, 3, tzinfo=UTC).timestamp
    options = {"retention_days": {"bronze": 1}, "keep_versions_hours": 0}
    for _ in range(2):
        maintain(site.spark, site.lake, clock=clock, **options)

    def offsets(at_ms: int) -> dict[int, int]:
        found = group_as_of(events_of_lake(site.spark, site.lake.root), "g", at_ms).offsets
        return {partition.partition: each.offset for partition, each in found.items()}

    assert offsets(2 * DAY_MS) == {0: 8, 1: 6}
    assert offsets(DAY_MS + 500) == {0: 5, 1: 6}
    with pytest.raises(RestoreError):
        offsets(DAY_MS - 500)


def test_a_segment_of_a_removed_day_is_named(site):
    site.seal(commits(1, 5))
    late = site.seal(commits(6, 7))
    site.seal(commits(8, 9, day=1))
    hidden = late[0].rename(site.log_dir / "hidden")
    site.run(accept_gaps=[FIRST])
    maintain(site.spark, site.lake, retention_days={"bronze": 1}, clock=lambda: 2 * DAY_S + 1)
    hidden.rename(late[0])
    assert site.run().late == [FIRST]
    assert summary(site.run())[-1].startswith("1970-01-01: a segment came after retention")
