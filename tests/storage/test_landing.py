"""The events of a store are written into files for the pipeline, each of them once."""

from __future__ import annotations

import asyncio
import resource
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from groupkeeper.storage import open as stores
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.event_log.check import verify
from groupkeeper.storage.event_log.manifest import read_manifest
from groupkeeper.storage.event_log.sealing.settling import settle
from groupkeeper.storage.event_log.segments import read_segment, segment_names
from groupkeeper.storage.event_log.source import EventRows
from groupkeeper.storage.tools.by_url import land_events_of
from groupkeeper.storage.tools.landing import Landed, land_events
from tests.helpers.core.records import commit
from tests.helpers.storage.sealed_store import SealedStore, until
from tests.helpers.storage.sites import KINDS, FakeSite, make_site, url_of
from tests.helpers.storage.storage_owner import Owner
from tests.storage.test_nodes_in_turn import Turns, in_thread, on_fake

NOWHERE: frozenset[str] = frozenset()


@pytest.fixture(params=KINDS)
def turns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Turns:
    site = make_site(request)
    return on_fake(site, monkeypatch) if isinstance(site, FakeSite) else Turns(site, url_of(site))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Turns:
    return on_fake(FakeSite(), monkeypatch)


def quiet(log: str, seq: int) -> None:
    """Report no progress."""


def landed_in(directory: Path) -> list[tuple[str, int]]:
    """Return log and seq of every event in the files, with those that are there twice."""
    places = {file.parent.parent for file in directory.rglob("dt=*/events-*")}
    return sorted(
        (event["log_id"], event["seq"])
        for place in places
        for name in segment_names(place)
        for event in read_segment(place / str(name))
    )


def stored(turns: Turns) -> list[tuple[str, int]]:
    return sorted((event["log_id"], event["seq"]) for event in turns.events())


async def land(store: Any, directory: Path) -> tuple[int, frozenset[str]]:
    """Return the number of new events, and the directories that have earlier ones."""
    landed: Landed = await in_thread(land_events_of, store, directory, quiet)
    return landed.events, landed.elsewhere


async def test_the_events_of_each_node_land_once(turns: Turns, tmp_path: Path) -> None:
    await turns.turn(1, ["a", "b"])
    await turns.turn(2, ["a"], folds=False)
    assert await land(turns.url, tmp_path) == (6, NOWHERE)
    assert await land(turns.url, tmp_path) == (0, NOWHERE)
    await turns.turn(1, ["c"])
    wanted = await in_thread(stored, turns)
    assert await land(turns.url, tmp_path) == (3, NOWHERE)
    assert landed_in(tmp_path) == wanted
    manifests = [read_manifest(tmp_path / node) for node in "12"]
    ((first,), (second,)) = ({s.store for s in each.segments.values()} for each in manifests)
    assert (first.partition("/")[0], first[-2:]) == (second.partition("/")[0], "/1")
    assert second.endswith("/2")


async def test_a_kill_at_any_step_loses_no_event_and_doubles_none(
    fake: Turns, tmp_path: Path
) -> None:
    await fake.turn(1, ["a", "b"])
    await fake.turn(2, ["a"])
    store = stores.log_store(fake.url)
    images: dict[str, Path] = {}

    def kept(step: str) -> None:
        """Copy the files as a kill at this moment would leave them."""
        name = f"{len(images)}-{step}"
        images[name] = tmp_path / name
        shutil.copytree(tmp_path / "log", images[name])

    def landing(directory: Path, **options: Any) -> Landed:
        return land_events(store, directory, quiet, segment_bytes=1, **options)

    await in_thread(lambda: landing(tmp_path / "log", hook=kept))
    wanted = await in_thread(stored, fake)
    steps = {name.partition("-")[2] for name in images}
    assert steps == {"written", "synced", "indexed", "renamed", "directory_synced", "listed"}
    assert len(images) == 6 * len(wanted)
    for image in images.values():
        await in_thread(landing, image)
        assert landed_in(image) == wanted
        assert not [*image.rglob("*.tmp")]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Let every write fail beyond this size of a file, as on a disk that becomes full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("segment_bytes", [1, 1024 * 1024])
async def test_a_write_that_finds_no_room_loses_no_event_and_doubles_none(
    fake: Turns, tmp_path: Path, segment_bytes: int
) -> None:
    """The limits cut off segments, their lists of groups, and lines of the manifest."""
    for _ in range(3):
        await fake.turn(1, ["a", "b" * 300])
    await fake.turn(2, ["a"])
    store, wanted = stores.log_store(fake.url), await in_thread(stored, fake)
    failed = 0
    for size in range(0, 3_000, 150):
        directory = tmp_path / str(size)

        def landing(directory: Path = directory) -> Landed:
            return land_events(store, directory, quiet, segment_bytes=segment_bytes)

        with files_up_to(size):
            try:
                await in_thread(landing)
            except OSError:
                failed += 1
        await in_thread(landing)
        assert landed_in(directory) == wanted
        for node in "12":
            assert verify(directory / node, reads_events=True).is_sound
        assert not [*directory.rglob("*.tmp")]
    assert failed > 5


