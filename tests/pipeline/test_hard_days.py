"""What the tables and pages say of days that are not plain: members that a coordinator forgot,
rebalances over midnight, deletions that name nobody, evictions for reasons of their own.
"""

from __future__ import annotations

import json
from datetime import date
from itertools import count

import pytest

from coordinator.core import events as core
from pipeline import silver
from pipeline.bronze import with_store
from pipeline.report import Scope
from pipeline.report_jobs import REPORTS, write_reports
from pipeline.schema import EVENT_SCHEMA
from storage.segment_lines import EventDict
from tests.pipeline.conftest import a_site
from tests.pipeline.events import DAY_MS, at, commit
from tests.pipeline.test_reports import cells, tiles
from tests.pipeline.test_silver_gold import end_of

FIRST, SECOND, FOURTH = (date(1970, 1, day) for day in (1, 2, 4))


def joined(seq, group, member, *, lease_epoch=1, ts_ms=None, **more) -> EventDict:
    event = core.MemberJoin(group=group, member_id=member, client_id=member, **more)
    return at(seq, event, ts_ms, lease_epoch=lease_epoch)


def assigned(seq, group, *members, lease_epoch=1, ts_ms=None) -> EventDict:
    held = {member: {"orders": [number]} for number, member in enumerate(members)}
    event = core.Assignment(group=group, protocol_type="consumer", partitions=held)
    return at(seq, event, ts_ms, lease_epoch=lease_epoch)


def ended(seq, group, members, duration_ms=0, *, lease_epoch=1, ts_ms=None) -> EventDict:
    event = core.RebalanceEnd(group=group, duration_ms=duration_ms, members=members)
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
        joined(11, "static", "s1", lease_epoch=5, instance_id="s"),
        assigned(12, "static", "s", lease_epoch=5),
        joined(13, "kept", "s3", lease_epoch=5, instance_id="s", replaces="s2"),
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


def test_a_member_that_left_is_not_forgotten_by_what_comes_after(frame):
    gone = core.MemberLeave(group="g", member_id="m")
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
        event = core.RebalanceStart(group=group, reason=reason, member_id=member)
        return at(next(seq), event, ts_ms)

    def evicted(group, member, reason):
        return at(next(seq), core.MemberEvicted(group=group, member_id=member, reason=reason), 2000)

    def gone(group, topic, reason="topic_deleted"):
        lost = core.LostTopic(topic, "", [core.LostPartition(0, 7, -1, "", 5)])
        return at(next(seq), core.OffsetDeleted(group=group, reason=reason, topics=[lost]), 3000)

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
        at(next(seq), core.GroupCreated(group="new"), 3 * DAY_MS + 1000),
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
        "those that are: 1970-01-01 to 1970-01-04. On days without any event nothing changed: they "
        "have no rows."
    )
