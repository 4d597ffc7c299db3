"""The order in which files become durable, as docs/architecture.md states it; and what a power cut
at any moment leaves of them.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from groupkeeper.storage.event_log import manifest
from groupkeeper.storage.event_log.check import verify
from groupkeeper.storage.event_log.manifest import MANIFEST
from groupkeeper.storage.event_log.sealing.retention import LogRetention
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.segments import segment_names
from tests.helpers.core.records import commit
from tests.helpers.storage.power_cut import PowerCut
from tests.helpers.storage.sealed_store import DAY_MS, SealedStore, on_writer, until

SEALED = (
    ("sync", "log.dir"),  # a new day's directory
    ("sync", "segment"),
    ("rename", "segment"),
    ("sync", "day"),
    ("sync", "manifest"),
    ("sync", "log.dir"),  # the manifest is new
    ("noted", ""),
    ("trimmed", ""),
)
"""Rows become the first segment of a log, then they go."""

SEALED_NEXT = (
    ("sync", "segment"),
    ("rename", "segment"),
    ("sync", "day"),
    ("sync", "manifest"),
    ("noted", ""),
    ("trimmed", ""),
)
"""The next one of the same day."""

RETAINED = (
    ("sync", "segment"),  # the snapshot
    ("rename", "segment"),
    ("sync", "day"),
    ("sync", "manifest"),  # it is listed
    ("sync", "manifest"),  # what it stands for is removed from the list
    ("delete", "segment"),
    ("delete", "groups"),
    ("sync", "log.dir"),
)
"""A day goes, and the last one of it has the snapshot."""

REWRITTEN = (("sync", "new manifest"), ("rename", "manifest"), ("sync", "log.dir"))

_KINDS = (
    (r"\.", "log.dir"),
    (r"dt=[\d-]+", "day"),
    (r"dt=[\d-]+/(\.events-.*\.tmp|events-.*\.jsonl\.gz)", "segment"),
    (r"dt=[\d-]+/_events-.*\.groups\.gz", "groups"),
    (r"_manifest\.jsonl", "manifest"),
    (r"\._manifest\.jsonl\.tmp", "new manifest"),
    ("", ""),
)


TRIMMED = ("trimmed", "")


def order(done: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """What was done, with the kinds of files in the place of their names."""
    return tuple(
        (did, next(kind for pattern, kind in _KINDS if re.fullmatch(pattern, what)))
        for did, what in done
    )


def heard(store: SealedStore, cut: PowerCut) -> None:
    """Have the steps of the store itself in the order as well. A trim counts if events went: a row
    without any may go at any time.
    """
    first: list[int] = []

    def step(name: str) -> None:
        nonlocal first
        before, first = first, store.live_seqs()[:1]
        if name == "noted" or (name == "trimmed" and before not in ([], first)):
            cut.note(name)

    store.at_step = step


async def test_rows_go_only_once_their_segment_its_name_and_its_line_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SealedStore(tmp_path, segment_ms=1_000)
    cut = PowerCut(store.log_dir)
    heard(store, cut)
    owner = await store.owner()
    for expected in (SEALED, SEALED_NEXT):
        cut.done.clear()
        with cut.recording(monkeypatch):
            for offset in (1, 2):
                await store.append(owner, 0, [commit("g", offset)])
            await owner.fold_all()
            store.now_ms += 600_000
            await until(lambda: len(store.live_seqs()) == 1 and cut.done[-1:] == [TRIMMED])
        # the newest row never goes: that of the first round may go before anything else of the next
        first = next(each for each, done in enumerate(cut.done) if done != TRIMMED)
        assert order(cut.done[first:]) == expected
    await owner.storage.close()


async def test_a_day_goes_only_once_its_snapshot_and_the_list_without_it_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await three_days(tmp_path)
    cut = PowerCut(store.log_dir)
    with cut.recording(monkeypatch):
        keeper(store, 2 * DAY_MS).run({event["log_id"] for event in store.appended})
    assert order(cut.done) == RETAINED


async def test_a_manifest_is_durable_before_it_takes_the_place_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await three_days(tmp_path)
    cut = PowerCut(store.log_dir)
    monkeypatch.setattr(manifest, "REWRITE_LINES", 0)
    with cut.recording(monkeypatch):
        manifest.remove(store.log_dir, ["one that went"])
    assert order(cut.done) == (("sync", "manifest"), *REWRITTEN)


async def three_days(directory: Path) -> SealedStore:
    """Three days, a segment each, closed."""
    store = SealedStore(directory, segment_ms=1_000)
    owner = await store.owner()
    for number in range(3):
        await store.append(owner, 0, [commit("g", number), commit(f"g{number}", number)])
        store.now_ms += DAY_MS
    await owner.storage.close()
    return store


def keeper(store: SealedStore, retention_ms: int) -> LogRetention:
    settings = SealSettings(directory=store.log_dir, retention_ms=retention_ms)
    return LogRetention(settings, lambda: store.now_ms)


async def test_a_power_cut_at_any_step_of_sealing_takes_nothing_that_has_left_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SealedStore(tmp_path / "store", segment_ms=1_000)
    store.path.parent.mkdir()
    cut = PowerCut(store.log_dir)
    heard(store, cut)
    images: list[SealedStore] = []

    def photograph() -> None:
        image = store.image(tmp_path / str(len(images)))
        shutil.rmtree(image.log_dir)
        cut.leave(image.log_dir)
        images.append(image)

    owner = await store.owner()
    with cut.recording(monkeypatch):
        for day in range(3):
            for offset in (1, 2, 3):
                await store.append(owner, day, [commit(f"g{day}", offset)])
            await owner.fold_all()
            cut.done.clear()
            cut.after_each = photograph
            store.now_ms += DAY_MS  # its thread seals from here on, and trims what that allows
            await until(
                lambda: "rename" in dict(cut.done) and cut.done[-1] == TRIMMED  # a segment's
            )
            cut.after_each = lambda: None
    await owner.storage.close()
    assert len(images) > 2 * len(SEALED_NEXT)
    for image in images:
        again = await image.owner()
        await again.storage.close()
        assert image.read() == image.appended
        report = verify(image.log_dir, reads_events=True)
        assert report.is_sound, (image.path.parent, cut.done)


async def test_a_power_cut_at_any_step_of_retention_leaves_each_offset_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store").mkdir()
    images: list[Path] = []
    cut = PowerCut(tmp_path / "store" / "log")

    def photograph() -> None:
        images.append(tmp_path / str(len(images)))
        cut.leave(images[-1])

    with cut.recording(monkeypatch):
        store = await three_days(tmp_path / "store")
        log_ids = {event["log_id"] for event in store.appended}
        cut.after_each = photograph
        for _ in range(2):
            keeper(store, DAY_MS).run(log_ids)
            store.now_ms += DAY_MS
    assert len(images) > len(RETAINED)
    for image in images:
        manifest.reconcile(image, {name.log_id for name in segment_names(image)})
        report = verify(image, reads_events=True)
        assert report.is_sound, (image, cut.done)
        assert (image / MANIFEST).exists()


async def test_the_writer_waits_for_the_disk_except_for_what_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite syncs by itself: what it is told decides. Folds and deletions can be repeated."""
    store = SealedStore(tmp_path, segment_ms=1_000)
    said: list[str] = []
    owner = await store.owner()

    def traced(connection: sqlite3.Connection) -> tuple[object, object]:
        connection.set_trace_callback(said.append)
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
        return journal, synchronous

    assert await on_writer(owner.storage, traced) == ("wal", 2), "2 is FULL"
    for offset in (1, 2):
        await store.append(owner, 0, [commit("g", offset)])
    await owner.fold_all()
    store.now_ms += DAY_MS
    await until(lambda: "trimmed" in store.steps)
    await store.append(owner, 0, [commit("g", 3)])
    await owner.storage.close()
    waits = True
    for statement in said:
        if statement.startswith("PRAGMA synchronous = "):
            waits = statement.endswith("FULL")
        elif not statement.startswith("PRAGMA"):
            can_be_repeated = re.match(
                r"(INSERT OR IGNORE INTO sealed_logs|UPDATE sealed|DELETE FROM "
                r"(log|sealed_logs)|INSERT INTO groups)\b",
                statement,
            )
            is_writing = not statement.startswith("SELECT")
            assert waits != bool(can_be_repeated) or not is_writing, statement
    assert waits
    for repeated in ("DELETE FROM log", "INSERT INTO groups"):
        assert any(statement.startswith(repeated) for statement in said), repeated
