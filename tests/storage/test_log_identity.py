"""No event's ``(log_id, seq)`` is given twice, and each log tells where the one before it ended."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from groupkeeper.storage.backends.sqlite.rows import SqliteRows
from groupkeeper.storage.event_log.chain import Chain, MissingEnd
from groupkeeper.storage.event_log.check import verify
from groupkeeper.storage.event_log.manifest import MANIFEST, read_manifest
from groupkeeper.storage.event_log.sealing.retention import LogRetention
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.segment_digest import digest_holds
from groupkeeper.storage.event_log.segments import BROKEN_PREFIX, LogBegin
from tests.helpers.core.records import commit
from tests.helpers.storage.sealed_store import DAY_MS, SealedStore

FIVE = 5


async def run(store: SealedStore, *offsets: int) -> None:
    """One life of a store: start, commit, stop."""
    owner = await store.owner()
    for offset in offsets:
        await store.append(owner, 0, [commit("g", offset)])
    await owner.storage.close()


def own(store: SealedStore) -> frozenset[str]:
    with closing(SqliteRows(store.path)) as rows:
        return rows.note().log_ids


def forget(store: SealedStore, file: Path) -> None:
    """Take a segment's line out of the manifest."""
    path = store.log_dir / MANIFEST
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if file.name.encode() not in line))


def segment(store: SealedStore, first: int, last: int) -> Path:
    (found,) = store.log_dir.glob(f"dt=*/events-*-{first}-{last}.jsonl.gz")
    return found


def begun(previous_log_id: str, previous_seq: int) -> LogBegin:
    return LogBegin(previous_log_id, previous_seq, ts_ms=previous_seq, kind="log_started")


async def test_a_restore_of_store_and_segments_together_gives_no_identity_twice(
    tmp_path: Path,
) -> None:
    store = SealedStore(tmp_path / "store")
    store.path.parent.mkdir()
    await run(store, 1, 2)
    backup = store.image(tmp_path / "backup")
    await run(store, 3, 4)
    ahead = store.read()
    shutil.rmtree(store.path.parent)
    shutil.copytree(backup.path.parent, store.path.parent)
    store.appended = list(backup.appended)
    await run(store, 5, 6)
    restored = store.read()
    assert restored == store.appended
    assert verify(store.log_dir, reads_events=True).is_sound
    both = {(e["log_id"], e["seq"]): e for e in ahead}
    again = [e for e in restored if (e["log_id"], e["seq"]) in both]
    assert again == ahead[: len(again)] == restored[:2], "the same identity is the same event"
    assert [e["seq"] for e in restored] == [1, 2, 3, 4, 5], "seq goes on"


