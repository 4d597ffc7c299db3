"""Old files of events that the pipeline has written from a store are deleted."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from groupkeeper.storage import open as stores
from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.event_log.check import verify
from groupkeeper.storage.event_log.sealing.sealer import FOR_EVER
from groupkeeper.storage.event_log.segments import Segment, segment_names
from groupkeeper.storage.event_log.snapshot_logs import base_log, parse_snapshot_log
from groupkeeper.storage.tools.landed_retention import LandedRetention
from groupkeeper.storage.tools.landing import Landed, land_events
from tests.helpers.storage.sealed_store import DAY_MS, Crash
from tests.helpers.storage.sites import KINDS, FakeSite, make_site, url_of
from tests.storage.test_landing import landed_in, quiet
from tests.storage.test_nodes_in_turn import NOON_MS, Turns, in_thread, on_fake

DAYS = 4
KEEP_DAYS = 2
NOW_MS = NOON_MS + DAYS * DAY_MS


@pytest.fixture(params=KINDS)
def turns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Turns:
    site = make_site(request)
    return on_fake(site, monkeypatch) if isinstance(site, FakeSite) else Turns(site, url_of(site))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Turns:
    return on_fake(FakeSite(), monkeypatch)


async def some_days(turns: Turns) -> None:
    """Two nodes write events on each of some days. Each start of a node begins a log."""
    for day in range(DAYS):
        turns._ticks = count(NOON_MS + day * DAY_MS)
        await turns.turn(1, ["a", f"only-on-{day}"])
        await turns.turn(2, ["a"])


def land(turns: Turns, directory: Path) -> Landed:
    return land_events(stores.log_store(turns.url), directory, quiet, segment_bytes=1)


def retention(directory: Path, landed: Landed, **options: Any) -> LandedRetention:
    fields = {"keep_days": KEEP_DAYS, "clock": lambda: NOW_MS} | options
    return LandedRetention(directory, landed.logs, **fields)


def chains(directory: Path) -> list[set[str]]:
    """Return the logs of each node."""
    return [
        {base_log(name.log_id) for name in segment_names(folder)}
        for folder in sorted(directory.glob("[0-9]*"))
    ]


def nothing(_: Segment) -> bool:
    """Need no segment."""
    return False


def days_in(directory: Path) -> list[str]:
    """Return the days of which events are left."""
    names = (name for folder in directory.glob("[0-9]*") for name in segment_names(folder))
    return sorted({name.day for name in names if parse_snapshot_log(name.log_id) is None})


def check(directory: Path) -> None:
    """Check that no event is missing, and none is there twice."""
    for folder in directory.glob("[0-9]*"):
        assert verify(folder, reads_events=True).is_sound
    events = landed_in(directory)
    assert len(events) == len({*events})


def unfinished(directory: Path) -> list[Path]:
    return [*directory.rglob("*.tmp")]


async def test_old_days_are_deleted_and_not_written_again(turns: Turns, tmp_path: Path) -> None:
    await some_days(turns)
    landed = await in_thread(land, turns, tmp_path)
    with_snapshots = len(segment_names(tmp_path / "1"))
    days = retention(tmp_path, landed)
    old = days.old()
    assert {segment.name.day for segment in old} == {"2023-11-14", "2023-11-15"}
    assert days.delete(chains(tmp_path), nothing) == len(old)
    assert len(segment_names(tmp_path / "1")) < with_snapshots
    assert days_in(tmp_path) == ["2023-11-16", "2023-11-17"]
    check(tmp_path)
    assert days.old() == []
    left = landed_in(tmp_path)
    # the store still has the events of the deleted files
    again = await in_thread(land, turns, tmp_path)
    assert (again.events, landed_in(tmp_path)) == (0, left)
    # all events are in deleted files, and only snapshots are left
    later = retention(tmp_path, again, clock=lambda: NOW_MS + 9 * DAY_MS)
    assert later.delete(chains(tmp_path), nothing)
    assert days_in(tmp_path) == []
    assert (await in_thread(land, turns, tmp_path)).events == 0
    turns._ticks = count(NOW_MS)
    await turns.turn(1, ["b"])
    assert (await in_thread(land, turns, tmp_path)).events == 3
    check(tmp_path)


async def test_files_of_events_that_the_store_has_deleted_are_deleted_too(
    fake: Turns, tmp_path: Path
) -> None:
    await some_days(fake)
    await in_thread(land, fake, tmp_path)
    fake.site.server.event_log = []
    landed = await in_thread(land, fake, tmp_path)
    assert landed.events == 0
    assert retention(tmp_path, landed).delete(chains(tmp_path), nothing)
    assert days_in(tmp_path) == ["2023-11-16", "2023-11-17"]
    check(tmp_path)


async def test_nothing_behind_a_needed_file_is_deleted(fake: Turns, tmp_path: Path) -> None:
    await some_days(fake)
    landed = await in_thread(land, fake, tmp_path)
    first = min(segment_names(tmp_path / "1"), key=lambda name: name.first_seq)
    days = retention(tmp_path, landed)

    def is_needed(segment: Segment) -> bool:
        return segment.file == str(first)

    assert days.delete(chains(tmp_path), lambda _: True) == 0
    files = {*map(str, segment_names(tmp_path / "1"))}
    assert days.delete(chains(tmp_path), is_needed)
    assert files == {*map(str, segment_names(tmp_path / "1"))}
    assert retention(tmp_path, landed, keep_days=FOR_EVER).delete(chains(tmp_path), nothing) == 0
    assert retention(tmp_path, landed, keep_days=FOR_EVER).old() == []


async def test_a_kill_at_any_step_of_a_deletion_loses_and_doubles_nothing(
    fake: Turns, tmp_path: Path
) -> None:
    await some_days(fake)
    landed = await in_thread(land, fake, tmp_path / "log")
    images: dict[str, Path] = {}

    def kept(step: str) -> None:
        """Copy the files as a kill at this moment would leave them."""
        name = f"{len(images)}-{step}"
        images[name] = tmp_path / name
        shutil.copytree(tmp_path / "log", images[name])

    assert retention(tmp_path / "log", landed, hook=kept).delete(chains(tmp_path / "log"), nothing)
    wanted = landed_in(tmp_path / "log")
    steps = {name.partition("-")[2] for name in images}
    assert {"renamed", "snapshot_listed", "removal_listed", "removed"} <= steps
    for image in images.values():
        again = await in_thread(land, fake, image)
        assert again.events == 0
        retention(image, again).delete(chains(image), nothing)
        assert landed_in(image) == wanted
        check(image)
        assert (await in_thread(land, fake, image)).events == 0


async def test_an_error_in_a_deletion_leaves_the_files(fake: Turns, tmp_path: Path) -> None:
    """A full disk, for example: the snapshot cannot be written."""
    await some_days(fake)
    landed = await in_thread(land, fake, tmp_path)
    before = landed_in(tmp_path)

    def full(step: str) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        retention(tmp_path, landed, hook=full).delete(chains(tmp_path), nothing)
    assert landed_in(tmp_path) == before
    assert unfinished(tmp_path) == []
    assert retention(tmp_path, landed).delete(chains(tmp_path), nothing)
    check(tmp_path)


async def test_two_processes_do_not_delete_at_the_same_time(fake: Turns, tmp_path: Path) -> None:
    await some_days(fake)
    landed = await in_thread(land, fake, tmp_path)

    def second(step: str) -> None:
        with pytest.raises(StoreRefused, match="another process writes events of a store there"):
            retention(tmp_path, landed).delete(chains(tmp_path), nothing)
        with pytest.raises(StoreRefused, match="another process writes events of a store there"):
            land(fake, tmp_path)
        raise Crash

    with pytest.raises(Crash):
        retention(tmp_path, landed, hook=second).delete(chains(tmp_path), nothing)
