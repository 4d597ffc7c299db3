"""A run without anything new ends before Spark starts, and says what a run would say."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from groupkeeper.coordinator.cli.pipeline import tables as cli
from groupkeeper.pipeline.tables import last_run as module
from groupkeeper.pipeline.tables.compute import COMPUTATION
from groupkeeper.pipeline.tables.last_run import (
    FILE,
    LastRun,
    bytes_to_read,
    content_of,
    last_run,
    says,
    sight,
)
from groupkeeper.pipeline.tables.pointer import (
    POINTER,
    PUBLISHED,
    DayNote,
    Pointer,
    Replaced,
    as_json,
)
from tests.pipeline.restore.conftest import command
from tests.pipeline.test_ingest import MIDDLE, NEWEST, flipped, older, three_days

HOUR_MS = 3_600_000


class Started(Exception):
    """Spark was started."""


@pytest.fixture
def without_spark(monkeypatch) -> Callable[[], None]:
    """Called, it makes every later start of Spark a failure."""

    def start(*_, **__):
        raise Started

    return lambda: monkeypatch.setattr(cli, "start_spark", start)


def test_a_run_without_new_segments_ends_before_spark_starts(site, without_spark):
    three_days(site)
    arguments = ["run", "--log-dir", site.log_dir, "--out", site.lake.root]
    assert "published 3 days" in command(*arguments).err
    without_spark()
    assert command(*arguments).err == "  nothing has changed\n"
    os.utime(site.log_dir / NEWEST, (1, 1))
    with pytest.raises(Started):
        command(*arguments, code=None)


def test_it_says_the_same_problems_with_the_same_code(site, without_spark):
    whole = three_days(site)
    (site.log_dir / MIDDLE).write_bytes(older(whole[MIDDLE]))
    (site.log_dir / NEWEST).write_bytes(flipped(whole[NEWEST]))
    arguments = ["run", "--log-dir", site.log_dir, "--out", site.lake.root]
    command(*arguments, code=1)
    (Path(site.lake.root) / FILE).unlink()
    by_spark = command(*arguments, code=1).err
    without_spark()
    said = command(*arguments, code=1).err
    assert said.splitlines() == by_spark.splitlines()[2:]  # without "starting" and "reading"
    assert f"{MIDDLE} has" in said
    with pytest.raises(Started):
        command(*arguments, "--accept-gap", "1970-01-02", code=None)


# --- what it depends on ---------------------------------------------------------------------------


class Place:
    """A log and tables, as a run left them."""

    def __init__(self, root: Path) -> None:
        self.log, self.out = root / "log", root / "tables"
        for day in (1, 2, 3):
            self.file(self.log / f"dt=2026-11-0{day}/events-log-{day}-{day}.jsonl.gz", 100 * day)
            self.file(self.out / f"bronze/events/dt=2026-11-0{day}/batch_id=0/a.parquet", day)
        self.file(self.log / "_manifest.jsonl", 5)
        for table in ("segments", "verdicts", "lacking"):
            self.file(self.out / f"bronze/{table}/part.parquet", 1)
        replaced = [Replaced(10 * HOUR_MS, ["gold/audit/dt=2026-11-01/v=1"])]
        self.note_run(Pointer(2, replaced=replaced))

    def note_run(self, pointer: Pointer) -> None:
        """Write what a run writes at its end."""
        (self.out / POINTER).write_bytes(as_json(pointer))
        saw = sight(str(self.log), [], {})
        assert saw is not None
        content = content_of(saw, str(self.out), ["nothing has changed"], is_sound=True)
        assert content is not None
        (self.out / FILE).write_bytes(content)

    @staticmethod
    def file(path: Path, size: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)

    def says(self, *, accept=(), now_ms: int = 11 * HOUR_MS, keep: float = 24) -> LastRun | None:
        now = sight(str(self.log), accept, {})
        return says(last_run(str(self.out)), now, str(self.out), keep, now_ms)

    def bytes(self) -> int | None:
        return bytes_to_read(last_run(str(self.out)), sight(str(self.log), [], {}), str(self.out))


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def test_nothing_new_is_seen_in_folders_as_the_last_run_left_them(place):
    found = place.says()
    assert found is not None
    assert (found.lines, found.is_sound) == (["nothing has changed"], True)
    place.file(place.log / "notes.txt", 1)  # no file of the log
    assert place.says() is not None


CHANGES: dict[str, Callable[[Place], object]] = {
    "a new segment": lambda p: p.file(p.log / "dt=2026-11-03/events-log-4-4.jsonl.gz", 1),
    "a segment is gone": lambda p: next(p.log.glob("dt=*/*")).unlink(),
    "a segment has another time": lambda p: os.utime(next(p.log.glob("dt=*/*")), (1, 1)),
    "a manifest has grown": lambda p: p.file(p.log / "_manifest.jsonl", 6),
    "other tables are valid": lambda p: (p.out / POINTER).write_bytes(as_json(Pointer(3))),
    "there are no tables": lambda p: (p.out / POINTER).unlink(),
    "an import wrote to bronze": lambda p: p.file(p.out / "bronze/segments/new.parquet", 1),
    "bronze was removed": lambda p: (p.out / "bronze/verdicts/part.parquet").unlink(),
    "it was never written": lambda p: (p.out / FILE).unlink(),
    "it is damaged": lambda p: (p.out / FILE).write_text("{"),
    "another version wrote it": lambda p: (p.out / FILE).write_text('{"saw": {"log": {}}}'),
    "its content is no object": lambda p: (p.out / FILE).write_text("[]"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_looks_for_itself_if_anything_differs(place, change):
    CHANGES[change](place)
    assert place.says() is None


def test_a_run_looks_for_itself_with_another_version_or_another_accepted_gap(place, monkeypatch):
    assert place.says(accept=[date(2026, 11, 2)]) is None
    monkeypatch.setattr(module, "_software", lambda: "another")
    assert place.says() is None


def test_a_run_removes_replaced_versions_even_if_nothing_is_new(place):
    assert place.says(now_ms=33 * HOUR_MS) is not None
    assert place.says(now_ms=34 * HOUR_MS) is None
    assert place.says(keep=0.5) is None


def test_only_folders_of_this_machine_are_compared(place):
    assert sight("s3a://bucket/log", [], {}) is None
    now = sight(str(place.log), [], {})
    last = last_run(str(place.out))
    assert says(last, now, "s3a://bucket/tables", 24, 0) is None
    assert bytes_to_read(last, now, "s3a://bucket/tables") is None
    assert last_run("s3a://bucket/tables") is None


# --- how much there is to read --------------------------------------------------------------------


def test_new_files_are_read_and_the_bronze_of_their_days_and_all_later_ones(place):
    assert place.bytes() == 0
    place.file(place.log / "dt=2026-11-03/events-log-4-4.jsonl.gz", 1000)
    place.file(place.log / "_manifest.jsonl", 500)
    assert place.bytes() == 1000 + 3
    place.file(place.log / "dt=2026-11-02/events-log-5-5.jsonl.gz", 10)
    assert place.bytes() == 1010 + 3 + 2


def note_of(place: Place, day: str, computation: int) -> DayNote:
    """A day with a file of 100 bytes, or more for a later day, in each of some tables."""
    names = ("_carried/offsets", "_carried/lives", "silver/commit_deltas", "gold/lag_1m")
    tables = {name: f"{name}/dt={day}/v=1" for name in names}
    for name, folder in tables.items():
        place.file(place.out / folder / "hour-00000-0.parquet", 100 * int(day[-1]))
        if name == "gold/lag_1m":
            place.file(place.out / folder / "hour-00001-0.parquet", 7)
    return DayNote(PUBLISHED, "", 1, "", computation, tables)


def test_of_a_day_that_grows_its_tables_and_the_newest_minutes_are_read(place):
    days = ("2026-11-01", "2026-11-02")
    notes = {date.fromisoformat(day): note_of(place, day, COMPUTATION) for day in days}
    place.note_run(Pointer(2, notes))
    place.file(place.log / "dt=2026-11-03/events-log-4-4.jsonl.gz", 10)
    # bronze of the third day, and what the second day carries
    assert place.bytes() == 10 + 3 + 200
    place.file(place.log / "dt=2026-11-02/events-log-5-5.jsonl.gz", 10)
    assert place.bytes() == 20 + 3 + (200 + 200 + 7) + 100


def test_a_day_of_another_computation_is_read_from_bronze(place):
    days = ("2026-11-01", "2026-11-02")
    notes = {date.fromisoformat(day): note_of(place, day, 1) for day in days}
    place.note_run(Pointer(2, notes))
    place.file(place.log / "dt=2026-11-02/events-log-5-5.jsonl.gz", 10)
    assert place.bytes() == 10 + 3 + 2 + 100


@pytest.mark.parametrize("change", ["it was never written", "an import wrote to bronze"])
def test_everything_is_read_if_nothing_is_known(place, change):
    CHANGES[change](place)
    assert place.bytes() == 600 + 6
