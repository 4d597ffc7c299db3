"""What the tables and pages say of days that are not plain: members that a coordinator forgot,
rebalances over midnight, deletions that name nobody, evictions for reasons of their own; and that
days one by one are what they are at once.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from itertools import count

import pytest

from groupkeeper.coordinator.core import events as core
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.pipeline.log.columns import EVENT_SCHEMA
from groupkeeper.pipeline.log.coverage import Coverage
from groupkeeper.pipeline.reports.jobs import REPORTS, write_reports
from groupkeeper.pipeline.reports.report import Scope
from groupkeeper.pipeline.restore.from_day import base_day, group_from_day
from groupkeeper.pipeline.restore.restore import events_of_lake, group_as_of
from groupkeeper.pipeline.tables import silver
from groupkeeper.pipeline.tables.bronze import read_coverage, with_store
from groupkeeper.pipeline.tables.columns import GOLD_SCHEMAS
from groupkeeper.pipeline.tables.pointer import GOLD, HELD_BACK
from groupkeeper.pipeline.tables.rebalances import rebalances
from groupkeeper.pipeline.tables.versions import read_pointer
from groupkeeper.storage.segment_lines import EventDict
from tests.pipeline.conftest import a_site
from tests.pipeline.events import DAY_MS, at, commit, joined
from tests.pipeline.histories import a_history
from tests.pipeline.test_reports import cells, tiles
from tests.pipeline.test_silver_gold import end_of

FIRST, SECOND, FOURTH = (date(1970, 1, day) for day in (1, 2, 4))


def assigned(seq, group, *members, lease_epoch=1, ts_ms=None) -> EventDict:
    held = {member: {"orders": [number]} for number, member in enumerate(members)}
    event = core.Assignment(group_id=group, protocol_type="consumer", partitions=held)
    return at(seq, event, ts_ms, lease_epoch=lease_epoch)


def ended(seq, group, members, duration_ms=0, *, lease_epoch=1, ts_ms=None) -> EventDict:
    event = core.RebalanceEnd(group_id=group, duration_ms=duration_ms, members=members)
    return at(seq, event, ts_ms, lease_epoch=lease_epoch)


def loaded(seq, lease_epoch) -> EventDict:
    event = core.ShardLoaded(groups=1, offsets=0, duration_ms=1)
    return at(seq, event, lease_epoch=lease_epoch)


# --- members that were forgotten ------------------------------------------------------------------


@pytest.fixture(scope="module")
def frame(spark):
    def of(*events: EventDict):
        rows = [{name: event.get(name) for name in EVENT_SCHEMA.names} for event in events]
        return with_store(spark.createDataFrame(rows, EVENT_SCHEMA))

    return of


def test_a_member_that_was_never_stored_ends_with_the_coordinator_that_knew_it(frame):
    events = frame(
        joined(1, "killed", "k0"),
        assigned(2, "killed", "k0"),
        joined(3, "killed", "k1"),  # and the coordinator is killed
        joined(4, "never-stored", "n0"),
        loaded(5, 3),
        # a join that failed to be written, and one more, of a shard that was loaded untold
        joined(6, "resub", "e1", lease_epoch=3),
        joined(7, "resub", "e2", lease_epoch=4),
        assigned(8, "resub", "e2", lease_epoch=4),
        joined(9, "emptied", "m", lease_epoch=4),
        ended(10, "emptied", 0, lease_epoch=5),
        # these live on: stored under their ids, by a static name, or as the last that was heard
        joined(11, "static", "s1", lease_epoch=5, group_instance_id="s"),
        assigned(12, "static", "s", lease_epoch=5),
        joined(13, "kept", "s3", lease_epoch=5, group_instance_id="s", replaces="s2"),
        loaded(14, 6),
        joined(15, "new", "n1", lease_epoch=6),
        ended(16, "new", 1, lease_epoch=6),
    )
    lost = silver.forgotten_members(events, [FIRST]).cache()
    sessions = {
        row["member_id"]: (row["ended_by"], row["ended_ms"])
        for row in silver.member_sessions(events, lost, [FIRST]).collect()
    }
    assert sessions == {
        "k0": (None, None),
        "k1": ("forgotten", 5000),
        "n0": ("forgotten", 5000),
        "e1": ("forgotten", 8000),
        "e2": (None, None),
        "m": ("forgotten", 10_000),
        "s1": (None, None),
        "s2": ("replaced", 13_000),
        "s3": (None, None),
        "n1": (None, None),
    }
    carried = silver.carried_events(events, lost, [FIRST]).where("kind = 'member_join'").collect()
    assert {row["member_id"] for row in carried} == {
        member for member, (by, _) in sessions.items() if by is None
    }


def test_a_shard_carries_no_event_because_another_has_one_of_the_same_seq(spark):
    def joins(group, log_id):
        return at(1, core.MemberJoin(group_id=group, member_id=f"of-{group}"), log_id=log_id)

    left = core.MemberLeave(group_id="g", member_id="of-g")
    told = [joins("g", "x"), at(2, left, log_id="x"), joins("h", "z")]
    rows = [{name: event.get(name) for name in EVENT_SCHEMA.names} for event in told]
    events = with_store(spark.createDataFrame(rows, EVENT_SCHEMA), {"x": "s", "z": "s"}).cache()
    lost = silver.forgotten_members(events, [FIRST]).cache()
    carried = silver.carried_events(events, lost, [FIRST]).collect()
    assert [row["member_id"] for row in carried] == ["of-h"]


def test_a_consumer_group_stores_each_member_when_it_joins(frame):
    kind = {"group_type": GroupType.CONSUMER}
    start = core.RebalanceStart(group_id="g", reason="member_join", members=1, **kind)
    end = core.RebalanceEnd(group_id="g", generation_id=2, duration_ms=5, members=1, **kind)
    events = frame(joined(1, "g", "m", **kind), at(2, start), at(3, end), loaded(4, 6))
    lost = silver.forgotten_members(events, [FIRST]).cache()
    (row,) = silver.member_sessions(events, lost, [FIRST]).collect()
    assert row["ended_by"] is None
    (row,) = rebalances(events, [FIRST]).collect()
    assert (row["reason"], row["duration_ms"]) == ("member_join", 5)
    carried = silver.carried_events(events, lost, [FIRST]).collect()
    assert [row["kind"] for row in carried] == ["member_join"], "its rebalance has ended"


def test_a_member_that_left_is_not_forgotten_by_what_comes_after(frame):
    gone = core.MemberLeave(group_id="g", member_id="m")
    events = frame(joined(1, "g", "m"), at(2, gone), ended(3, "g", 0))
    lost = silver.forgotten_members(events, [FIRST])
    (row,) = silver.member_sessions(events, lost, [FIRST]).collect()
    assert (row["ended_by"], row["ended_ms"]) == ("leave", 2000)


def test_a_member_that_was_carried_on_for_nothing_ends_now(frame):
    """What a version carried that did not know of forgotten members: the join, and what told it."""
    days = [SECOND]
    events = frame(joined(1, "g", "m"), ended(2, "g", 0), joined(3, "h", "n", ts_ms=DAY_MS))
    lost = silver.forgotten_members(events, days)
    assert [row["dt"] for row in lost.collect()] == days
    sessions = silver.member_sessions(events, lost, days).collect()
    carried = silver.carried_events(events, lost, days).where("kind = 'member_join'").collect()
    assert [row["member_id"] for row in (*sessions, *carried)] == ["n", "n"]


# --- two days -------------------------------------------------------------------------------------


def two_days() -> list[EventDict]:
    seq = count(1)
    ops = {"client_id": "ops", "client_host": "/10.0.0.9", "principal": "User:olga"}

    def start(group, reason, ts_ms, member=""):
        event = core.RebalanceStart(group_id=group, reason=reason, member_id=member)
        return at(next(seq), event, ts_ms)

    def evicted(group, member, reason):
        return at(
            next(seq), core.MemberEvicted(group_id=group, member_id=member, reason=reason), 2000
        )

    def gone(group, topic, reason="topic_deleted"):
        lost = core.LostTopic(topic, "", [core.LostPartition(0, 7, -1, "", 5)])
        return at(next(seq), core.OffsetDeleted(group_id=group, reason=reason, topics=[lost]), 3000)

    def topic_deleted(topic, **by):
        return at(next(seq), core.AdminAction(action="delete_topic", target=topic, **by), 3000)

    return [
        joined(next(seq), "full", "a", ts_ms=1000),
        joined(next(seq), "full", "b", ts_ms=1000),
        start("full", "group_max_size", 2000),
        evicted("full", "a", "group_max_size"),
        evicted("full", "b", "a_reason_of_tomorrow"),
        start("full", "a_reason_of_tomorrow", 2000),
        start("full", "member_changed", 2000, "b"),
        commit(
            next(seq),
            [("orders", 0, 21, 11), ("orders", 2, 3, 13)],
            group="moved",
            member="",
            generation=-1,
            ts_ms=3000,
        ),
        topic_deleted("clicks", client_id="earlier"),
        topic_deleted("clicks", **ops),
        gone("moved", "clicks"),
        gone("moved", "dropped-by-config"),
        gone("moved", "clicks", "deleted"),
        topic_deleted("clicks", client_id="later"),
        at(next(seq), end_of((0, 100)), 4000),
        # complete before midnight, assigned after it
        start("late", "member_join", DAY_MS - 3000),
        ended(next(seq), "late", 1, 2477, ts_ms=DAY_MS - 523),
        assigned(next(seq), "late", "m", ts_ms=DAY_MS + 500),
        # of the third day there is no event
        at(next(seq), core.GroupCreated(group_id="new"), 3 * DAY_MS + 1000),
    ]


@pytest.fixture(scope="module")
def told(spark, tmp_path_factory):
    site = a_site(spark, tmp_path_factory.mktemp("hard"))
    site.seal(two_days())
    assert site.run().published == [FIRST, SECOND, FOURTH]
    return site


@pytest.fixture(scope="module")
def pages(told, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    write_reports(Scope(told.spark, told.lake), REPORTS, folder, lambda _: None)
    return folder


def test_the_time_of_a_rebalance_counts_on_the_day_on_which_it_was_complete(told):
    days = {row["dt"]: row for row in told.gold("group_daily") if row["group"] == "late"}
    assert [days[day]["rebalance_ms"] for day in (FIRST, SECOND)] == [2477, 0]


def test_every_end_of_a_session_has_a_column(pages):
    (row,) = cells(pages, "rebalances", 1)
    del row["median stay, seconds"]
    assert row == {"group": "full", "joined": "2", "left": "0", "group full": "1", "other": "1"}


def test_a_rebalance_is_named_by_what_is_known_of_its_cause(told, pages):
    causes = {row["reason"]: row["cause"] for row in told.gold("rebalances")}
    assert (causes["group_max_size"], causes["a_reason_of_tomorrow"]) == ("full", "other")
    text = (pages / "rebalances.html").read_text()
    for label in ("the group was full", "other", "a member joined again"):
        assert f"</i>{label}<" in text
    assert "subscription changed" not in text


def test_a_reset_that_goes_both_ways_is_not_nothing(pages):
    (reset,) = [row for row in cells(pages, "audit") if row["what"] == "reset"]
    assert (reset["messages back"], reset["messages forward"]) == ("10", "10")
    (row,) = [row for row in json.loads((pages / "audit.json").read_text()) if row["messages_back"]]
    assert row["messages"] == 0


def test_offsets_that_went_with_their_topic_name_who_deleted_it(told):
    found = [row for row in told.gold("audit") if row["action"] == "delete"]
    who = {(row["seq"]): (row["principal"], row["client_id"], row["client_host"]) for row in found}
    olga, nobody = ("User:olga", "ops", "/10.0.0.9"), ("", "", "")
    assert [who[seq] for seq in sorted(who)] == [olga, nobody, nobody]
    assert {row["group"] for row in found} == {"moved"}


def test_one_of_a_kind_is_told_in_the_singular(pages):
    assert tiles(pages, "audit") == {
        "reset": "1",
        "deletions of offsets": "3",
        "acts of administration": "3",
    }


def test_a_day_without_events_is_no_hole_in_the_chart(pages):
    rows = [row for row in json.loads((pages / "lag.json").read_text()) if row["name"] == "moved"]
    lag = {row["time_ms"]: row["largest_lag"] for row in rows}
    first, second, *_ = sorted(lag)
    assert sorted(lag) == list(range(first, 3 * DAY_MS + 1, second - first))
    assert set(lag.values()) == {79}


def test_who_asks_for_a_day_without_events_hears_why_there_is_nothing(told):
    scope = Scope(told.spark, told.lake, since=date(1970, 1, 3), until=date(1970, 1, 3))
    assert scope.why_nothing("").endswith(
        "the published days are 1970-01-01 to 1970-01-04. Days without events have no rows, since "
        "nothing changed on them."
    )


# --- days one by one ------------------------------------------------------------------------------


def over_midnights(began_ms: int) -> list[EventDict]:
    """Three days of a store on which what begins on one ends on another, and a kill takes back."""
    seq, days = count(1), [began_ms + day * DAY_MS for day in range(3)]

    def say(kind, day, lease_epoch=1, **what):
        number = next(seq)
        ts_ms = days[day] + number * 1000
        return at(number, kind(**what), ts_ms, log_id="midnights", lease_epoch=lease_epoch)

    def join(day, group, member, **more):
        return say(core.MemberJoin, day, group_id=group, member_id=member, **more)

    def start(day, group, **more):
        return say(core.RebalanceStart, day, group_id=group, reason="member_leave", **more)

    def end(day, group, lease_epoch=1):
        return say(core.RebalanceEnd, day, lease_epoch, group_id=group, duration_ms=1, members=1)

    def hold(day, group, lease_epoch=1, **held):
        parts = {member: {"orders": numbers} for member, numbers in held.items()}
        kind = {"protocol_type": "consumer", "partitions": parts}
        return say(core.Assignment, day, lease_epoch, group_id=group, **kind)

    def leave(day, group, member, lease_epoch=1):
        return say(core.MemberLeave, day, lease_epoch, group_id=group, member_id=member)

    def gone(day, topic):
        lost = core.LostTopic(topic, "", [core.LostPartition(0, 7, -1, "", 5)])
        return say(core.OffsetDeleted, day, group_id="late", reason="topic_deleted", topics=[lost])

    return [
        *(join(0, "killed", "l"), join(0, "killed", "s1", group_instance_id="s")),
        hold(0, "killed", l=[0], s1=[1]),
        start(0, "open"),
        join(0, "handed-over", "a"),
        *(start(0, "handed-over"), end(0, "handed-over"), hold(0, "handed-over", a=[0, 1])),
        # the coordinator is killed before anything of this is stored
        *(leave(0, "killed", "l"), leave(0, "killed", "l"), start(0, "killed")),
        join(0, "killed", "s2", group_instance_id="s", replaces="s1"),
        say(core.AdminAction, 0, action="delete_topic", target="old", client_id="ops"),
        gone(1, "old"),
        say(core.ShardLoaded, 1, 2, groups=1, offsets=0, duration_ms=1),
        # the two steps of a cooperative rebalance
        join(1, "handed-over", "b"),
        *(start(1, "handed-over"), end(1, "handed-over"), hold(1, "handed-over", a=[0], b=[])),
        start(1, "handed-over"),
        gone(2, "old"),
        leave(2, "killed", "l", 2),
        join(2, "killed", "s3", lease_epoch=2, group_instance_id="s", replaces="s1"),
        *(end(2, "open"), hold(2, "open")),
        *(end(2, "handed-over"), hold(2, "handed-over", a=[0], b=[1])),
        # of one rebalance the beginning is not known
        *(end(2, "open"), hold(2, "open")),
    ]


@pytest.fixture(scope="module")
def one_by_one(spark, tmp_path_factory):
    """Tables made at once, and made day by day, of the same three days."""
    life = a_history(11, days=3, steps=15).events
    began_ms = life[0]["ts_ms"] // DAY_MS * DAY_MS
    stores = (life, over_midnights(began_ms))
    folder = tmp_path_factory.mktemp("one-by-one")
    at_once, by_day = a_site(spark, folder / "at-once"), a_site(spark, folder / "by-day")
    for events in stores:
        at_once.seal(events)
    assert len(at_once.run().published) == 3
    for day in range(3):
        for events in stores:
            by_day.seal(e for e in events if e["ts_ms"] // DAY_MS == began_ms // DAY_MS + day)
        assert len(by_day.run().published) == 1
    return at_once, by_day


def test_days_computed_one_by_one_are_those_computed_at_once(one_by_one):
    at_once, by_day = one_by_one
    for table in GOLD_SCHEMAS:
        assert by_day.gold(table) == at_once.gold(table), table
        assert at_once.gold(table) or table == "lag_1m"
    for table in ("member_sessions", "rebalances"):
        assert by_day.silver(table) == at_once.silver(table), table


def test_a_plan_from_the_day_before_is_that_from_the_whole_history(one_by_one):
    site = one_by_one[1]
    life = a_history(11, days=3, steps=15)
    began_ms = life.events[0]["ts_ms"] // DAY_MS * DAY_MS
    events = events_of_lake(site.spark, site.lake.root).cache()
    for number, snapshot in enumerate(life.snapshots):
        if snapshot.ts_ms < began_ms + DAY_MS or number % 3:
            continue
        groups = sorted({group for group, _, _ in snapshot.offsets})
        group = groups[number % len(groups)]
        found = group_from_day(site.spark, site.lake.root, group, snapshot.ts_ms)
        assert found == group_as_of(events, group, snapshot.ts_ms)
        assert {(key.topic, key.partition): each.offset for key, each in found.offsets.items()} == {
            key[1:]: value[0] for key, value in snapshot.offsets.items() if key[0] == group
        }
    events.unpersist()


def test_a_plan_needs_the_history_if_the_tables_do_not_have_the_day_before(one_by_one):
    site = one_by_one[1]
    coverage = read_coverage(site.spark, site.lake)
    pointer = read_pointer(site.spark, site.lake)
    first, second, third = pointer.days
    assert [base_day(coverage, pointer, day) for day in (first, second, third)] == [
        None,
        first,
        second,
    ]
    older = replace(pointer.days[first], fingerprint="other")
    held = replace(pointer.days[second], state=HELD_BACK)
    assert base_day(coverage, replace(pointer, days=pointer.days | {first: older}), third) is None
    assert base_day(coverage, replace(pointer, days=pointer.days | {second: held}), third) == first
    assert base_day(coverage, replace(pointer, since={GOLD: second}), third) is None
    imported = coverage.segments[0]._replace(batch_id="import-1", log_id="import-1")
    assert base_day(Coverage([*coverage.segments, imported]), pointer, third) is None
    parts = [part for part in coverage.segments if part.log_id == "midnights"]
    set_back = [part._replace(dt=first if part.dt > first else third) for part in parts]
    others = [part for part in coverage.segments if part not in parts]
    turned = Coverage([*others, *set_back])
    notes = {
        day: replace(note, fingerprint=turned.fingerprint(day))
        for day, note in pointer.days.items()
    }
    assert base_day(turned, replace(pointer, days=notes), third) is None


def by_days(rows: list[dict], *columns: str, **where: str) -> list[tuple]:
    """Columns of the rows of a group, with the number of the day."""
    first = min(row["dt"] for row in rows)
    chosen = [row for row in rows if where.items() <= row.items()]
    found = [((row["dt"] - first).days, *(row[name] for name in columns)) for row in chosen]
    return sorted(found, key=repr)


def test_a_rebalance_stands_on_the_days_of_its_steps(one_by_one):
    rows = one_by_one[1].gold("rebalances")
    found = by_days(rows, "reason", "duration_ms", "assigned", group="open")
    began, ended, unknown = (
        (0, "member_leave", None, None),
        (2, "member_leave", 1, 0),
        (2, None, 1, 0),
    )
    assert found == [began, ended, unknown]


def test_an_end_that_a_kill_took_back_stands_and_the_next_one_has_no_beginning(one_by_one):
    rows = one_by_one[1].silver("member_sessions")
    began_ms = {row["member_id"]: row["joined_ms"] for row in rows if row["joined_ms"]}
    for member, by in (("l", "leave"), ("s1", "replaced")):
        found = by_days(rows, "joined_ms", "ended_by", member_id=member)
        assert found == [(0, began_ms[member], by), (2, None, by)]


def test_a_partition_that_nobody_had_over_midnight_moves_from_who_had_it_before(one_by_one):
    rows = one_by_one[1].gold("rebalances")
    found = by_days(rows, "moved", "assigned", group="handed-over")
    assert found == [(0, 0, 2), (1, 0, 1), (1, None, None), (2, 1, 2)]


def test_who_deleted_a_topic_is_known_on_the_day_after(one_by_one):
    rows = one_by_one[1].gold("audit")
    assert by_days(rows, "client_id", group="late") == [(1, "ops"), (2, "")]
