"""What readers see while days are computed again, jobs die, and old versions go."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from groupkeeper.pipeline import views
from groupkeeper.pipeline.log.columns import NOTE_SCHEMA
from groupkeeper.pipeline.reports.report import Scope
from groupkeeper.pipeline.tables import lake, publish, versions
from groupkeeper.pipeline.tables.lake import add_days
from groupkeeper.pipeline.tables.pointer import (
    HELD_BACK,
    POINTER,
    UnknownFormat,
    as_json,
    from_json,
)
from groupkeeper.pipeline.tables.versions import read_pointer, write_pointer
from groupkeeper.storage.segment_lines import EventDict
from tests.pipeline.conftest import Site, a_site, as_for_large_data
from tests.pipeline.events import DAY_MS, commit, joined
from tests.pipeline.restore.conftest import command
from tests.pipeline.second_reader import AlwaysLooking, Day, SecondReader, by_pointer, by_views
from tests.pipeline.test_publish import Killed, rates, ten_commits

FIRST, SECOND, THIRD = (date(1970, 1, day) for day in range(1, 4))
HOUR_S = 3600


def root_of(site: Site) -> Path:
    return Path(site.lake.root)


def folders_on_disk(site: Site) -> set[str]:
    """Every folder of a version that exists."""
    root = root_of(site)
    return {str(path.relative_to(root)) for path in root.glob("*/*/dt=*/v=*")}


def named(site: Site) -> set[str]:
    """Every folder that the pointer names as valid or replaced."""
    pointer = read_pointer(site.spark, site.lake)
    valid = {folder for note in pointer.days.values() for folder in note.tables.values()}
    return valid | {folder for each in pointer.replaced for folder in each.folders}


def dies_at(step: int):
    """A job that dies when it has written so many tables."""
    left = [step]

    def progress(_: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    return progress


def dies_on(call: int, function):
    """Do what a function does, and die in this call of it."""
    left = [call]

    def do(*args):
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return function(*args)

    return do


def a_join(day: int, seq: int) -> EventDict:
    """With a member, a day has rows in all tables: a job may die at each of them."""
    return joined(seq, "g", "m", ts_ms=day * DAY_MS + seq * 1000)


@pytest.fixture(scope="module")
def two_days(spark, tmp_path_factory):
    """Two days, published at hour 0."""
    site = a_site(spark, tmp_path_factory.mktemp("two-days"))
    for day in range(2):
        site.seal(ten_commits(day, first_seq=1 + 10 * day))
    site.run(clock=lambda: 0.0)
    return site


# --- readers --------------------------------------------------------------------------------------


def test_a_second_reader_never_sees_a_day_go_back_or_disappear(site, monkeypatch):
    """Days that grow, a late segment, a gap, and deaths at the steps of the job."""
    parts = [[*ten_commits(day, 1 + 11 * day), a_join(day, 11 + 11 * day)] for day in range(3)]
    root = root_of(site)
    with AlwaysLooking(root) as reader:
        stepwise = SecondReader(root)

        def run(**options) -> None:
            site.run(progress=lambda _: stepwise.look(), **options)
            stepwise.look()

        site.seal(parts[0][:5])
        run()
        (late,) = site.seal(parts[0][5:])
        late.rename(late.with_name("elsewhere"))
        (root.parent / "log" / "_manifest.jsonl").unlink()
        site.seal(parts[1])
        run()  # the first day is stale, the second is held back
        assert stepwise.seen["by_pointer"] == {"1970-01-01": Day(5, 5, 5)}
        late.with_name("elsewhere").rename(late)
        for step in (1, 4, 9, 15):
            with pytest.raises(Killed):
                site.run(progress=dies_at(step))
            stepwise.look()
        for place, call in (("switch", 1), ("write_view_files", 2)):  # before and after it counts
            with monkeypatch.context() as patch:
                patch.setattr(publish, place, dies_on(call, getattr(publish, place)))
                with pytest.raises(Killed):
                    run()
            stepwise.look()
        run()
        site.seal(parts[2])
        run()
    assert reader.wrong == stepwise.wrong == []
    assert reader.looks > stepwise.looks / 2
    everything = {f"1970-01-0{day}": Day(10, 10, 10) for day in range(1, 4)}
    assert by_pointer(root) == by_views(root) == everything


def test_a_second_reader_sees_a_day_that_goes_back(two_days, tmp_path):
    """Else the test above would show nothing."""
    site = two_days.copied_to(tmp_path)
    reader = SecondReader(root_of(site))
    reader.look()
    pointer = read_pointer(site.spark, site.lake)
    tables = {**pointer.days[FIRST].tables}
    del tables["gold/group_daily"]
    days = {FIRST: replace(pointer.days[FIRST], tables=tables)}
    write_pointer(site.spark, site.lake, replace(pointer, days=days))
    reader.look()
    assert reader.wrong == [
        "by_pointer: tables of 1970-01-01 are of two versions: Day(silver=10, rates=10, groups=0)",
        "by_pointer: 1970-01-01 went back from Day(silver=10, rates=10, groups=10) to "
        "Day(silver=10, rates=10, groups=0)",
        "by_pointer: 1970-01-02 has disappeared",
    ]


def test_a_reader_keeps_the_version_that_it_opened(two_days, tmp_path):
    site = two_days.copied_to(tmp_path)
    assert "gold_audit" in views(site.spark, site.lake.root)
    scope = Scope(site.spark, site.lake)
    assert scope.days == [FIRST, SECOND]
    site.seal(ten_commits(1, first_seq=21))
    site.run(clock=lambda: 23.0 * HOUR_S)
    counted = "SELECT sum(commits) AS n FROM gold_group_daily"
    assert site.spark.sql(counted).first()["n"] == 20
    assert sum(row["commits"] for row in scope.gold("group_daily").collect()) == 20
    views(site.spark, site.lake.root)
    assert site.spark.sql(counted).first()["n"] == 30
    notes = {row["dt"]: row["state"] for row in site.spark.table("publications").collect()}
    assert notes == {FIRST: "published", SECOND: "published"}


# --- what is removed ------------------------------------------------------------------------------


def test_a_replaced_version_goes_after_its_hours_and_not_before(two_days, tmp_path):
    site = two_days.copied_to(tmp_path)
    site.seal(ten_commits(1, first_seq=21))
    site.run(clock=lambda: 1.0 * HOUR_S)
    old = {each for each in folders_on_disk(site) if each.endswith(f"dt={SECOND}/v=1")}
    assert old
    site.run(clock=lambda: 24.9 * HOUR_S)
    assert old <= folders_on_disk(site)
    site.run(clock=lambda: 25.0 * HOUR_S)
    assert old & folders_on_disk(site) == set()
    assert folders_on_disk(site) == named(site)
    assert read_pointer(site.spark, site.lake).replaced == []
    assert rates(site) == [(FIRST, 10), (SECOND, 20)]


def test_what_a_killed_job_wrote_is_removed_and_never_counted(two_days, tmp_path):
    site = two_days.copied_to(tmp_path)
    site.seal(ten_commits(1, first_seq=21))
    with pytest.raises(Killed):
        site.run(progress=dies_at(8))
    assert folders_on_disk(site) - named(site)
    # what Spark leaves if its process dies in the middle of a table
    staging = root_of(site) / "gold/audit/.spark-staging-1/dt=1970-01-02"
    staging.mkdir(parents=True)
    assert rates(site) == [(FIRST, 10), (SECOND, 10)]
    assert site.run().published == [SECOND]
    assert folders_on_disk(site) == named(site)
    assert not staging.parent.exists()
    assert not (root_of(site) / "_writing.json").exists()
    assert rates(site) == [(FIRST, 10), (SECOND, 20)]


def test_a_job_that_dies_while_it_removes_removes_the_rest_later(two_days, tmp_path, monkeypatch):
    site = two_days.copied_to(tmp_path)
    site.seal(ten_commits(1, first_seq=21))
    site.run(clock=lambda: 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(versions, "_remove", dies_on(3, versions._remove))
        with pytest.raises(Killed):
            site.run(clock=lambda: 30.0 * HOUR_S)
    assert rates(site) == [(FIRST, 10), (SECOND, 20)]
    site.run(clock=lambda: 30.0 * HOUR_S)
    assert folders_on_disk(site) == named(site)


def test_the_finished_tasks_of_a_killed_job_are_not_in_the_next_table(site):
    """Spark's plain committer moves whatever stands in ``_temporary`` when a job ends."""
    task = Path(site.lake.path("gold/t/_temporary/0/task_1_m_000000"))
    rows = site.spark.createDataFrame([(1, FIRST)], "n int, dt date")
    add_days(rows, str(task), 1)
    add_days(rows, site.lake.path("gold/t"), 1)
    found = site.spark.read.parquet(site.lake.path("gold/t/dt=1970-01-01/v=1"))
    assert [row["n"] for row in found.collect()] == [1]


