"""Rows become segments and go: whatever happens in between, each event is there once."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.core.events import GroupCreated, OffsetDeleted
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import StorageError
from groupkeeper.storage.event_log.check import verify
from groupkeeper.storage.event_log.manifest import MANIFEST, read_manifest
from groupkeeper.storage.event_log.reader import group_history
from groupkeeper.storage.event_log.segments import SegmentError
from groupkeeper.storage.open import rows_of
from tests.helpers.core.records import commit, group_record
from tests.helpers.storage.sealed_store import DAY_MS, NOON_MS, SealedStore, on_writer, until
from tests.helpers.storage.storage_owner import Owner

AGE_MS = 300_000


async def filled(store: SealedStore, commits: int = 20) -> Owner:
    """A store with a commit in each row, folded as it goes, so that only sealing is missing."""
    owner = await store.owner()
    for number in range(1, commits + 1):
        events = [GroupCreated(group_id=f"g{number}")] if number <= 3 else []
        await store.append(owner, number % 4, [commit(f"g{number % 3}", number)], events)
    await owner.fold_all()
    return owner


def seqs(store: SealedStore) -> list[int]:
    return [event["seq"] for event in store.read()]


async def test_old_events_are_sealed_and_their_rows_go_but_for_the_newest(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    owner = await filled(store)
    await asyncio.sleep(0.05)
    assert store.files() == []
    store.now_ms += AGE_MS
    await until(lambda: len(store.live_seqs()) == 1)
    log_id = store.appended[0]["log_id"]
    assert store.files() == [f"events-{log_id}-1-23.jsonl.gz"]
    assert store.live_seqs() == [23]
    assert store.read() == store.appended
    assert verify(store.log_dir).is_sound
    await owner.storage.close()


async def test_the_first_segment_after_a_start_is_closed_after_ten_seconds(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    owner = await filled(store)
    store.now_ms += 9_999
    await asyncio.sleep(0.05)
    assert store.files() == []
    store.now_ms += 1
    await until(lambda: len(store.files()) == 1)
    await store.append(owner, 0, [commit("g0", 100)])
    store.now_ms += AGE_MS - 1
    await asyncio.sleep(0.05)
    assert len(store.files()) == 1
    store.now_ms += 1
    await until(lambda: len(store.files()) == 2)
    assert store.read() == store.appended
    await owner.storage.close()


async def test_a_segment_is_closed_at_its_size_and_at_midnight(tmp_path: Path) -> None:
    store = SealedStore(tmp_path, segment_bytes=2_000)
    owner = await filled(store)
    store.now_ms += DAY_MS
    await store.append(owner, 0, [commit("g0", 99)])
    store.now_ms += AGE_MS
    await owner.storage.close()
    segments = read_manifest(store.log_dir).segments.values()
    assert len(segments) > 3
    assert all(segment.json_bytes < 4_500 for segment in segments)
    assert {segment.name.day for segment in segments} == {"2023-11-15", "2023-11-16"}
    assert store.read() == store.appended


async def test_a_row_that_is_not_folded_stays_though_it_is_sealed(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    store.fold_after = 1_000
    owner = await filled_without_fold(store)
    store.now_ms += AGE_MS
    await until(lambda: "noted" in store.steps and store.files() != [])
    await asyncio.sleep(0.05)
    assert store.live_seqs() == list(range(1, 11))
    await owner.fold_all()
    await store.append(owner, 0, [commit("g", 11)])  # a row tells how far the fold had come
    await until(lambda: store.live_seqs() == [11])
    await owner.storage.close()
    again = await store.owner()
    assert again.model.keys == owner.model.keys
    await again.storage.close()


async def filled_without_fold(store: SealedStore) -> Owner:
    owner = await store.owner()
    for number in range(1, 11):
        await store.append(owner, 0, [commit("g", number)])
    return owner


async def test_a_row_that_is_not_sealed_stays_though_it_is_folded(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    owner = await filled(store)
    await asyncio.sleep(0.05)
    assert store.live_seqs() == [event["seq"] for event in store.appended]
    await owner.storage.close()


async def test_a_clean_end_seals_what_is_there(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    owner = await filled(store)
    await owner.storage.close()
    assert len(store.files()) == 1
    assert store.read() == store.appended
    owner = await store.owner()
    await store.append(owner, 0, [commit("g0", 100)])
    await owner.storage.close()
    assert len(store.files()) == 2
    assert store.read() == store.appended
    assert verify(store.log_dir, reads_events=True).is_sound


@pytest.mark.parametrize("fold_after", [0, 50_000])
async def test_a_kill_between_any_two_steps_loses_and_doubles_nothing(
    tmp_path: Path, fold_after: int
) -> None:
    store = SealedStore(tmp_path / "store")
    store.path.parent.mkdir()
    store.fold_after = fold_after
    images: list[SealedStore] = []

    def photograph(step: str) -> None:
        images.append(store.image(tmp_path / f"{len(images)}-{step}"))

    owner = await filled(store)
    await store.append(owner, 0, [commit("g0", 99)])  # a row tells how far the fold had come
    store.at_step = photograph
    store.now_ms += AGE_MS
    await until(lambda: store.steps[-1:] == ["trimmed"] and len(store.live_seqs()) == 1)
    store.at_step = lambda step: None
    keys = dict(owner.model.keys)
    await owner.storage.close()

    assert {image.path.parent.name.partition("-")[2] for image in images} == {
        "written",
        "synced",
        "indexed",
        "renamed",
        "directory_synced",
        "listed",
        "noted",
        "trimmed",
    }
    for image in images:
        assert image.read() == store.appended, image.path.parent.name
        killed = await image.owner()
        assert killed.model.keys == keys
        assert image.read() == store.appended, image.path.parent.name
        await killed.fold_all()
        await image.append(killed, 1, [commit("late", 7)])
        image.now_ms += AGE_MS
        await until(lambda image=image: len(image.live_seqs()) == 2)
        await killed.storage.close()
        assert image.read() == image.appended, image.path.parent.name
        report = verify(image.log_dir, reads_events=True)
        assert report.is_sound, report
        old, new = report.logs
        assert (old.first_seq, new.last_seq) == (1, image.appended[-1]["seq"])
        assert old.events + new.events == len(image.appended)
        assert not list(image.log_dir.glob("dt=*/.*"))


async def test_a_failure_of_the_disk_is_told_and_tried_again(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    owner = await filled(store)

    def no_space(step: str) -> None:
        if store.steps.count("written") == 1:
            raise OSError(28, "No space left on device")

    store.at_step = no_space
    store.now_ms += AGE_MS
    await until(lambda: owner.storage.stats()["sealing_failures"] == 1)
    await store.append(owner, 0, [commit("g0", 100)])
    await owner.storage.close()
    assert verify(store.log_dir).is_sound
    assert store.read() == store.appended


async def test_a_store_that_never_sealed_begins_with_its_first_row(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    plain = SqliteOffsetStorage(store.path, clock=lambda: store.now_ms)
    owner = await Owner(plain).start()
    for number in range(5):
        await store.append(owner, 0, [commit("g", number)])
    await plain.close()
    owner = await store.owner()
    await owner.storage.close()
    assert store.read() == store.appended
    assert [log.events for log in verify(store.log_dir).logs] == [5]


async def test_files_that_were_moved_away_are_written_again_as_far_as_there_are_rows(
    tmp_path: Path,
) -> None:
    store = SealedStore(tmp_path)
    store.fold_after = 50_000  # rows stay
    owner = await filled_without_fold(store)
    await owner.storage.close()
    store.log_dir.rename(tmp_path / "elsewhere")
    owner = await store.owner()
    await owner.storage.close()
    assert store.read() == store.appended
    assert verify(store.log_dir).is_sound


async def test_one_file_that_is_missing_is_written_again_and_no_other(tmp_path: Path) -> None:
    store = SealedStore(tmp_path, segment_bytes=1_000)
    store.fold_after = 50_000
    owner = await filled_without_fold(store)
    await owner.storage.close()
    before = store.files()
    assert len(before) > 3
    next(store.log_dir.glob(f"dt=*/{before[1]}")).unlink()
    owner = await store.owner()
    await owner.storage.close()
    assert store.files() == before
    assert store.read() == store.appended
    assert verify(store.log_dir, reads_events=True).is_sound


async def test_an_older_copy_of_a_store_goes_on_under_a_new_log_id(tmp_path: Path) -> None:
    store = SealedStore(tmp_path / "store")
    store.path.parent.mkdir()
    owner = await filled(store, commits=5)
    copy = store.image(tmp_path / "copy")
    await store.append(owner, 0, [commit("g0", 50)])
    await owner.storage.close()
    old_log = store.appended[0]["log_id"]

    shutil.rmtree(copy.log_dir)
    store.log_dir.rename(copy.log_dir)
    owner = await copy.owner()
    await copy.append(owner, 0, [commit("g0", 60)])
    await owner.storage.close()
    assert copy.appended[-1]["log_id"] != old_log
    report = verify(copy.log_dir, reads_events=True)
    assert report.is_sound, report
    assert [(log.first_seq, log.last_seq) for log in report.logs] == [(1, 9), (9, 10)]
    owner = await copy.owner()
    await copy.append(owner, 0, [commit("g0", 70)])
    await owner.storage.close()
    assert [e["seq"] for e in copy.appended if e["log_id"] != old_log] == [9, 10, 11, 12]
    assert verify(copy.log_dir).is_sound
    owner = await copy.owner()
    await owner.fold_all()  # rows may go
    await copy.append(owner, 0, [commit("g0", 80)])
    await owner.storage.close()
    owner = await copy.owner()
    await until(lambda: copy.live_seqs() == [13, 14])
    await owner.storage.close()
    assert copy.read() == copy.appended, "what the store itself never held is not its history"


async def test_what_an_older_copy_wrote_before_a_kill_is_sealed_by_the_next_start(
    tmp_path: Path,
) -> None:
    """A file of the log that it left has events of the same numbers."""
    store = SealedStore(tmp_path / "store")
    store.path.parent.mkdir()
    owner = await filled(store, commits=5)
    copy = store.image(tmp_path / "copy")
    await store.append(owner, 0, [commit("g0", 50)])
    await owner.storage.close()
    shutil.rmtree(copy.log_dir)
    store.log_dir.rename(copy.log_dir)
    owner = await copy.owner()
    await copy.append(owner, 0, [commit("g0", 60)])
    killed = copy.image(tmp_path / "killed")
    await owner.storage.close()
    again = await killed.owner()
    await again.storage.close()
    newest = killed.appended[-1]
    assert f"events-{newest['log_id']}-9-10.jsonl.gz" in killed.files()
    assert killed.read() == killed.appended


async def test_a_clock_that_steps_back_ends_the_segment_with_the_log(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    owner = await filled(store, commits=3)
    store.now_ms -= 60_000
    await store.append(owner, 0, [commit("g0", 9)])
    store.now_ms += AGE_MS + 60_000
    await owner.storage.close()
    assert len(store.files()) == 2
    assert store.read() == store.appended
    assert len({event["log_id"] for event in store.read()}) == 2
    owner = await store.owner()
    assert store.read() == store.appended
    await owner.storage.close()


async def test_two_stores_share_a_directory(tmp_path: Path) -> None:
    stores = [SealedStore(tmp_path / name) for name in ("a", "b")]
    for store in stores:
        store.path.parent.mkdir()
        store.log_dir = tmp_path / "log"
        store.settings = type(store.settings)(directory=store.log_dir)
    for _ in range(2):
        for store in stores:
            owner = await store.owner()
            await store.append(owner, 0, [commit("g", 1)])
            await owner.storage.close()
    for store in stores:
        assert store.read() == store.appended
    report = verify(tmp_path / "log")
    assert report.is_sound
    assert [log.segments for log in report.logs] == [1, 1, 1, 1]


async def test_a_reader_goes_by_seq_group_and_time_and_opens_no_other_file(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    store.fold_after = 50_000
    owner = await store.owner()
    for day in range(4):
        await store.append(owner, 0, [commit(f"g{day}", day), group_record(f"g{day}")])
        await store.append(owner, 0, [commit("all", day)])
        store.now_ms += DAY_MS
    await owner.storage.close()
    store.fold_after = 0
    owner = await store.owner()
    await owner.fold_all()
    await store.append(owner, 0, [commit("g1", 5)])
    await until(lambda: len(store.live_seqs()) <= 2)
    assert store.read(after_seq=3) == store.appended[3:]
    assert [e["seq"] for e in store.read(group_id="g1")] == [3, 10]
    assert [e["seq"] for e in store.read(since_ms=NOON_MS + 2 * DAY_MS)] == [5, 6, 7, 8, 9, 10]
    for file in store.log_dir.glob("dt=*/events-*"):
        if not file.parent.name.endswith("16"):
            file.write_bytes(b"whoever reads this fails")
    assert [e["seq"] for e in store.read(group_id="g1")] == [3, 10]
    assert [e["seq"] async for e in group_history(rows_of(store.path), "g1", store.log_dir)] == [
        3,
        10,
    ]
    with pytest.raises(SegmentError):
        store.read()
    await owner.storage.close()


async def test_history_goes_through_files_and_rows(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    owner = await filled(store)
    store.now_ms += AGE_MS
    await until(lambda: len(store.live_seqs()) == 1)
    await store.append(owner, 1, [commit("g1", 500)])
    history = [event async for event in owner.storage.history("g1")]  # type: ignore[attr-defined]
    assert history == [event for event in store.appended if event["group"] == "g1"]
    await owner.storage.close()


async def test_a_file_that_is_missing_is_told_to_a_reader(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    owner = await filled(store)
    store.now_ms += AGE_MS
    await until(lambda: len(store.live_seqs()) == 1)
    next(store.log_dir.glob("dt=*/events-*")).unlink()
    with pytest.raises(SegmentError, match="log verify"):
        store.read()
    await owner.storage.close()


async def test_a_directory_that_cannot_be_made_is_told_at_the_start(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    store.log_dir.write_text("in the way")
    with pytest.raises(StorageError, match=r"log\.dir: .*in the way|log\.dir: .*File exists"):
        await store.owner()


async def test_what_is_behind_and_how_old_is_told(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    owner = await filled(store)
    await until(lambda: owner.storage.stats()["unsealed_rows"] == 20)
    store.now_ms += 1_000
    await until(lambda: owner.storage.stats()["open_segment_age_s"] == 1)
    store.now_ms += AGE_MS
    await until(lambda: owner.storage.stats()["unsealed_rows"] == 0)
    numbers = owner.storage.stats()
    assert (numbers["sealed_seq"], numbers["last_seq"]) == (23, 23)
    assert (numbers["open_segment_age_s"], numbers["segments_sealed"]) == (0, 1)
    await owner.storage.close()


async def test_a_manifest_without_its_last_line_is_whole_again_after_a_start(
    tmp_path: Path,
) -> None:
    store = SealedStore(tmp_path)
    owner = await filled(store)
    await owner.storage.close()
    manifest = store.log_dir / MANIFEST
    manifest.write_bytes(manifest.read_bytes()[:-30])
    assert not verify(store.log_dir).is_sound
    await (await store.owner()).storage.close()
    assert verify(store.log_dir).is_sound
    assert store.read() == store.appended


async def test_an_event_of_every_size_of_row_is_sealed(tmp_path: Path) -> None:
    store = SealedStore(tmp_path, segment_bytes=50_000)
    owner = await store.owner()
    for metadata in ("", "x" * 70_000, "ä" * 30_000):
        await store.append(owner, 0, [commit("g", 1, metadata=metadata, partitions=3)])
    deleted = OffsetDeleted(group_id="g", topics=[], reason="deleted")
    await store.append(owner, 0, events=[deleted])
    await owner.storage.close()
    assert store.read() == store.appended


async def test_who_has_no_time_for_sealing_at_the_end_still_gives_the_store_back(
    tmp_path: Path,
) -> None:
    store = SealedStore(tmp_path)
    owner = await filled(store)
    disk_answers = threading.Event()
    store.at_step = lambda step: disk_answers.wait() if step == "written" else None  # type: ignore[assignment]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await owner.storage.close()
    closing = owner.storage._closing  # type: ignore[attr-defined]
    await until(closing.done)
    owner = await store.owner()
    disk_answers.set()
    assert store.read() == store.appended
    await owner.storage.close()
    assert verify(store.log_dir).is_sound


async def test_every_append_waits_for_the_disk_though_a_deletion_did_not(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    owner = await filled(store)
    store.now_ms += AGE_MS
    await until(lambda: "trimmed" in store.steps)
    storage = owner.storage
    full = 2
    pragma = await on_writer(storage, lambda c: c.execute("PRAGMA synchronous").fetchone())
    assert pragma == (full,)
    await storage.close()


async def test_a_first_segment_that_is_missing_is_told(tmp_path: Path) -> None:
    store = SealedStore(tmp_path, segment_bytes=2_000)
    owner = await filled(store)
    store.now_ms += AGE_MS
    await until(lambda: len(store.live_seqs()) == 1)
    await owner.storage.close()
    first = min(store.log_dir.glob("dt=*/events-*"), key=lambda path: int(path.name.split("-")[2]))
    last_seq = int(first.name.split("-")[3].partition(".")[0])
    first.unlink()
    with capture_logs() as logs:
        await (await store.owner()).storage.close()
    lost = [entry for entry in logs if entry["event"] == "events_are_lost"]
    assert [(entry["first_seq"], entry["last_seq"]) for entry in lost] == [(1, last_seq)]


async def test_a_last_segment_that_is_missing_with_the_manifest_is_told_by_the_store_alone(
    tmp_path: Path,
) -> None:
    """No file is left that says that it was there."""
    store = SealedStore(tmp_path, segment_bytes=2_000)
    owner = await filled(store)
    store.now_ms += AGE_MS
    await until(lambda: len(store.live_seqs()) == 1)
    await owner.storage.close()
    last = max(store.log_dir.glob("dt=*/events-*"), key=lambda path: int(path.name.split("-")[2]))
    first_seq = int(last.name.split("-")[2])
    (in_a_row,) = store.live_seqs()
    assert first_seq < in_a_row
    last.unlink()
    (store.log_dir / MANIFEST).unlink()
    assert verify(store.log_dir).is_sound
    with capture_logs() as logs:
        await (await store.owner()).storage.close()
    lost = [entry for entry in logs if entry["event"] == "events_are_lost"]
    assert [(entry["first_seq"], entry["last_seq"]) for entry in lost] == [
        (first_seq, in_a_row - 1)
    ]
    assert not verify(store.log_dir).is_sound


async def test_a_directory_that_cannot_be_made_is_refused_with_what_to_do(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    store.log_dir.write_text("in the way")
    with pytest.raises(StorageError, match=r"cannot be made .*log.sealing"):
        await store.owner()


# --- a log.dir that is moved ---------------------------------------------------------------------


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_log_dir_that_is_moved_is_noticed_and_goes_on_once_it_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    monkeypatch.setattr("groupkeeper.storage.event_log.sealing.storage.RETRY_S", 0.01)
    store = SealedStore(tmp_path)
    owner = await filled(store)
    store.now_ms += AGE_MS
    await until(lambda: len(store.live_seqs()) == 1)
    elsewhere = tmp_path / "elsewhere"
    with capture_logs() as logs:
        store.log_dir.rename(elsewhere)
        if replaced:
            store.log_dir.mkdir()
        await until(lambda: any(line["event"] == "log_dir_moved" for line in logs))
        for number in range(3):
            await store.append(owner, 0, [commit("g0", 200 + number)])
        store.now_ms += AGE_MS
        seen = len(logs)
        await until(lambda: len(logs) > seen + 3)
        assert list(store.log_dir.rglob("*")) == [], "it was begun anew"
        assert store.live_seqs() == [23, 24, 25, 26]
    assert {line["log_level"] for line in logs} == {"error"}
    said = logs[0]["reason"]
    assert f"log.dir: {store.log_dir}: was {'replaced' if replaced else 'moved'}" in said
    if replaced:
        store.log_dir.rmdir()
    elsewhere.rename(store.log_dir)
    await until(lambda: store.live_seqs() == [26])
    assert store.read() == store.appended
    await owner.storage.close()


async def test_no_row_is_deleted_if_its_segment_may_be_elsewhere(tmp_path: Path) -> None:
    """The directory is replaced in the moment in which a segment was written."""
    store = SealedStore(tmp_path)
    owner = await filled(store)

    def replace(step: str) -> None:
        if step == "listed":
            store.at_step = lambda _: None
            store.log_dir.rename(tmp_path / "elsewhere")
            store.log_dir.mkdir()

    with capture_logs() as logs:
        store.at_step = replace
        store.now_ms += AGE_MS
        await until(lambda: any(line["event"] == "log_dir_moved" for line in logs))
        await owner.storage.close()
    assert store.live_seqs() == list(range(1, 24))
    assert list(store.log_dir.iterdir()) == []