async def test_manifest_and_events_name_the_store_of_a_log(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    for offset in range(3):
        await run(store, offset)
    first, *later = store.read()
    listed = [*read_manifest(store.log_dir).segments.values()]
    assert len({segment.log_id for segment in listed}) == 3
    assert {segment.store for segment in listed} == {first["log_id"]}
    started = [event["store"] for event in later if event["kind"] == "log_started"]
    assert started == [first["log_id"]] * 2
    for file in listed:
        forget(store, store.log_dir / file.file)
    await run(store, 9)  # lists them again
    listed = [*read_manifest(store.log_dir).segments.values()]
    assert len(listed) == 4
    assert {segment.store for segment in listed} == {first["log_id"]}


async def test_a_store_that_an_older_version_wrote_gets_the_name_of_its_last_log(
    tmp_path: Path,
) -> None:
    store = SealedStore(tmp_path)
    await run(store, 1)
    await run(store, 2)
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("DELETE FROM store WHERE key = 'log_store'")
    with closing(SqliteRows(store.path)) as rows:
        assert rows.note().store == ""
    last = store.read()[-1]["log_id"]
    await run(store, 3)
    await run(store, 4)
    started = [event["store"] for event in store.read() if event["kind"] == "log_started"]
    assert started[1:] == [last, last]


async def test_a_copy_and_its_original_write_different_logs(tmp_path: Path) -> None:
    store = SealedStore(tmp_path / "store")
    store.path.parent.mkdir()
    await run(store, 1)
    copy = store.image(tmp_path / "copy")
    await run(store, 2)
    await run(copy, 3)
    mine, theirs = ({(e["log_id"], e["seq"]) for e in s.read()[1:]} for s in (store, copy))
    assert mine.isdisjoint(theirs)


@pytest.mark.parametrize("commits", [1, 2])
async def test_a_log_whose_end_was_cut_off_is_found_by_what_the_next_one_says(
    tmp_path: Path, commits: int
) -> None:
    store = SealedStore(tmp_path, segment_bytes=1)  # a segment a row
    await run(store, *range(1, commits + 1))
    await run(store, 9)
    assert verify(store.log_dir).is_sound
    last = segment(store, commits, commits)
    forget(store, last)
    last.unlink()
    report = verify(store.log_dir)
    assert [log.gaps for log in report.logs if log.gaps] == [[(commits, commits)]]


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("lives", [1, 2, 3])
async def test_of_a_log_that_is_gone_as_a_whole_its_own_events_are_missing_and_no_others(
    tmp_path: Path, lives: int, is_listed: bool
) -> None:
    """It was said of all events from the first one on, those that are there among them."""
    store = SealedStore(tmp_path)
    for number in range(1, lives + 2):
        await run(store, number)  # a commit, and from the second life on the beginning of its log
    first, last = (1, 1) if lives == 1 else (2 * lives - 2, 2 * lives - 1)
    gone = segment(store, first, last)
    gone.unlink()
    if not is_listed:
        forget(store, gone)
    report = verify(store.log_dir)
    assert [log.gaps for log in report.logs if log.gaps] == [[(first, last)]]


def test_where_several_logs_may_come_before_one_that_is_gone_the_first_of_them_is_taken() -> None:
    """Two stores in one directory, and a log that only names what went on."""
    begins = {"c": begun("b", 20), "y": begun("x", 3)}
    chain = Chain(begins, {"a": 9, "c": 25, "x": 3, "y": 15}, ())
    assert list(chain.missing_ends()) == [MissingEnd("b", 10, 20)]


def test_a_log_beside_one_that_is_gone_says_nothing_of_its_events() -> None:
    """An older copy of the store went on from the middle of it."""
    begins = {"copy": begun("b", 15), "c": begun("b", 20)}
    chain = Chain(begins, {"a": 9, "copy": 18, "c": 25}, ())
    assert list(chain.missing_ends()) == [MissingEnd("b", 10, 20)]


def test_a_snapshot_of_another_store_in_the_directory_says_nothing_of_its_events() -> None:
    begins = {"b": begun("a", 20)}
    ends = {"a": 15, "b": 25, "other": 40}
    assert list(Chain(begins, ends, ["other.30"]).missing_ends()) == [MissingEnd("a", 16, 20)]
    assert list(Chain(begins, ends, ["other.30", "a.20"]).missing_ends()) == []


@pytest.mark.parametrize(
    ("end", "abandoned"),
    [(9, []), (10, ["events 10 to 10 of log a"]), (11, ["events 10 to 11 of log a"])],
)
def test_an_older_copy_that_lacks_a_single_event_is_reported(
    end: int, abandoned: list[str]
) -> None:
    chain = Chain({"copy": begun("a", 9)}, {"a": end, "copy": 12}, ())
    assert [fork.abandoned for fork in chain.forks()] == abandoned


async def test_an_edited_file_that_no_manifest_lists_is_found_and_put_aside(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    await run(store, 1)
    await run(store, 2)
    file = segment(store, 2, 3)
    assert digest_holds(file)
    with gzip.open(file) as lines:
        edited = lines.read().replace(b'["orders"', b'["others"').replace(b"[0,2,", b"[0,7,")
    with gzip.open(file) as lines:
        assert edited != lines.read()
    sealed = file.read_bytes()
    file.write_bytes(gzip.compress(edited))
    forget(store, file)
    report = verify(store.log_dir)
    assert "was changed" in next(log.damaged[0] for log in report.logs if log.damaged)
    member = sealed[-len(sealed) + sealed.rindex(b"\x1f\x8b") :]
    file.write_bytes(gzip.compress(edited) + member)
    assert digest_holds(file) is False
    assert not verify(store.log_dir).is_sound
    owner = await store.owner()
    await owner.storage.close()
    assert list(store.log_dir.glob(f"dt=*/{BROKEN_PREFIX}*"))


async def test_an_unlisted_file_that_nobody_touched_is_taken_as_it_is(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    await run(store, 1)
    (store.log_dir / MANIFEST).unlink()
    report = verify(store.log_dir)
    assert report.is_sound
    assert len(report.notes) == 1
    await run(store, 2)
    assert store.read() == store.appended


async def test_a_store_that_is_older_than_the_logs_behind_it_says_so_in_its_own(
    tmp_path: Path,
) -> None:
    """The copy ends where a log ends: it is the next log's beginning that tells."""
    store = SealedStore(tmp_path / "store")
    store.path.parent.mkdir()
    await run(store, 1)
    copy = store.image(tmp_path / "copy")
    await run(store, 2)
    shutil.rmtree(copy.log_dir)
    shutil.copytree(store.log_dir, copy.log_dir)
    with capture_logs() as logs:
        await run(copy, 3)
    assert "store_is_older_than_its_segments" in [line["event"] for line in logs]
    started = copy.appended[1]
    assert (started["kind"], started["reason"]) == ("log_started", "older_store")
    assert copy.read() == copy.appended
    report = verify(copy.log_dir, reads_events=True)
    assert report.is_sound
    assert [note for note in report.notes if "an older copy replaced the store" in note]


async def test_retention_forgets_logs_that_are_gone_and_takes_abandoned_ones(
    tmp_path: Path,
) -> None:
    store = SealedStore(tmp_path / "store")
    store.path.parent.mkdir()
    await run(store, 1)
    copy = store.image(tmp_path / "copy")
    await run(store, 2)
    abandoned = segment(store, 2, 3)
    shutil.rmtree(copy.log_dir)
    shutil.copytree(store.log_dir, copy.log_dir)
    for day in range(FIVE):
        copy.now_ms += DAY_MS
        await run(copy, 10 + day)
    assert len(own(copy)) == FIVE + 1
    copy.settings = SealSettings(directory=copy.log_dir, retention_ms=2 * DAY_MS)
    owner = await copy.owner()
    while len(own(copy)) == FIVE + 1:
        await owner.storage._on_thread(lambda: None)  # type: ignore[attr-defined]
    await owner.storage.close()
    left = {name.log_id for name in read_manifest(copy.log_dir).segments.values()}
    assert own(copy) == {log_id.partition(".")[0] for log_id in left}
    assert not list(copy.log_dir.rglob(abandoned.name))
    assert verify(copy.log_dir, reads_events=True).is_sound


async def test_a_living_copy_beside_it_keeps_its_days(tmp_path: Path) -> None:
    store = SealedStore(tmp_path / "store")
    store.path.parent.mkdir()
    await run(store, 1)
    copy = store.image(tmp_path / "copy")
    copy.settings = store.settings
    copy.log_dir = store.log_dir
    for day in range(FIVE):
        for each in (store, copy):
            each.now_ms += DAY_MS
            await run(each, day)
    LogRetention(
        SealSettings(directory=store.log_dir, retention_ms=DAY_MS), lambda: store.now_ms
    ).run(own(store))
    assert copy.read() == copy.appended[1:], "only what both had written goes with the first"
