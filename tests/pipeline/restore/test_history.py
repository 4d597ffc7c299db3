"""What a group had at a moment, out of sealed segments, however many logs tell of it."""

from __future__ import annotations

import re
import shutil
from datetime import date, timedelta

import pytest
from msgspec.structs import replace

from groupkeeper.coordinator.cli.pipeline.plan_view import read_plan
from groupkeeper.coordinator.core.records import (
    CommittedTopic,
    OffsetsCommitted,
)
from groupkeeper.pipeline.log.segment_files import ABSENT
from groupkeeper.pipeline.restore.from_day import group_from_day
from groupkeeper.pipeline.restore.plan import Committed, Partition
from groupkeeper.pipeline.restore.restore import (
    coverage_of_lake,
    events_of_lake,
    events_of_log,
    group_as_of,
    require_whole,
)
from groupkeeper.pipeline.restore.sealed import coverage_of_log
from groupkeeper.pipeline.restore.standing import IncompleteHistory, RestoreError
from groupkeeper.storage.codec.events import Stamp, event_dict
from groupkeeper.storage.event_log.manifest import MANIFEST, add, read_manifest
from groupkeeper.storage.event_log.sealing.retention import LogRetention
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.snapshots import OffsetsAsOf
from groupkeeper.storage.event_log.snapshot_logs import SnapshotLog
from tests.helpers.core.records import commit
from tests.helpers.storage.sealed_store import DAY_MS, SealedStore, until
from tests.pipeline.restore.conftest import command, open_cluster


def a_commit(log_id, seq, ts_ms, offsets, group="g"):
    partitions = [(p, offset, -1, -1, "") for p, offset in offsets.items()]
    topics = [CommittedTopic("orders", "", partitions)]
    commit = OffsetsCommitted(group, -1, "", None, "c", "/h", "User:A", ts_ms, -1, topics)
    return event_dict(Stamp(log_id, ts_ms, ts_ms), seq, 1, 1, commit)


async def four_days(folder, group):
    """A store with a commit on each of four days, those before the last of them sealed."""
    store = SealedStore(folder)
    store.path.parent.mkdir()
    owner = await store.owner()
    for number in range(4):
        await store.append(owner, 0, [commit(group, number, partitions=number + 1)])
        store.now_ms += DAY_MS
    await until(lambda: len(store.live_seqs()) == 1)
    await owner.storage.close()
    return store


def told(found):
    return {partition.partition: value.offset for partition, value in found.offsets.items()}


def test_the_logs_of_one_store_are_one_history_whatever_the_clock_did(site):
    """A clock that is set back begins a new log, whose seq goes on."""
    site.seal([a_commit("first", 1, 100_000, {0: 5, 1: 5}), a_commit("first", 2, 100_001, {0: 6})])
    site.seal([a_commit("second", 3, 50_000, {1: 7})])
    found = group_as_of(events_of_log(site.spark, site.log_dir), "g", 200_000)
    assert told(found) == {0: 6, 1: 7}


def test_of_two_stores_the_one_that_the_group_changed_in_last_counts(site):
    site.seal([a_commit("imported", 1, 1000, {0: 5, 1: 5})])
    site.seal([a_commit("here", 1, 2000, {0: 8})])
    events = events_of_log(site.spark, site.log_dir).cache()
    before, after = (group_as_of(events, "g", moment) for moment in (1500, 2500))
    assert (told(before), before.named) == ({0: 5, 1: 5}, None)
    assert (told(after), after.named) == ({0: 8}, {Partition("orders", 0)}), "1 stays as it is"
    events.unpersist()


def of_node(site, node, events):
    """Seal events as those of a node of one store."""
    files = {str(path.relative_to(site.log_dir)) for path in site.seal(events)}
    listed = read_manifest(site.log_dir).segments
    add(site.log_dir, [replace(listed[file], store=f"one/{node}") for file in files])


@pytest.mark.parametrize("source", ["segments", "tables"])
def test_the_nodes_of_a_store_are_one_history_in_the_order_of_their_leases(site, source):
    """The clock of the second node is behind, and a snapshot of the first one hides one order."""
    stood = OffsetsAsOf()
    stood.apply(a_commit("log", 1, AT_MS, {0: 1, 1: 1, 2: 1}))
    (told_by_one,) = stood.events(SnapshotLog("log", 1), AT_MS + 3, 1)
    of_node(site, 1, [told_by_one | {"lease_epoch": 5}])
    older = a_commit("two", 1, AT_MS, {2: 2}) | {"lease_epoch": 4}
    later = a_commit("two", 2, AT_MS + 1, {0: 30}) | {"lease_epoch": 6}
    of_node(site, 2, [older, later])
    if source == "tables":
        assert site.run().held_back == {}
        coverage = coverage_of_lake(site.spark, site.lake.root)
        events = events_of_lake(site.spark, site.lake.root)
        assert group_from_day(site.spark, site.lake.root, "g", AT_MS + 5) is None
    else:
        coverage, events = coverage_of_log(site.log_dir), events_of_log(site.spark, site.log_dir)
    found = group_as_of(events, "g", AT_MS + 5, chains=coverage.chains())
    assert told(found) == {0: 30, 1: 1}
    assert found.unknown == {Partition("orders", 2)}
    assert found.other_stores == 0


