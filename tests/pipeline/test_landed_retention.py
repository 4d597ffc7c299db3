"""``pipeline run --store`` deletes its old files when the tables have their events."""

from __future__ import annotations

import asyncio
import shutil
import time
from itertools import count
from pathlib import Path

import pytest

from groupkeeper.coordinator.cli.pipeline import tables as cli
from groupkeeper.pipeline.tables.bronze import read_coverage
from groupkeeper.storage.event_log.segments import day_of, segment_names
from groupkeeper.storage.event_log.snapshot_logs import parse_snapshot_log
from tests.helpers.storage.sealed_store import DAY_MS
from tests.helpers.storage.sites import FakeSite
from tests.pipeline.conftest import Site
from tests.pipeline.restore.conftest import command
from tests.pipeline.test_run_by_url import started
from tests.storage.test_nodes_in_turn import Turns, on_fake

URL = "postgresql://me:geheim@h/db"


class History:
    """A store with events of some of the last days, and its tables."""

    def __init__(self, site: Site, turns: Turns) -> None:
        self.site = site
        self.turns = turns
        self.log = Path(site.lake.root, "log")
        self.noon_ms = int(time.time() * 1000) // DAY_MS * DAY_MS + DAY_MS // 2

    def write(self, days_ago: int) -> None:
        self.turns._ticks = count(self.noon_ms - days_ago * DAY_MS)
        asyncio.run(self.turns.turn(1, ["a"]))

    def run(self, *options: str, code: int = 0) -> str:
        run = ["run", "--store", URL, "--out", self.site.lake.root, *options]
        return command(*run, code=code).err

    def days_ago(self) -> list[int]:
        """Return of which days the files still have events."""
        names = segment_names(self.log / "1")
        days = {each.day for each in names if parse_snapshot_log(each.log_id) is None}
        return [ago for ago in range(99, -1, -1) if day_of(self.noon_ms - ago * DAY_MS) in days]

    def check(self) -> None:
        """Check the tables, and what only the files tell."""
        verified = command("verify", "--tables", self.site.lake.root).out
        assert "everything is right" in verified
        assert "is sound" in command_of_log(self.log / "1")


def command_of_log(folder: Path) -> str:
    from groupkeeper.storage.event_log.check import verify

    return "is sound" if verify(folder, reads_events=True).is_sound else "is not sound"


@pytest.fixture
def history(site: Site, monkeypatch: pytest.MonkeyPatch) -> History:
    return History(site, on_fake(FakeSite(), monkeypatch))


def test_files_of_the_last_thirty_days_or_as_many_as_are_asked_for_are_kept(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for days_ago in (40, 9, 1):
        history.write(days_ago)
    assert "deleted" not in history.run("--retention-days", "log=-1")
    said = history.run()
    assert f"deleted 1 files older than 30 days from {history.log}: the tables have" in said
    assert history.days_ago() == [9, 1]
    history.check()
    said = history.run("--retention-days", "log=7")
    assert "published" not in said
    assert "deleted 1 files older than 7 days" in said
    assert history.days_ago() == [1]
    assert "missing" not in history.run("--retention-days", "log=7")
    with monkeypatch.context() as patch:
        patch.setattr(cli, "start_spark", started)
        assert history.run("--retention-days", "log=7") == "  nothing has changed\n"
    history.write(0)
    assert "missing" not in history.run("--retention-days", "log=7")
    history.check()
    # tables that are made from the files that are left begin with a snapshot, without a gap
    new = [*("run", "--log-dir", str(history.log)), *("--out", str(tmp_path / "new"))]
    assert "missing" not in command(*new).err


def test_no_file_is_deleted_that_bronze_lacks_or_after_a_round_with_a_gap(
    history: History,
) -> None:
    for days_ago in (40, 39, 1):
        history.write(days_ago)
    log = history.turns.site.server.event_log
    history.turns.site.server.event_log = [each for each in log if each["seq"] != 1]
    assert "missing" in history.run(code=1)
    assert history.days_ago() == [40, 39, 1]
    gap_day = day_of(history.noon_ms - 40 * DAY_MS)
    day = Path(history.site.lake.root, "bronze", "events", f"dt={gap_day}")
    shutil.move(day, day.with_name("away"))
    said = history.run("--accept-gap", gap_day, code=1)
    assert history.days_ago() == [40, 39, 1], said
    shutil.move(day.with_name("away"), day)
    said = history.run("--accept-gap", gap_day)
    assert "deleted 2 files older than 30 days" in said
    before = read_coverage(history.site.spark, history.site.lake).gaps()
    for _ in range(2):
        assert "not published" not in history.run()
    assert [each[:3] for each in read_coverage(history.site.spark, history.site.lake).gaps()] == [
        each[:3] for each in before
    ]
    assert "everything is right" in command("verify", "--tables", history.site.lake.root).out


def test_a_full_disk_is_reported_and_deletes_nothing(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    from groupkeeper.storage.event_log.sealing import retention

    history.write(40)
    history.write(1)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(retention, "SegmentWriter", full)
        said = history.run(code=1)
    assert f"old files in {history.log} are not deleted: [Errno 28] No space left" in said
    assert history.days_ago() == [40, 1]
    assert "deleted 1 files" in history.run()
    history.check()


def test_the_days_of_files_are_only_for_files_that_the_command_writes(site: Site) -> None:
    run = ["run", "--log-dir", str(site.log_dir), "--out", site.lake.root]
    said = command(*run, "--retention-days", "log=7", code=2).err
    assert "--retention-days log is for the files that --store writes" in said
    for wrong in ("log=0", "log=-2", "log=x", "iron=1"):
        command("run", "--store", URL, "--retention-days", wrong, code=2)
