"""The horizon: what is before it goes, and what it came to does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.commit_log import entries_of
from coordinator.core.events import (
    GroupCreated,
    LostPartition,
    LostTopic,
    OffsetDeleted,
    OffsetExpired,
)
from coordinator.core.records import OffsetsRemoved
from storage.log_check import verify
from storage.log_retention import LogRetention
from storage.manifest import read_manifest
from storage.sealing import SealSettings
from storage.segment_lines import EventDict
from storage.segments import SegmentError, segment_names
from storage.snapshots import MAX_PASS_OFFSETS, OffsetsAsOf, SnapshotLog, parse_snapshot_log
from tests.helpers.records import TOPIC_ID, commit
from tests.helpers.sealed_store import DAY_MS, NOON_MS, Crash, SealedStore, until
from tests.helpers.storage_owner import Owner

KEEP_MS = 2 * DAY_MS


async def five_days(store: SealedStore) -> Owner:
    """Commits, an expiry and a deletion over five days, each day a segment."""
    store.fold_after = 0
    owner = await store.owner()
    for day in range(5):
        for group in ("a", "b", f"only-on-{day}"):
            await store.append(owner, 0, [commit(group, 100 * day, partitions=2)])
        if day == 0:
            gone = LostPartition(0, 0, 0, "", 1_700_000_000_000)
            lost = [LostTopic("orders", TOPIC_ID, [gone])]
            removed = OffsetsRemoved("only-on-0", [("orders", 0)])
            await store.append(owner, 0, [removed], [OffsetExpired(group="only-on-0", topics=lost)])
        if day == 1:
            gone = LostPartition(1, 100, 0, "", 1_700_000_000_100)
            lost = [LostTopic("orders", TOPIC_ID, [gone])]
            removed = OffsetsRemoved("b", [("orders", 1)])
            event = OffsetDeleted(group="b", topics=lost, reason="deleted")
            await store.append(owner, 0, [removed], [event])
        store.now_ms += DAY_MS
    return owner


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
    """A store of five days, closed."""
    store = SealedStore(tmp_path / "store")
    store.path.parent.mkdir()
    owner = await five_days(store)
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
        await store.append(owner, 0, events=[GroupCreated(group="g"), GroupCreated(group="h")])
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


def test_days_of_which_a_file_is_not_what_was_sealed_stay(store: SealedStore) -> None:
    before = store.files()
    first, second = sorted(store.log_dir.glob("dt=*/events-*"))[:2]
    was = second.read_bytes()
    second.write_bytes(first.read_bytes())
    with pytest.raises(SegmentError, match=f"{second.name}: (has|its checksum)"):
        retention(store).run(log_ids(store))
    assert store.files() == before
    second.write_bytes(was)
    retention(store).run(log_ids(store))
    assert second.name not in store.files()


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
    owner = await five_days(store)
    await store.append(owner, 0, [commit("a", 999)])
    moments = [NOON_MS + day * DAY_MS for day in (3, 4, 5)]
    await until(lambda: any("." in name.log_id for name in segment_names(store.log_dir)))
    await until(lambda: owner.storage.stats()["sealed_seq"] >= store.appended[-2]["seq"])
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
    assert [name.endswith("-4-4.jsonl.gz") for name in store.files()].count(True) == 1
    assert len(store.files()) == 2
    assert [event["seq"] for event in store.read()] == [2, 3, 4]
    assert verify(store.log_dir, reads_events=True).is_sound