def test_a_folder_without_segments_is_told(site):
    with pytest.raises(RestoreError, match=r"no sealed segment.*log\.dir"):
        events_of_log(site.spark, site.log_dir)


def test_a_history_that_ends_before_the_moment_is_used_and_said(site, daemon, group, tmp_path):
    site.seal([a_commit("sealed", 1, 1_700_000_000_000, {0: 5}, group)])
    with open_cluster(daemon.bootstrap) as cluster:
        cluster.commit(group, {Partition("orders", 0): Committed(9)})
        where = ["--log-dir", site.log_dir, "--server", daemon.bootstrap]
        options = ["--out", tmp_path / "plan.json", "--apply"]
        said = command("restore", "--group", group, "--as-of", "1m", *where, *options)
        assert "the history ends at 2023-11-14T22:13:20Z" in said.err
        assert cluster.offsets([group])[group] == {Partition("orders", 0): Committed(5)}


# --- a history that is not whole ------------------------------------------------------------------


AT_MS = 1_700_000_000_000
WHOLE = [a_commit("here", seq, AT_MS + seq, {0: seq, seq % 3: seq}) for seq in range(1, 11)]


def answer(site, as_of_ms):
    coverage = coverage_of_log(site.log_dir)
    events = events_of_log(site.spark, site.log_dir)
    require_whole(events, coverage, as_of_ms, site.log_dir)
    return group_as_of(events, "g", as_of_ms)


def test_a_moment_after_a_gap_is_refused_and_one_before_it_is_not(site):
    site.seal([each for each in WHOLE if not 4 <= each["seq"] <= 7])
    with pytest.raises(IncompleteHistory, match="events 4 to 7 of log here are missing"):
        answer(site, AT_MS + 9)
    with pytest.raises(IncompleteHistory, match="events 4 to 7"):
        answer(site, AT_MS + 3)  # who knows when the fourth was
    assert told(answer(site, AT_MS + 2)) == {0: 2, 1: 1, 2: 2}


def test_a_history_without_its_beginning_is_refused(site):
    site.seal(WHOLE[4:])
    with pytest.raises(IncompleteHistory, match="events 1 to 4 of log here are missing") as told:
        answer(site, AT_MS + 9)
    assert "--accept-gaps" in str(told.value)


@pytest.mark.parametrize("source", ["segments", "tables"])
def test_what_went_by_retention_and_left_nothing_to_keep_is_not_missing(site, source):
    nothing = OffsetsAsOf()
    site.seal(nothing.events(SnapshotLog("here", 4), AT_MS + 4, 4))
    site.seal(WHOLE[4:])
    if source == "tables":
        published = site.run()
        assert (len(published.published), published.held_back) == (1, {})
        coverage = coverage_of_lake(site.spark, site.lake.root)
        events = events_of_lake(site.spark, site.lake.root)
    else:
        coverage, events = coverage_of_log(site.log_dir), events_of_log(site.spark, site.log_dir)
    assert coverage.gaps() == []
    require_whole(events, coverage, AT_MS + 6, site.log_dir)
    assert told(group_as_of(events, "g", AT_MS + 6)) == {0: 6, 2: 5}
    with pytest.raises(RestoreError, match="had no committed offset at"):
        group_as_of(events, "g", AT_MS + 4)


def test_a_file_that_the_manifest_lists_is_missing_though_nothing_comes_after_it(site):
    site.seal(WHOLE[:4])
    (last,) = site.seal(WHOLE[4:])
    last.unlink()
    absent = {str(last.relative_to(site.log_dir)): ABSENT}
    assert coverage_of_log(site.log_dir).gaps() == []
    (gap,) = coverage_of_log(site.log_dir, absent).gaps_as_of({"here": 4})
    assert (gap.first_seq, gap.last_seq) == (5, 10)
    assert coverage_of_log(site.log_dir, absent).gaps_as_of({"here": 3}) == []