def test_a_large_day_of_a_table_is_in_several_files(two_days, tmp_path, monkeypatch):
    site = two_days.copied_to(tmp_path)
    monkeypatch.setattr(lake, "MAX_FILE_ROWS", 1)
    site.seal([commit(21, [("orders", n, n) for n in range(3)], ts_ms=DAY_MS + 90_000)])
    with as_for_large_data(site.spark):
        assert site.run().published == [SECOND]
    (folder,) = root_of(site).glob(f"gold/lag_1m/dt={SECOND}/v=2")
    assert len(list(folder.glob("*.parquet"))) == len(
        [row for row in site.gold("lag_1m") if row["dt"] == SECOND]
    )


# --- the pointer ----------------------------------------------------------------------------------


def test_a_pointer_is_what_was_written(two_days):
    pointer = read_pointer(two_days.spark, two_days.lake)
    assert pointer.published_days == [FIRST, SECOND]
    assert from_json(as_json(pointer)) == pointer


def test_a_pointer_of_a_newer_version_is_refused_in_one_line(two_days, tmp_path):
    site = two_days.copied_to(tmp_path)
    place = root_of(site) / POINTER
    content = place.read_bytes().replace(b'"format": 1', b'"format": 2')
    place.write_bytes(content)
    with pytest.raises(UnknownFormat):
        site.run()
    for arguments in (
        ("run", "--log-dir", site.log_dir, "--out", site.lake.root),
        ("report", "--tables", site.lake.root),
    ):
        said = command(*arguments, code=1).err
        assert said.splitlines()[-1] == (
            "groupkeeper: published.json has format 2, and this version of groupkeeper reads "
            "format 1: use the version that wrote the tables, or a newer one"
        )
    assert place.read_bytes() == content


