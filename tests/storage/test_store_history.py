"""What a store lacks of what came before a moment, as ``pipeline restore`` asks it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coordinator.cli.store_history import MissingEvents, absent_files, copy_group, gaps_before
from coordinator.core.events import GroupCreated
from storage.log_retention import LogRetention
from storage.manifest import MANIFEST
from storage.sealing import SealSettings
from storage.segments import segment_names
from tests.helpers.records import commit
from tests.helpers.sealed_store import DAY_MS, NOON_MS, SealedStore, until


@pytest.fixture
async def store(tmp_path: Path) -> SealedStore:
    """Five days of a group, a segment each; nothing but the newest is in rows."""
    store = SealedStore(tmp_path / "store")
    store.path.parent.mkdir()
    owner = await store.owner()
    for number in range(5):
        await store.append(owner, 0, [commit("g", number), commit("other", number)])
        store.now_ms += DAY_MS
    await until(lambda: store.live_seqs() == [9, 10])
    await owner.storage.close()
    return store


def lacks(store: SealedStore, as_of_ms: int, log_dir: Path | None = None) -> list[tuple[int, int]]:
    """The seqs that are missing up to a moment."""
    target = store.path.parent / f"copy-{as_of_ms}"
    gaps = copy_group(store.path, log_dir, "g", target)
    missing = gaps_before(store.path, log_dir, gaps, as_of_ms)
    assert {each.log_id for each in missing} <= {store.appended[0]["log_id"]}
    return [(each.first_seq, each.last_seq) for each in missing]


def at(day: int) -> int:
    return NOON_MS + day * DAY_MS


def without(store: SealedStore, *places: int) -> None:
    """Take files and what the manifest says of them away."""
    for name in [segment_names(store.log_dir)[place] for place in places]:
        shutil.rmtree(store.log_dir / f"dt={name.day}")
    (store.log_dir / MANIFEST).unlink()


def test_a_whole_store_lacks_nothing(store: SealedStore) -> None:
    assert lacks(store, at(9)) == []
    assert absent_files(store.path, None, at(9)) == []


def test_a_gap_matters_to_every_moment_after_what_is_before_it(store: SealedStore) -> None:
    without(store, 1, 2)
    assert lacks(store, at(4)) == [(3, 6)]
    assert lacks(store, at(1)) == [(3, 6)]
    assert lacks(store, at(0) - DAY_MS) == []


def test_a_missing_beginning_matters_to_every_moment(store: SealedStore) -> None:
    without(store, 0)
    assert lacks(store, at(0)) == [(1, 2)]
    assert lacks(store, at(4)) == [(1, 2)]


def test_another_folder_lacks_everything_that_is_not_in_rows(
    store: SealedStore, tmp_path: Path
) -> None:
    assert lacks(store, at(4), tmp_path / "nowhere") == [(1, 8)]


def test_a_snapshot_stands_for_what_went_by_retention(store: SealedStore) -> None:
    settings = SealSettings(directory=store.log_dir, retention_ms=2 * DAY_MS)
    LogRetention(settings, lambda: store.now_ms).run({store.appended[0]["log_id"]})
    assert any("." in name.log_id for name in segment_names(store.log_dir))
    assert lacks(store, at(4)) == []
    assert lacks(store, at(0)) == []  # nothing is known there, and the group says so


async def test_what_went_by_retention_and_left_nothing_to_keep_is_not_lacking(
    tmp_path: Path,
) -> None:
    """A daemon that nobody used for longer than the log is kept: it has no snapshot."""
    store = SealedStore(tmp_path / "store")
    store.path.parent.mkdir()
    owner = await store.owner()
    for _ in range(3):
        await store.append(owner, 0, events=[GroupCreated(group="g")])
        store.now_ms += DAY_MS
    for number in range(3):
        await store.append(owner, 0, [commit("g", number)])
        store.now_ms += DAY_MS
    await until(lambda: store.live_seqs() == [6])
    await owner.storage.close()
    settings = SealSettings(directory=store.log_dir, retention_ms=4 * DAY_MS)
    LogRetention(settings, lambda: store.now_ms).run({store.appended[0]["log_id"]})
    first, *more = segment_names(store.log_dir)
    assert (first.first_seq, any("." in name.log_id for name in more)) == (3, False)
    assert lacks(store, at(9)) == []
    without(store, 0)  # and the manifest, which would know
    assert lacks(store, at(9)) == [(1, 3)]


def test_files_that_the_manifest_knows_are_missed_by_name(store: SealedStore) -> None:
    name = segment_names(store.log_dir)[1]
    (store.log_dir / str(name)).unlink()
    assert absent_files(store.path, None, at(0)) == []
    (missing,) = absent_files(store.path, None, at(1))
    assert missing == MissingEvents(name.log_id, 3, 4)
