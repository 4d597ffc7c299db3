"""The horizon: what is before it goes, and what it came to does not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.core.events import (
    GroupCreated,
    LostPartition,
    LostTopic,
    OffsetDeleted,
    OffsetExpired,
)
from groupkeeper.coordinator.core.records import OffsetsRemoved
from groupkeeper.coordinator.embed.commit_log import entries_of
from groupkeeper.storage.event_log.check import verify
from groupkeeper.storage.event_log.manifest import MANIFEST, read_manifest
from groupkeeper.storage.event_log.sealing.retention import LogRetention
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.snapshots import MAX_PASS_OFFSETS, OffsetsAsOf
from groupkeeper.storage.event_log.segments import SegmentError, segment_names
from groupkeeper.storage.event_log.snapshot_logs import SnapshotLog, parse_snapshot_log
from groupkeeper.storage.segment_lines import EventDict
from tests.helpers.core.records import TOPIC_ID, commit
from tests.helpers.storage.sealed_store import DAY_MS, NOON_MS, Crash, SealedStore, until
from tests.helpers.storage.storage_owner import Owner

KEEP_MS = 2 * DAY_MS


async def five_days(store: SealedStore) -> None:
    """Append commits, an expiry and a deletion over five days.

    The storage that does it does not seal. Otherwise the clock moves while sealing works: a day
    that is half read becomes two segments, and a look of retention that comes too early is the
    only one, because the clock stands after the last day.
    """
    owner = await Owner(store.plain()).start()
    for day in range(5):
        for group in ("a", "b", f"only-on-{day}"):
            await store.append(owner, 0, [commit(group, 100 * day, partitions=2)])
        if day == 0:
            gone = LostPartition(0, 0, 0, "", 1_700_000_000_000)
            lost = [LostTopic("orders", TOPIC_ID, [gone])]
            removed = OffsetsRemoved("only-on-0", [("orders", 0)])
            await store.append(
                owner, 0, [removed], [OffsetExpired(group_id="only-on-0", topics=lost)]
            )
        if day == 1:
            gone = LostPartition(1, 100, 0, "", 1_700_000_000_100)
            lost = [LostTopic("orders", TOPIC_ID, [gone])]
            removed = OffsetsRemoved("b", [("orders", 1)])
            event = OffsetDeleted(group_id="b", topics=lost, reason="deleted")
            await store.append(owner, 0, [removed], [event])
        store.now_ms += DAY_MS
    await owner.storage.close()


def retention(store: SealedStore, max_offsets: int = MAX_PASS_OFFSETS) -> LogRetention:
    settings = SealSettings(directory=store.log_dir, retention_ms=KEEP_MS)
    return LogRetention(settings, lambda: store.now_ms, store._hook, max_offsets=max_offsets)


def as_of(events: list[EventDict], ts_ms: int) -> dict[tuple[str, str, int], int]:
    """What was committed at a moment, by the history of commits as hosts read it."""
    offsets = {}
    for event in events:
        if event["ts_ms"] <= ts_ms:
            for entry in entries_of(event):
                offsets[entry.group_id, entry.topic, entry.partition] = entry.offset
    return {key: offset for key, offset in offsets.items() if offset >= 0}


@pytest.fixture
async def store(tmp_path: Path) -> SealedStore:
    """A store of five days, closed. Each day is a segment."""
    store = SealedStore(tmp_path / "store")
    store.path.parent.mkdir()
    await five_days(store)
    owner = await store.owner()
    last_seq = store.appended[-1]["seq"]
    await until(lambda: owner.storage.stats()["sealed_seq"] == last_seq)
    await owner.storage.close()
    owner = await store.owner()  # rows go at the next start
    await until(lambda: store.live_seqs() == [last_seq])
    await store.append(owner, 0, [commit("a", 999)])
    await owner.storage.close()
    return store


def log_ids(store: SealedStore) -> set[str]:
    return {event["log_id"] for event in store.appended}


def test_days_beyond_the_horizon_go_and_as_of_stays_whole_within_it(store: SealedStore) -> None:
    retention(store).run(log_ids(store))
    days = sorted({name.day for name in segment_names(store.log_dir)})
    assert days == ["2023-11-17", "2023-11-18", "2023-11-19", "2023-11-20"]
    left = store.read()
    snapshots = [event for event in left if event["kind"] == "offset_snapshot"]
    (log,) = {event["log_id"] for event in snapshots}
    through = parse_snapshot_log(log)
    assert through is not None
    assert left == [
        *snapshots,
        *(e for e in store.appended if e["seq"] > through.through_seq),
    ]
    assert [event["seq"] for event in left] == sorted({event["seq"] for event in left})
    for day in (2, 3, 4, 5):
        moment = NOON_MS + day * DAY_MS
        assert as_of(left, moment) == as_of(store.appended, moment)
    assert verify(store.log_dir, reads_events=True).is_sound


def test_the_last_value_of_what_went_is_kept_beyond_the_horizon(store: SealedStore) -> None:
    retention(store).run(log_ids(store))
    store.now_ms += DAY_MS
    retention(store).run(log_ids(store))
    by_group = {e["group"]: e for e in store.read() if e["kind"] == "offset_snapshot"}
    (lost,) = by_group["only-on-0"]["lost"]
    assert lost["partitions"] == [
        {
            "partition": 0,
            "offset": 0,
            "leader_epoch": 0,
            "metadata": "",
            "commit_time_ms": 1_700_000_000_000,
            "lost_ts_ms": NOON_MS,
            "reason": "expired",
        }
    ]
    assert [row["partition"] for row in by_group["only-on-0"]["topics"][0]["partitions"]] == [1]
    deleted = by_group["b"]["lost"]
    assert deleted == []  # it was committed anew on the third day, which has gone as well


async def test_where_nothing_was_ever_committed_a_snapshot_says_so(tmp_path: Path) -> None:
    store = SealedStore(tmp_path)
    owner = await store.owner()
    for _ in range(5):
        await store.append(
            owner, 0, events=[GroupCreated(group_id="g"), GroupCreated(group_id="h")]
        )
        store.now_ms += DAY_MS
    await store.append(owner, 0, [commit("g", 7)])
    await until(lambda: owner.storage.stats()["sealed_seq"] == 10)
    await owner.storage.close()
    owner = await store.owner()  # rows go at the next start
    await until(lambda: store.live_seqs() == [11])
    await owner.storage.close()
    for through in (6, 8):
        retention(store).run(log_ids(store))
        snapshot, *others = store.read()
        assert (snapshot["kind"], snapshot["seq"]) == ("offset_snapshot", through)
        assert (snapshot["group"], snapshot["topics"], snapshot["lost"]) == ("", [], [])
        assert [event["seq"] for event in others] == list(range(through + 1, 12))
        assert verify(store.log_dir, reads_events=True).is_sound
        assert store.read(group_id="g")[0]["kind"] == "group_created"
        store.now_ms += DAY_MS
    store.now_ms += 5 * DAY_MS
    retention(store).run(log_ids(store))
    (kept,) = (e for e in store.read() if e["kind"] == "offset_snapshot")
    assert (kept["group"], kept["seq"]) == ("g", 11)


def test_nothing_goes_before_its_time_nor_where_all_is_kept(store: SealedStore) -> None:
    before = store.files()
    store.now_ms = NOON_MS + KEEP_MS
    retention(store).run(log_ids(store))
    store.now_ms += 100 * DAY_MS
    for_ever = SealSettings(directory=store.log_dir)
    LogRetention(for_ever, lambda: store.now_ms).run(log_ids(store))
    assert store.files() == before


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def lost_seqs(store: SealedStore, **wanted: Any) -> list[tuple[int, int]]:
    """What a reader hears is missing."""
    gaps: list[tuple[int, int]] = []
    store.read(on_gap=lambda *gap: gaps.append(gap), **wanted)
    return gaps


def standing(store: SealedStore) -> dict[tuple[str, int], int]:
    """What the snapshot says stood: the offset of each partition of a group."""
    return {
        (event["group"], row["partition"]): row["offset"]
        for event in store.read()
        if event["kind"] == "offset_snapshot"
        for topic in event["topics"]
        for row in topic["partitions"]
    }


@pytest.mark.parametrize("harm", [damage, Path.unlink])
def test_a_file_that_cannot_be_read_keeps_nothing_from_going_and_is_told_of_for_ever(
    store: SealedStore, harm: Callable[[Path], None]
) -> None:
    first, second = sorted(store.log_dir.glob("dt=*/events-*"))[:2]
    seqs = tuple(map(int, second.name.removesuffix(".jsonl.gz").split("-")[-2:]))
    harm(second)
    (lost,) = retention(store).run(log_ids(store))
    assert (lost.first_seq, lost.last_seq) == seqs
    assert lost.damaged.startswith("is not there" if harm is Path.unlink else "has ")
    aside = second.with_name(f"_broken-{second.name}")
    for name in (first.name, second.name):
        assert name not in store.files()
    # What the days around it say stands; what it alone told is not known.
    assert standing(store)["a", 0] == 200
    assert ("only-on-1", 0) not in standing(store)
    for _ in range(3):
        assert aside.exists() is (harm is damage)
        assert lost_seqs(store) == [seqs]
        assert lost_seqs(store, group_id="only-on-1") == [seqs]
        assert lost_seqs(store, group_id="only-on-0") == []  # the list of its groups is left
        assert lost_seqs(store, after_seq=seqs[1]) == []
        report = verify(store.log_dir, reads_events=True)
        assert report.is_sound
        (note,) = report.notes
        assert f"no snapshot has events {seqs[0]} to {seqs[1]}" in note
        assert (f"kept as {aside.parent.name}/{aside.name}" in note) is (harm is damage)
        store.now_ms += DAY_MS
        assert retention(store).run(log_ids(store)) == []


def test_a_file_that_is_put_back_too_late_is_put_aside_again(store: SealedStore) -> None:
    first = min(store.log_dir.glob("dt=*/events-*"))
    whole = first.read_bytes()
    damage(first)
    retention(store).run(log_ids(store))
    first.write_bytes(whole)
    assert len(lost_seqs(store)) == 1
    assert verify(store.log_dir).is_sound
    retention(store).run(log_ids(store))
    assert not first.exists()
    assert first.with_name(f"_broken-{first.name}").read_bytes() == whole


def test_events_that_no_file_holds_are_told_of_when_their_day_goes(store: SealedStore) -> None:
    """A file was deleted, and so was the manifest: only the numbers tell that it was there."""
    store.now_ms += DAY_MS
    first, second = sorted(store.log_dir.glob("dt=*/events-*"))[:2]
    seqs = lost_seqs(store)
    first.unlink()
    (store.log_dir / MANIFEST).unlink()
    (lost,) = retention(store).run(log_ids(store))
    last = int(first.name.removesuffix(".jsonl.gz").split("-")[-1])
    assert (lost.first_seq, lost.last_seq, lost.damaged) == (1, last, "is in no file")
    assert seqs == []
    assert lost_seqs(store) == [(1, last)]
    assert second.name not in store.files()


def test_a_segment_whose_line_was_lost_is_in_the_snapshot(store: SealedStore) -> None:
    (store.log_dir / MANIFEST).unlink()
    assert retention(store).run(log_ids(store)) == []
    assert standing(store)["only-on-0", 1] == 0
    assert lost_seqs(store) == []


def test_a_snapshot_that_cannot_be_read_loses_what_it_stood_for(store: SealedStore) -> None:
    retention(store).run(log_ids(store))
    (snapshot,) = (path for path in store.log_dir.glob("dt=*/events-*") if "." in path.name[:-9])
    through = int(snapshot.name.removesuffix(".jsonl.gz").split("-")[-1])
    damage(snapshot)
    store.now_ms += DAY_MS
    (lost,) = retention(store).run(log_ids(store))
    assert lost.file.endswith(snapshot.name)
    assert ("only-on-0", 1) not in standing(store)
    assert lost_seqs(store) == [(1, through)]


def test_what_a_newer_version_wrote_stays(store: SealedStore) -> None:
    lines = (
        (store.log_dir / MANIFEST).read_text().replace('"schema_version":2', '"schema_version":99')
    )
    (store.log_dir / MANIFEST).write_text(lines)
    before = store.files()
    with pytest.raises(SegmentError, match="was written by a newer groupkeeper"):
        retention(store).run(log_ids(store))
    assert store.files() == before


def test_the_manifest_keeps_what_was_lost_when_it_is_written_anew(
    store: SealedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(min(store.log_dir.glob("dt=*/events-*")))
    retention(store).run(log_ids(store))
    monkeypatch.setattr("groupkeeper.storage.event_log.manifest.REWRITE_LINES", 1)
    store.now_ms += DAY_MS
    retention(store).run(log_ids(store))
    manifest = read_manifest(store.log_dir)
    assert manifest.lines == len(manifest.segments) + len(manifest.damaged)
    assert len(lost_seqs(store)) == 1


async def test_a_store_says_what_its_retention_could_not_read(store: SealedStore) -> None:
    first = min(store.log_dir.glob("dt=*/events-*"))
    damage(first)
    store.settings = SealSettings(directory=store.log_dir, retention_ms=KEEP_MS)
    with capture_logs() as logs:
        owner = await store.owner()
        await until(lambda: any(line["event"] == "segment_lost_by_retention" for line in logs))
        assert owner.storage.stats()["segments_damaged"] == 1
        await owner.storage.close()
    (said,) = (line for line in logs if line["event"] == "segment_lost_by_retention")
    assert said["log_level"] == "error"
    assert said["file"].endswith(first.name)
    assert said["problem"].startswith("has ")
    assert (said["first_seq"], said["last_seq"]) == lost_seqs(store)[0]


def test_a_clock_that_was_ahead_or_is_set_back_does_not_stop_retention(store: SealedStore) -> None:
    now_ms = store.now_ms
    keeper = retention(store)
    store.now_ms = NOON_MS
    assert keeper.run(log_ids(store)) == []
    store.now_ms = NOON_MS - 400 * DAY_MS
    keeper.run(log_ids(store))
    before = store.files()
    store.now_ms = now_ms
    keeper.run(log_ids(store))
    assert store.files() != before


async def test_what_was_written_when_the_clock_was_ahead_goes_with_what_came_after(
    tmp_path: Path,
) -> None:
    store = SealedStore(tmp_path)
    store.now_ms = NOON_MS + 4_000 * DAY_MS
    owner = await store.owner()
    await store.append(owner, 0, [commit("early", 1)])
    store.now_ms = NOON_MS
    for _ in range(5):
        await store.append(owner, 0, [commit("a", 2)])
        store.now_ms += DAY_MS
    await owner.storage.close()
    owner = await store.owner()  # rows go at the next start
    await until(lambda: store.live_seqs() == [7])
    await owner.storage.close()
    retention(store).run(log_ids(store))
    assert {name.day for name in segment_names(store.log_dir)} == {
        f"2023-11-{day}" for day in (17, 18, 19)
    }
    assert standing(store)["early", 0] == 1
    assert lost_seqs(store) == []


async def test_what_an_older_copy_did_not_know_is_in_no_snapshot(tmp_path: Path) -> None:
    store = SealedStore(tmp_path / "store")
    store.path.parent.mkdir()
    owner = await store.owner()
    await store.append(owner, 0, [commit("known", 1), commit("both", 1)])
    await owner.storage.close()
    copy = store.image(tmp_path / "copy")
    owner = await store.owner()
    await store.append(owner, 0, [commit("unknown", 2), commit("both", 2)])
    await store.append(owner, 0, [commit("unknown", 3)])
    await owner.storage.close()
    shutil.rmtree(copy.log_dir)
    shutil.copytree(store.log_dir, copy.log_dir)
    for _ in range(5):
        copy.now_ms += DAY_MS
        owner = await copy.owner()
        await copy.append(owner, 0, [commit("later", 4)])
        await owner.storage.close()
    truth = [event["seq"] for event in copy.read()]
    assert truth == list(range(1, 13)), "each of five starts began a log"
    copy.now_ms -= 2 * DAY_MS
    for _ in range(3):
        retention(copy).run(log_ids(copy))
        assert standing(copy)["known", 0] == standing(copy)["both", 0] == 1
        assert ("unknown", 0) not in standing(copy)
        left = [event["seq"] for event in copy.read() if event["kind"] != "offset_snapshot"]
        assert left == truth[-len(left) :]
        assert lost_seqs(copy) == []
        report = verify(copy.log_dir, reads_events=True)
        assert report.is_sound, [(log.log_id, log.gaps, log.missing) for log in report.logs]
        copy.now_ms += DAY_MS


def test_another_stores_days_are_left_alone(store: SealedStore) -> None:
    before = store.files()
    retention(store).run({"someone-else"})
    assert store.files() == before


@pytest.mark.parametrize("max_offsets", [1, 3, 5])
def test_a_snapshot_in_several_passes_is_the_same(store: SealedStore, max_offsets: int) -> None:
    retention(store, max_offsets).run(log_ids(store))
    narrow = [e for e in store.read() if e["kind"] == "offset_snapshot"]
    going = [e for e in store.appended if e["seq"] <= narrow[-1]["seq"]]
    offsets = OffsetsAsOf()
    for event in going:
        offsets.apply(event)
    log = parse_snapshot_log(narrow[0]["log_id"])
    assert log is not None
    whole = list(offsets.events(log, narrow[0]["ts_ms"], narrow[0]["seq"]))
    assert sorted(e["group"] for e in narrow) == [e["group"] for e in whole]
    for event in narrow:
        (same,) = [e for e in whole if e["group"] == event["group"]]
        assert event == {**same, "seq": event["seq"]}


async def test_a_kill_between_any_two_steps_loses_and_doubles_nothing(
    store: SealedStore, tmp_path: Path
) -> None:
    moments = [NOON_MS + day * DAY_MS for day in (2, 3, 4, 5)]
    for step in ("written", "renamed", "directory_synced", "snapshot_listed", "removal_listed"):
        image = store.image(tmp_path / step)

        def crash(done: str, step: str = step) -> None:
            if done == step:
                raise Crash(step)

        image.at_step = crash
        with pytest.raises(Crash):
            retention(image).run(log_ids(store))
        image.at_step = lambda done: None
        for attempt in ("after the crash", "after the start", "after the next run"):
            left = image.read()
            for moment in moments:
                assert as_of(left, moment) == as_of(store.appended, moment), (step, attempt)
            identities = [(event["log_id"], event["seq"]) for event in left]
            assert len(identities) == len(set(identities)), (step, attempt)
            assert verify(image.log_dir).is_sound, (step, attempt)
            if attempt == "after the crash":
                await (await image.owner()).storage.close()
            else:
                retention(image).run(log_ids(store))
        manifest = read_manifest(image.log_dir)
        assert set(manifest.segments) == {str(name) for name in segment_names(image.log_dir)}
        snapshots = [s for s in manifest.segments.values() if parse_snapshot_log(s.log_id)]
        assert len(snapshots) == 1, step


def test_a_snapshot_log_is_told_from_the_log_of_a_store() -> None:
    assert str(SnapshotLog("abc", 12)) == "abc.12"
    assert parse_snapshot_log("abc.12") == SnapshotLog("abc", 12)
    assert parse_snapshot_log("abc") is None
    assert parse_snapshot_log("abc.d") is None


async def test_a_store_lets_its_days_go_by_itself(tmp_path: Path) -> None:
    store = SealedStore(tmp_path, retention_ms=KEEP_MS)
    await five_days(store)
    last_seq = store.appended[-1]["seq"]
    owner = await store.owner()
    await store.append(owner, 0, [commit("a", 999)])
    moments = [NOON_MS + day * DAY_MS for day in (3, 4, 5)]
    await until(lambda: any("." in name.log_id for name in segment_names(store.log_dir)))
    await until(lambda: owner.storage.stats()["sealed_seq"] >= last_seq)
    for moment in moments:
        assert as_of(store.read(), moment) == as_of(store.appended, moment)
    await owner.storage.close()
    assert verify(store.log_dir, reads_events=True).is_sound
    again = await store.owner()
    assert again.model.keys == owner.model.keys
    await again.storage.close()


async def test_a_snapshot_that_stands_for_the_newest_row_is_read_whole(tmp_path: Path) -> None:
    """An idle store: its last day goes, and the row that is never deleted is of that day."""
    store = SealedStore(tmp_path, retention_ms=KEEP_MS)
    owner = await store.owner()
    for group in ("billing", "reports", "billing"):
        await store.append(owner, 0, [commit(group, 100, partitions=1)])
    await owner.storage.close()
    owner = await store.owner()
    await until(lambda: store.live_seqs() == [3])
    store.now_ms += 5 * DAY_MS
    await until(lambda: "removed" in store.steps)
    await owner.storage.close()
    kinds = [(e["group"], e["kind"], e["seq"]) for e in store.read()]
    assert kinds == [("billing", "offset_snapshot", 2), ("reports", "offset_snapshot", 3)]
    assert [e["kind"] for e in store.read(group_id="reports")] == ["offset_snapshot"]
    assert as_of(store.read(), store.now_ms) == as_of(store.appended, store.now_ms)
    assert [event["seq"] for event in store.read(after_seq=2)] == [3]
    # The row that it stands for is not sealed again, and what comes behind it is.
    owner = await store.owner()
    await store.append(owner, 0, [commit("billing", 200, partitions=1)])
    await owner.storage.close()
    assert [name.rpartition(".3-")[2] for name in store.files() if ".3-" in name] == [
        "2-3.jsonl.gz"
    ]
    assert [name.endswith("-4-5.jsonl.gz") for name in store.files()].count(True) == 1
    assert len(store.files()) == 2
    assert [event["seq"] for event in store.read()] == [2, 3, 4, 5]
    assert verify(store.log_dir, reads_events=True).is_sound
