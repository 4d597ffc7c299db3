"""Offsets of an earlier moment in plain Python: from segments, against what was answered then."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from groupkeeper.coordinator.cli import offsets
from groupkeeper.coordinator.cli.extras import BRINGS
from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.cli.pipeline.restoring import (
    History,
    Removal,
    _found,
    standing_in_store,
)
from groupkeeper.coordinator.cli.store_place import StorePlace
from groupkeeper.coordinator.core import events as core
from groupkeeper.pipeline.restore.plan import Committed, Partition
from groupkeeper.pipeline.restore.standing import (
    GroupHistory,
    IncompleteHistory,
    RestoreError,
    Standing,
)
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.event_log.manifest import MANIFEST, add, read_manifest
from groupkeeper.storage.event_log.sealing.segment_writer import write_segments
from groupkeeper.storage.event_log.sealing.snapshots import OffsetsAsOf
from groupkeeper.storage.event_log.snapshot_logs import SnapshotLog
from groupkeeper.storage.segment_lines import EventDict
from tests.helpers.core.records import commit as committed
from tests.helpers.storage.storage_owner import Owner
from tests.pipeline.events import DAY_MS, at, commit
from tests.pipeline.histories import a_history


def seal(log: Path, events: list[EventDict], segment_events: int = 10**9) -> None:
    for start in range(0, len(events), segment_events):
        write_segments(log, events[start : start + segment_events])


def as_of(log: Path, as_of_ms: int, group: str = "g", **changes: object) -> Standing:
    asked = History(group, as_of_ms, (None, log, None), [], accepts_gaps=False)
    return offsets._of_log(log, asked._replace(**changes))


def numbers(found: Standing) -> dict[int, int]:
    return {key.partition: value.offset for key, value in found.offsets.items()}


@pytest.mark.parametrize("seed", range(12))
def test_offsets_at_a_moment_are_those_that_the_coordinator_answered(
    tmp_path: Path, seed: int
) -> None:
    history = a_history(seed)
    seal(tmp_path, history.events, 7)
    assert history.snapshots
    for snapshot in history.snapshots:
        groups = {group for group, *_ in snapshot.offsets}
        for group in groups:
            found = as_of(tmp_path, snapshot.ts_ms, group)
            expected = {
                Partition(topic, number): Committed(*value)
                for (of, topic, number), value in snapshot.offsets.items()
                if of == group
            }
            assert found.offsets == expected
            assert found.last_ts_ms == history.events[-1]["ts_ms"]


def ten(log_id: str = "log", first: int = 1) -> list[EventDict]:
    return [
        commit(seq, [("orders", 0, seq, seq - 1)], log_id=log_id)
        for seq in range(first, first + 10)
    ]


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_moment_after_a_gap_is_refused_and_one_before_it_is_not(
    tmp_path: Path, is_listed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    seal(tmp_path, [*ten()[:3]])
    seal(tmp_path, [*ten()[7:]])
    if not is_listed:
        (tmp_path / MANIFEST).unlink()
    for moment_ms in (3000, 9000):  # who knows when the fourth was
        with pytest.raises(IncompleteHistory, match="events 4 to 7 of log log are missing"):
            as_of(tmp_path, moment_ms)
    assert numbers(as_of(tmp_path, 2500)) == {0: 2}
    found = as_of(tmp_path, 9000, accepts_gaps=True)
    assert (numbers(found), found.named) == ({0: 9}, {Partition("orders", 0)})  # the others stay
    assert "planned without them (--accept-gaps)" in capsys.readouterr().err


async def test_no_plan_is_made_of_a_store_without_files_that_has_deleted_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store.db"
    storage = SqliteOffsetStorage(path, fold_after=0)
    owner = await Owner(storage).start()
    for offset in range(4):
        await owner.append(0, [committed("g", offset)])
    await owner.fold_all()
    source = storage.event_source()
    log_id, _ = await source.head()
    place = StorePlace(path)
    asked = History("g", 10**15, (place, None, None), [], accepts_gaps=False)
    assert standing_in_store(place, asked).offsets
    await source.note_sealed(3, {"a"}, ())
    await source.trim(10**9)
    # a load may still need the third: that depends on how far the fold is
    missing = f"events 1 to [23] of log {log_id} are missing"
    with pytest.raises(IncompleteHistory, match=f"{missing}.*without segments.*--accept-gaps"):
        standing_in_store(place, asked)
    assert standing_in_store(place, asked._replace(accepts_gaps=True)).offsets
    assert re.search(f"{missing}; planned without them", capsys.readouterr().err)
    await storage.close()


def test_a_damaged_segment_is_missing_only_for_moments_after_it(tmp_path: Path) -> None:
    seal(tmp_path, ten(), 5)
    (damaged,) = tmp_path.glob("dt=*/events-log-6-10.*")
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert numbers(as_of(tmp_path, 5500)) == {0: 5}
    with pytest.raises(IncompleteHistory, match="events 6 to 10 of log log are missing"):
        as_of(tmp_path, 7000)


def test_a_snapshot_stands_for_what_retention_deleted(tmp_path: Path) -> None:
    stood = OffsetsAsOf()
    for event in ten()[:5]:
        stood.apply(event)
    seal(tmp_path, list(stood.events(SnapshotLog("log", 5), 5000, 5)))
    seal(tmp_path, ten()[5:])
    assert numbers(as_of(tmp_path, 5500)) == {0: 5}
    assert numbers(as_of(tmp_path, 8500)) == {0: 8}
    with pytest.raises(RestoreError, match=r"older than log\.retention_minutes, and deleted"):
        as_of(tmp_path, 3000)


def test_events_of_a_replaced_store_do_not_count(tmp_path: Path) -> None:
    seal(tmp_path, ten())
    begin = at(
        6,
        core.LogStarted(reason="put_back", previous_log_id="log", previous_seq=5),
        20_000,
        log_id="new",
    )
    seal(tmp_path, [begin, commit(7, [("orders", 1, 70)], log_id="new", ts_ms=21_000)])
    assert numbers(as_of(tmp_path, 30_000)) == {0: 5, 1: 70}


def test_of_two_stores_the_one_that_the_group_changed_in_last_counts_and_the_other_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seal(tmp_path, ten("one"))
    seal(tmp_path, [commit(1, [("orders", 3, 33)], log_id="two", ts_ms=DAY_MS)])
    before, after = as_of(tmp_path, 11_000), as_of(tmp_path, DAY_MS)
    assert (numbers(before), before.other_stores) == ({0: 10}, 0)
    assert (numbers(after), after.other_stores) == ({3: 33}, 1)
    assert (before.named, after.named) == (None, {Partition("orders", 3)})  # the others stay
    asked = History("g", DAY_MS, (None, tmp_path, None), [], accepts_gaps=False)
    assert _found(asked, lambda _: after) == after
    assert "1 more stores in" in capsys.readouterr().err


def of_store(log: Path, store: str, events: list[EventDict]) -> None:
    """Seal events as the log of a store with this name."""
    before = {each.file for each in read_manifest(log).segments.values()}
    seal(log, events)
    named = [
        replace(each, store=store)
        for each in read_manifest(log).segments.values()
        if each.file not in before
    ]
    add(log, named)


def test_the_nodes_of_a_store_are_one_history_in_the_order_of_their_leases(tmp_path: Path) -> None:
    """The clock of the second node is behind."""
    of_store(tmp_path, "one/1", [commit(n, [("orders", 0, n), ("orders", 1, n)]) for n in (1, 2)])
    later = commit(1, [("orders", 0, 30)], log_id="two", ts_ms=1500, lease_epoch=2)
    of_store(tmp_path, "one/2", [later])
    found = as_of(tmp_path, DAY_MS)
    assert numbers(found) == {0: 30, 1: 2}
    assert (found.store, found.other_stores, found.named) == ("log", 0, None)


def test_a_snapshot_of_one_node_in_files_decides_nothing_about_another_node(tmp_path: Path) -> None:
    told = snapshot(5, 3000, commit(1, [("orders", 0, 1), ("orders", 1, 1)]))
    of_store(tmp_path, "one/1", [told])
    older = commit(1, [("orders", 0, 2)], log_id="two", ts_ms=2500, lease_epoch=4)
    of_store(tmp_path, "one/2", [older])
    found = as_of(tmp_path, 9000)
    assert numbers(found) == {1: 1}
    assert found.unknown == {Partition("orders", 0)}


def test_a_group_without_offsets_is_told_why(tmp_path: Path) -> None:
    seal(tmp_path, ten())
    with pytest.raises(RestoreError, match="the log has no event of group 'x'"):
        as_of(tmp_path, 5000, "x")
    with pytest.raises(RestoreError, match=r"had no committed offset at 1970-01-01T00:00:00\.500Z"):
        as_of(tmp_path, 500)


def test_the_first_change_of_an_import_may_have_had_others_before_it() -> None:
    def imported(seq: int, partition: int, **row: object) -> EventDict:
        event = commit(seq, [("orders", partition, seq)])
        event["topics"][0]["partitions"][0] |= {"previous_offset": None, **row}
        return event

    history = GroupHistory("g", 2500)
    for event in (imported(1, 0), imported(3, 1), imported(4, 0), imported(2, 2)):
        history.add("store", event)
    found = history.standing(lambda _: 4000)
    assert numbers(found) == {0: 1, 2: 2}
    assert found.unknown == {Partition("orders", 1), Partition("orders", 0)}


def snapshot(epoch: int, ts_ms: int, *events: EventDict) -> EventDict:
    """The snapshot of these events, the last of which has this epoch."""
    stood = OffsetsAsOf()
    for each in events:
        stood.apply(each)
    (found,) = stood.events(SnapshotLog("log", len(events)), ts_ms, len(events))
    return found | {"lease_epoch": epoch}


def test_a_snapshot_of_one_node_decides_nothing_that_another_node_may_have_changed_later() -> None:
    first = snapshot(
        5,
        3000,
        commit(1, [("orders", 0, 1), ("orders", 1, 1), ("orders", 2, 1)]),
        commit(2, [("orders", 3, 1)], lease_epoch=5),
    )
    history = GroupHistory("g", 9000)
    history.add("store", first, "1")
    history.add("store", commit(1, [("orders", 0, 2)], ts_ms=2500, lease_epoch=4), "2")
    history.add("store", commit(2, [("orders", 1, 2)], ts_ms=6000, lease_epoch=6), "2")
    history.add("store", commit(3, [("orders", 3, 3)], ts_ms=7000, lease_epoch=7), "1")
    history.add("store", commit(3, [("orders", 3, 2)], ts_ms=6000, lease_epoch=6), "2")
    found = history.standing(lambda _: 9000)
    assert numbers(found) == {1: 2, 2: 1, 3: 3}
    assert found.unknown == {Partition("orders", 0)}


def test_what_snapshots_of_two_nodes_name_is_unknown_as_is_what_a_later_one_names() -> None:
    before = commit(1, [("orders", 0, 1), ("orders", 1, 1)])
    history = GroupHistory("g", 4000)
    history.add("store", snapshot(3, 2000, before), "1")
    history.add("store", snapshot(4, 3000, commit(1, [("orders", 0, 2)])), "2")
    history.add("store", snapshot(9, 5000, commit(1, [("orders", 7, 2)])), "3")
    found = history.standing(lambda _: 9000)
    assert numbers(found) == {1: 1}
    assert found.unknown == {Partition("orders", 0), Partition("orders", 7)}


def test_an_offset_that_a_node_deleted_before_its_snapshot_may_not_come_back() -> None:
    lost = core.LostTopic("orders", "", [core.LostPartition(0, 1, -1, "", 5)])
    removed = at(2, core.OffsetDeleted(group_id="g", reason="deleted", topics=[lost]))
    first = snapshot(5, 3000, commit(1, [("orders", 0, 1)]), removed)
    assert first["topics"] == []
    history = GroupHistory("g", 9000)
    history.add("store", first, "1")
    history.add("store", commit(1, [("orders", 0, 9), ("orders", 1, 8)], lease_epoch=4), "2")
    found = history.standing(lambda _: 9000)
    assert numbers(found) == {1: 8}
    assert found.unknown == {Partition("orders", 0)}


def test_a_plan_keeps_what_no_event_names_if_events_are_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    p = [Partition("orders", number) for number in range(4)]
    asked = History("g", 9000, (None, None, None), [], accepts_gaps=False)
    history = GroupHistory("g", 9000)
    history.add("store", commit(5, [("orders", 0, 5)]))
    lost = core.LostTopic("orders", "", [core.LostPartition(1, 1, -1, "", 5)])
    history.add("store", at(6, core.OffsetExpired(group_id="g", topics=[lost])))
    history.add("store", commit(10, [("orders", 2, 7)]))
    whole = Removal(asked, history.standing(lambda _: 0))
    assert [each for each in p if whole(each)] == p
    whole.report()
    assert capsys.readouterr().err == ""
    history.lacks_events = True
    found = history.standing(lambda _: 0)
    assert found.named == {p[0], p[1]}
    removal = Removal(asked, found)
    assert [each for each in p if removal(each)] == [p[0], p[1]]
    removal.report()
    assert "the offsets of orders-2, orders-3 at that moment are unknown" in capsys.readouterr().err
    of_topic = Removal(asked._replace(topics=["clicks"]), found)
    assert not of_topic(p[3])
    assert not of_topic.left
    early = GroupHistory("g", 4000)
    early.lacks_events = True
    early.add("store", commit(5, [("orders", 0, 5)]))
    with pytest.raises(RestoreError, match=r"are unknown: its events before .* deleted"):
        early.standing(lambda _: 0)


def test_of_a_partition_that_a_request_names_twice_the_later_value_counts() -> None:
    history = GroupHistory("g", 5000)
    history.add("store", commit(2, [("orders", 0, 7), ("clicks", 0, 1), ("orders", 0, 8)]))
    history.add("store", commit(1, [("orders", 0, 5)]))  # in any order
    assert history.standing(lambda _: 0).offsets[Partition("orders", 0)].offset == 8


def test_a_history_and_its_package_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["offsets", "restore", "--group", "g", "--as-of", "1s", "--server", "127.0.0.1:1"]
    told = CliRunner().invoke(app, wanted)
    assert (told.exit_code, told.stderr) == (
        2,
        "groupkeeper: name the history: --store FILE or --log-dir DIR\n",
    )
    monkeypatch.setitem(BRINGS, "admin", ("no_such_package",))
    told = CliRunner().invoke(app, wanted)
    assert told.exit_code == 2
    assert "no_such_package: not installed" in told.stderr
