"""What a store lacks of what came before a moment, as ``pipeline restore`` asks it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from groupkeeper.coordinator.cli.pipeline.store_history import HistoryRead, read_group
from groupkeeper.coordinator.core.events import GroupCreated
from groupkeeper.storage.event_log.manifest import MANIFEST
from groupkeeper.storage.event_log.sealing.retention import LogRetention
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.segments import segment_names
from groupkeeper.storage.event_log.several_logs import OneLog
from groupkeeper.storage.open import rows_of
from tests.helpers.core.records import commit
from tests.helpers.storage.sealed_store import DAY_MS, NOON_MS, SealedStore, until


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


def read(
    store: SealedStore, as_of_ms: int, log_dir: Path | None = None, group: str = "g"
) -> HistoryRead:
    return read_group(OneLog(rows_of(store.path)).logs(), log_dir, group, as_of_ms)


def lacks(
    store: SealedStore, as_of_ms: int, log_dir: Path | None = None, group: str = "g"
) -> list[tuple[int, int]]:
    """The seqs that are missing up to a moment."""
    log_id = store.appended[0]["log_id"]
    found = []
    for each in read(store, as_of_ms, log_dir, group).missing:
        told = re.fullmatch(f"events (\\d+) to (\\d+) of log {log_id} are missing", each)
        assert told is not None, each
        found.append((int(told[1]), int(told[2])))
    return found


def at(day: int) -> int:
    return NOON_MS + day * DAY_MS


def without(store: SealedStore, *places: int) -> None:
    """Take files and what the manifest says of them away."""
    for name in [segment_names(store.log_dir)[place] for place in places]:
        shutil.rmtree(store.log_dir / f"dt={name.day}")
    (store.log_dir / MANIFEST).unlink()


def test_a_whole_store_lacks_nothing(store: SealedStore) -> None:
    assert lacks(store, at(9)) == []


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


async def test_what_went_by_retention_and_left_nothing_to_keep_has_a_snapshot_of_nothing(
    tmp_path: Path,
) -> None:
    """A daemon that nobody used for longer than the log is kept."""
    store = SealedStore(tmp_path / "store")
    store.path.parent.mkdir()
    owner = await store.owner()
    for _ in range(3):
        await store.append(owner, 0, events=[GroupCreated(group_id="g")])
        store.now_ms += DAY_MS
    for number in range(3):
        await store.append(owner, 0, [commit("g", number)])
        store.now_ms += DAY_MS
    await until(lambda: store.live_seqs() == [6])
    await owner.storage.close()
    settings = SealSettings(directory=store.log_dir, retention_ms=4 * DAY_MS)
    LogRetention(settings, lambda: store.now_ms).run({store.appended[0]["log_id"]})
    *_, snapshot = segment_names(store.log_dir)
    assert snapshot.log_id == f"{store.appended[0]['log_id']}.2"
    assert lacks(store, at(9)) == []
    for file in (str(snapshot), snapshot.groups_file):
        (store.log_dir / file).unlink()
    assert lacks(store, at(9)) == [(1, 2)]


def test_a_file_that_the_manifest_lists_is_missing_from_its_first_event_on(
    store: SealedStore,
) -> None:
    name = segment_names(store.log_dir)[1]
    (store.log_dir / str(name)).unlink()
    (store.log_dir / name.groups_file).unlink()
    assert lacks(store, at(1) - 1) == []
    assert lacks(store, at(1)) == [(3, 4)]


def test_a_missing_file_that_held_nothing_of_the_group_does_not_matter(store: SealedStore) -> None:
    name = segment_names(store.log_dir)[1]
    (store.log_dir / str(name)).unlink()
    assert lacks(store, at(9), group="somebody") == []  # its list of groups is there
    assert lacks(store, at(9)) == [(3, 4)]
    (offset,) = read(store, at(9)).offsets.standing(lambda _: 0).offsets.values()
    assert offset.offset == 4


def test_what_retention_could_not_read_is_lacked_by_the_groups_that_it_told_of(
    store: SealedStore,
) -> None:
    first = min(store.log_dir.glob("dt=*/events-*"))
    first.write_bytes(b"")
    settings = SealSettings(directory=store.log_dir, retention_ms=2 * DAY_MS)
    retention = LogRetention(settings, lambda: store.now_ms)
    assert len(retention.run({store.appended[0]["log_id"]})) == 1
    assert lacks(store, at(9)) == lacks(store, at(0)) == [(1, 2)]
    assert lacks(store, at(9), group="another") == []