def test_a_snapshot_stands_for_the_beginning_but_not_for_what_was_before_it(site):
    at_horizon = OffsetsAsOf()
    for each in WHOLE[:6]:
        at_horizon.apply(each)
    site.seal(at_horizon.events(SnapshotLog("here", 6), AT_MS + 6, 6))
    site.seal(WHOLE[6:])
    assert told(answer(site, AT_MS + 7)) == {0: 7, 1: 7, 2: 5}
    with pytest.raises(RestoreError) as refused:
        answer(site, AT_MS + 5)
    assert str(refused.value) == (
        "the offsets of group 'g' at 2023-11-14T22:13:20.005Z are unknown: its events before "
        "2023-11-14T22:13:20.006Z are older than log.retention_minutes, and deleted. That is the "
        "first moment that can be restored"
    )


def test_before_its_first_change_a_group_had_nothing(site):
    site.seal([a_commit("here", 1, AT_MS, {0: 1}, "other"), a_commit("here", 2, AT_MS + 1, {0: 5})])
    with pytest.raises(RestoreError) as refused:
        answer(site, AT_MS)
    assert str(refused.value) == (
        "group 'g' had no committed offset at 2023-11-14T22:13:20.000Z: its first change in the "
        "log is at 2023-11-14T22:13:20.001Z"
    )


@pytest.mark.parametrize("source", ["--log-dir", "--tables"])
def test_no_plan_is_made_of_a_history_with_a_gap(site, daemon, group, tmp_path, source):
    mine = [each | {"group": group} for each in WHOLE]
    site.seal([*mine[:3], *mine[7:]])
    if source == "--tables":
        site.ingest()
    place = site.log_dir if source == "--log-dir" else site.lake.root
    file = tmp_path / "plan.json"
    asked = ["restore", "--group", group, "--as-of", "1m", source, place]
    asked += ["--server", daemon.bootstrap, "--out", file]
    said = command(*asked, code=1)
    assert (
        f"the history in {place} is incomplete: events 4 to 7 of log here are missing" in said.err
    )
    assert not file.exists()
    accepted = command(*asked, "--accept-gaps")
    assert "3 of 3 partitions change" in accepted.out
    assert "events 4 to 7 of log here are missing; planned without them" in accepted.err


@pytest.mark.parametrize("tool", ["pipeline", "offsets"])
@pytest.mark.parametrize("source", ["--log-dir", "--store"])
async def test_what_the_manifest_lists_and_the_folder_has_not_can_be_done_without(
    daemon, group, spark, tmp_path, source, tool
):
    store = await four_days(tmp_path / "store", group)
    shutil.rmtree(sorted(store.log_dir.glob("dt=*"))[1])
    place = {"--store": store.path, "--log-dir": store.log_dir}[source]
    asked = ["restore", "--group", group, source, place, "--data", "none"]
    asked += ["--server", daemon.bootstrap, "--out", tmp_path / "plan.json", "-o", "json"]
    missing = f"event 2 of log {store.appended[0]['log_id']} is missing"
    if source == "--log-dir":
        log_id = store.appended[0]["log_id"]
        missing += f" (dt=2023-11-16/events-{log_id}-2-2.jsonl.gz is in the manifest and not there)"
    now = ["--as-of", "1m"]
    assert missing in command(*asked, *now, code=1, tool=tool).err
    accepted = command(*asked, *now, "--accept-gaps", tool=tool)
    assert f"{missing}; planned without them" in accepted.err
    # the fourth commit, which names every partition but those that the daemon does not know
    plan = read_plan(tmp_path / "plan.json")
    (planned,) = plan.content.groups
    assert {each.target.offset for each in planned.changes} == {3}
    if source == "--store":
        # the manifest says when the missing one begins: a day after this
        before = ["--as-of", "2023-11-15T13:00:00Z", "--out", tmp_path / "before.json"]
        assert "missing" not in command(*asked, *before, tool=tool).err


@pytest.mark.parametrize("tool", ["pipeline", "offsets"])
def test_a_segment_that_cannot_be_read_is_named(site, daemon, group, tool):
    (path,) = site.seal(each | {"group": group} for each in WHOLE)
    path.write_bytes(path.read_bytes()[:-9])
    asked = ["restore", "--group", group, "--as-of", "1m", "--log-dir", site.log_dir]
    asked += ["--server", daemon.bootstrap]
    listed = command(*asked, code=1, tool=tool).err
    assert f"events 1 to 10 of log here are missing (dt=2023-11-14/{path.name} has " in listed
    assert "has no event of group" in command(*asked, "--accept-gaps", code=4, tool=tool).err
    (site.log_dir / MANIFEST).unlink()
    unlisted = command(*asked, code=1, tool=tool).err
    assert f"missing (dt=2023-11-14/{path.name} is not in the manifest, and " in unlisted