async def test_deleted_events_are_not_in_files_and_later_ones_are(
    fake: Turns, tmp_path: Path
) -> None:
    await fake.turn(1, ["a", "b"])
    log = fake.site.server.event_log
    fake.site.server.event_log = [each for each in log if each["seq"] > 2]
    assert await land(fake.url, tmp_path) == (2, NOWHERE)
    fake.site.server.event_log = []
    await fake.turn(1, ["c"])
    assert await land(fake.url, tmp_path) == (3, NOWHERE)
    assert [seq for _, seq in sorted(landed_in(tmp_path), key=lambda each: each[1])] == [
        3,
        4,
        5,
        6,
        7,
    ]


async def test_a_file_whose_first_events_the_store_has_deleted_is_not_written_again(
    fake: Turns, tmp_path: Path
) -> None:
    await fake.turn(1, ["a", "b"])
    assert await land(fake.url, tmp_path) == (4, NOWHERE)
    fake.site.server.event_log = [each for each in fake.site.server.event_log if each["seq"] > 2]
    assert await land(fake.url, tmp_path) == (0, NOWHERE)


async def test_a_store_that_was_set_back_lands_with_its_new_log(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"

    async def write(offsets: range) -> None:
        owner = await Owner(SqliteOffsetStorage(path)).start()
        for offset in offsets:
            await owner.append(1, [commit("g", offset)])
        await owner.storage.close()

    await write(range(2))
    shutil.copy(path, copy)
    await write(range(2, 4))
    before, _ = await land(path, tmp_path / "log")
    shutil.copy(copy, path)
    await write(range(4, 5))
    after, _ = await land(path, tmp_path / "log")
    assert after == 2  # the commit, and that the log began
    assert len({*landed_in(tmp_path / "log")}) == before + 2


async def test_a_folder_that_somebody_writes_is_refused(tmp_path: Path) -> None:
    sealed = SealedStore(tmp_path, segment_bytes=1)
    owner = await sealed.owner()
    for offset in range(3):
        await sealed.append(owner, 1, [commit("g", offset)])
    await until(lambda: sealed.live_seqs() != [1, 2, 3])
    with pytest.raises(StoreRefused, match="the coordinator of this store writes its own files"):
        await land(sealed.path, sealed.log_dir)
    _, elsewhere = await land(sealed.path, tmp_path / "other")
    assert elsewhere == {str(sealed.log_dir)}
    await owner.storage.close()

    def second(step: str) -> None:
        with pytest.raises(StoreRefused, match="another process writes events of a store there"):
            land_events_of(sealed.path, tmp_path / "third", quiet)

    store = stores.log_store(sealed.path)
    steps: list[str] = []

    def at_step(step: str) -> None:
        steps.append(step)
        second(step)

    await asyncio.to_thread(land_events, store, tmp_path / "third", quiet, hook=at_step)
    assert steps


class Asked:
    """Rows that remember which events were asked for."""

    def __init__(self, rows: Any) -> None:
        self.seqs: list[int] = []
        self._rows = rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    def log_id_at(self, seq: int) -> str | None:
        self.seqs.append(seq)
        log_id: str | None = self._rows.log_id_at(seq)
        return log_id


async def test_a_store_is_asked_about_few_events_however_many_files_there_are(
    fake: Turns, tmp_path: Path
) -> None:
    await fake.turn(1, ["a"] * 10)
    await fake.turn(1, ["b"] * 10)
    store = stores.log_store(fake.url)

    def settled() -> tuple[int, list[int]]:
        with store.kept_open():
            land_events(store, tmp_path, quiet, segment_bytes=1)
            with closing(store.logs()["1"]()) as rows:
                asked = Asked(rows)
                return settle(cast(EventRows, asked), tmp_path / "1").sealed_seq, asked.seqs

    sealed_seq, asked = await in_thread(settled)
    assert (len(segment_names(tmp_path / "1")), sealed_seq) == (40, 41)
    assert len(asked) <= 6  # a begin to know each log, a begin and an end of each


async def test_progress_is_reported_by_log(fake: Turns, tmp_path: Path) -> None:
    await fake.turn(2, ["a", "b"])
    told: list[tuple[str, int]] = []
    store = stores.log_store(fake.url)
    await in_thread(
        lambda: land_events(
            store, tmp_path, lambda *progress: told.append(progress), segment_bytes=1
        )
    )
    assert told == [("2", 1), ("2", 2), ("2", 3)]