# --- tables of 0.2.0.dev4 and before --------------------------------------------------------------


def as_before_versions(site: Site) -> Site:
    """Make the tables what 0.2.0.dev4 wrote: one folder for each day, and the notes as a table."""
    root = root_of(site)
    pointer = read_pointer(site.spark, site.lake)
    for folder in sorted(root.glob("*/*/dt=*/v=*")):
        for file in folder.iterdir():
            file.rename(folder.parent / file.name)
        folder.rmdir()
    rows = [
        (day, note.state, note.fingerprint, note.events, note.missing, [], note.computation)
        for day, note in pointer.days.items()
    ]
    notes = site.spark.createDataFrame(rows, NOTE_SCHEMA)
    notes.coalesce(1).write.parquet(site.lake.publications)
    (root / POINTER).unlink()
    for file in (root / "views").iterdir():
        file.unlink()
    return site


def test_tables_without_versions_are_read_and_taken_over_as_they_are(two_days, tmp_path):
    site = as_before_versions(two_days.copied_to(tmp_path))
    assert rates(site) == [(FIRST, 10), (SECOND, 10)]
    files = sorted(root_of(site).glob("gold/*/dt=*/*.parquet"))
    assert site.run().published == []
    assert sorted(root_of(site).glob("gold/*/dt=*/*.parquet")) == files
    assert folders_on_disk(site) == set()
    assert not Path(site.lake.publications).exists()
    assert rates(site) == [(FIRST, 10), (SECOND, 10)]
    assert by_pointer(root_of(site)) == by_views(root_of(site))
    # a day of a new version beside one without; the files of the old one go like any other
    site.seal(ten_commits(1, first_seq=21))
    site.run(clock=lambda: 0.0)
    both = {"1970-01-01": Day(10, 10, 10), "1970-01-02": Day(20, 20, 20)}
    assert by_pointer(root_of(site)) == by_views(root_of(site)) == both
    assert sorted(root_of(site).glob("gold/*/dt=*/*.parquet")) == files
    site.run(clock=lambda: 24.0 * HOUR_S)
    assert {path.parent.name for path in root_of(site).glob("gold/*/dt=*/*.parquet")} == {
        f"dt={FIRST}"
    }
    assert by_pointer(root_of(site)) == by_views(root_of(site)) == both


def test_a_taking_over_that_dies_is_done_again(two_days, tmp_path, monkeypatch):
    site = as_before_versions(two_days.copied_to(tmp_path))
    site.seal(ten_commits(1, first_seq=21))
    with pytest.raises(Killed):
        site.run(progress=dies_at(8))
    assert rates(site) == [(FIRST, 10), (SECOND, 10)]
    with monkeypatch.context() as patch:
        patch.setattr(publish, "remove_old_layout", dies_on(1, publish.remove_old_layout))
        with pytest.raises(Killed):
            site.run()
    assert rates(site) == [(FIRST, 10), (SECOND, 20)]
    assert site.run().published == []
    assert not Path(site.lake.publications).exists()


def test_days_that_a_run_of_an_earlier_version_did_not_finish_are_computed(two_days, tmp_path):
    site = as_before_versions(two_days.copied_to(tmp_path))
    notes = site.spark.read.schema(NOTE_SCHEMA).parquet(site.lake.publications).collect()
    rows = [
        row if row["dt"] == FIRST else (row["dt"], HELD_BACK, "", 10, "", [], 2) for row in notes
    ]
    beside = site.spark.createDataFrame(rows, NOTE_SCHEMA)
    beside.coalesce(1).write.parquet(site.lake.new_publications)
    for file in Path(site.lake.publications).iterdir():  # it died before it moved the new notes
        file.unlink()
    Path(site.lake.publications).rmdir()
    assert site.run().published == [SECOND]
    assert rates(site) == [(FIRST, 10), (SECOND, 10)]
    assert json.loads((root_of(site) / POINTER).read_text())["version"] == 1