@pytest.mark.parametrize("tool", ["pipeline", "offsets"])
@pytest.mark.parametrize("source", ["--log-dir", "--store"])
async def test_no_plan_is_made_with_a_segment_that_is_not_what_was_sealed(
    daemon, group, spark, tmp_path, source, tool
):
    store = await four_days(tmp_path / "store", group)
    first, second, *_ = sorted(store.log_dir.glob("dt=*/events-*"))
    second.write_bytes(first.read_bytes())  # reads well, and is another one
    place = {"--store": store.path, "--log-dir": store.log_dir}[source]
    asked = ["restore", "--group", group, source, place, "--data", "none", "--as-of", "1m"]
    asked += ["--server", daemon.bootstrap, "--out", tmp_path / "plan.json"]
    said = command(*asked, code=1, tool=tool).err
    assert re.search(rf"{second.name}:? (has \d+ bytes|(has not|its) .*checksum)", said)
    assert not (tmp_path / "plan.json").exists()
    second.unlink()
    assert "planned without them" in command(*asked, "--accept-gaps", tool=tool).err


@pytest.mark.parametrize("tool", ["pipeline", "offsets"])
@pytest.mark.parametrize("source", ["--log-dir", "--store"])
async def test_no_plan_is_made_of_a_snapshot_that_does_not_know_all(
    daemon, group, spark, tmp_path, source, tool
):
    """Retention could not read a day that it let go."""
    store = await four_days(tmp_path / "store", group)
    first = min(store.log_dir.glob("dt=*/events-*"))
    first.write_bytes(b"")
    (log_id,) = {event["log_id"] for event in store.appended}
    settings = SealSettings(directory=store.log_dir, retention_ms=2 * DAY_MS)
    (lost,) = LogRetention(settings, lambda: store.now_ms).run({log_id})
    assert (lost.first_seq, lost.last_seq, first.exists()) == (1, 1, False)
    place = {"--store": store.path, "--log-dir": store.log_dir}[source]
    asked = ["restore", "--group", group, source, place, "--data", "none", "--as-of", "1m"]
    asked += ["--server", daemon.bootstrap, "--out", tmp_path / "plan.json"]
    said = command(*asked, code=1, tool=tool).err
    assert f"event 1 of log {log_id} is missing" in said
    assert not (tmp_path / "plan.json").exists()
    assert "planned without them" in command(*asked, "--accept-gaps", tool=tool).err


async def test_a_segment_after_the_moment_may_be_damaged(daemon, group, spark, tmp_path):
    store = await four_days(tmp_path / "store", group)
    first, *_, last = sorted(store.log_dir.glob("dt=*/events-*"))
    day = date.fromisoformat(first.parent.name.removeprefix("dt="))
    asked = ["restore", "--group", group, "--log-dir", store.log_dir, "--data", "none"]
    asked += ["--as-of", f"{day + timedelta(days=1)}T00:00:00Z", "--server", daemon.bootstrap]
    asked += ["--out", tmp_path / "plan.json"]
    last.write_bytes(last.read_bytes()[:20])
    command(*asked)
    (planned,) = read_plan(tmp_path / "plan.json").content.groups
    assert [each.target.offset for each in planned.changes] == [0]


async def test_no_plan_is_made_of_a_store_whose_files_are_not_there(daemon, group, spark, tmp_path):
    store = SealedStore(tmp_path / "store")
    store.path.parent.mkdir()
    owner = await store.owner()
    for number in range(3):
        await store.append(owner, 0, [commit(group, number)])
        store.now_ms += DAY_MS
    await until(lambda: len(store.live_seqs()) == 1)
    await owner.storage.close()
    file = tmp_path / "plan.json"
    (tmp_path / "empty").mkdir()
    asked = ["restore", "--group", group, "--as-of", "1m", "--store", store.path]
    asked += ["--server", daemon.bootstrap, "--out", file]
    said = command(*asked, "--log-dir", tmp_path / "empty", code=1)
    log_id, below = store.appended[0]["log_id"], store.live_seqs()[0]
    assert f"events 1 to {below - 1} of log {log_id} are missing" in said.err
    assert not file.exists()
    first = sorted(store.log_dir.glob("dt=*"))[0]
    shutil.rmtree(first)
    said = command(*asked, code=1)
    assert f"event 1 of log {log_id} is missing" in said.err
    assert not file.exists()
