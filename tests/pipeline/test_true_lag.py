"""Lag to the true ends, and who owns a partition, in tables and on pages.

One story for both: a consumer group whose members follow one by one, and samples of the brokers.
"""

from __future__ import annotations

import json
from datetime import date

import pytest

from groupkeeper.coordinator.core import events as core
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.pipeline.reports.bounds import IncidentBounds
from groupkeeper.pipeline.reports.incidents.find import find
from groupkeeper.pipeline.reports.jobs import write_reports
from groupkeeper.pipeline.reports.report import Scope
from groupkeeper.pipeline.tables.verify import verify
from groupkeeper.storage.event_log.data_ends import DataEndsLog
from tests.pipeline.conftest import Site, a_site
from tests.pipeline.events import DAY_MS, at, commit
from tests.pipeline.test_silver_gold import by, end_of

FIRST, SECOND = date(1970, 1, 1), date(1970, 1, 2)
MINUTE_MS = 60_000
NIGHT_MS = DAY_MS - MINUTE_MS


def of(client: str, member: str, **more: object) -> dict:
    return {**by(client, member), "group_type": GroupType.CONSUMER, **more}


def moved(client: str, member: str, gained=(), lost=(), reason="target_assignment", **more):
    return core.PartitionsMoved(
        **of(client, member, **more),
        reason=reason,
        gained_partitions={"orders": list(gained)} if gained else {},
        lost_partitions={"orders": list(lost)} if lost else {},
    )


def begins(client: str, member: str, members: int, reason="member_join"):
    return core.RebalanceStart(**of(client, member), reason=reason, members=members)


def settled(generation: int, members: int, duration_ms: int = 5):
    group = {"group_id": "g", "group_type": GroupType.CONSUMER, "generation_id": generation}
    return core.RebalanceEnd(**group, duration_ms=duration_ms, members=members)


STATIC = {"group_instance_id": "static-a"}
FIRST_DAY = [
    at(1, core.MemberJoin(**of("ann", "a", **STATIC))),
    at(2, begins("ann", "a", 1)),
    at(3, moved("ann", "a", [0, 1], **STATIC)),
    at(4, settled(1, 1)),
    at(5, core.MemberJoin(**of("bob", "b"))),
    at(6, begins("bob", "b", 2)),
    at(7, moved("ann", "a", lost=[1], **STATIC)),
    at(8, moved("bob", "b", [1])),
    at(9, settled(2, 2)),
    # the furthest group is at 40, and says that this is the end
    commit(10, [("orders", 0, 40), ("orders", 1, 50)], member="a", ts_ms=2 * MINUTE_MS),
    at(11, end_of((0, 40), (1, 50)), 3 * MINUTE_MS),
    # ann comes back under another id: nothing moves
    at(12, core.MemberJoin(**of("ann", "a2", **STATIC), replaces="a"), 4 * MINUTE_MS),
    at(13, moved("ann", "a2", [0], reason="static_member_rejoin", **STATIC), 4 * MINUTE_MS),
    # a rebalance over midnight: cat gets one partition on each day
    at(14, core.MemberJoin(**of("cat", "c")), NIGHT_MS),
    at(15, begins("cat", "c", 3), NIGHT_MS),
    at(16, moved("bob", "b", lost=[1]), NIGHT_MS + 1),
    at(17, moved("cat", "c", [1]), NIGHT_MS + 2),
]
SECOND_DAY = [
    at(18, moved("ann", "a2", lost=[0], **STATIC), DAY_MS + 1),
    at(19, moved("cat", "c", [0]), DAY_MS + 2),
    at(20, settled(3, 3, MINUTE_MS + 3), DAY_MS + 3),
    at(21, core.MemberLeave(**of("bob", "b")), DAY_MS + 4),
    # beyond the last sample of the brokers: the furthest group is the better end
    commit(22, [("orders", 1, 95, 50)], member="c", ts_ms=DAY_MS + 9 * MINUTE_MS),
    at(23, end_of((1, 95)), DAY_MS + 10 * MINUTE_MS),
]


@pytest.fixture(scope="module")
def told(spark, tmp_path_factory) -> Site:
    """The tables of both days, made one after the other, with the samples among the segments."""
    site = a_site(spark, tmp_path_factory.mktemp("lag"))
    folder = site.log_dir / "data-ends"
    site.seal(FIRST_DAY)
    log = DataEndsLog(folder)
    log.add({("orders", 0): 40, ("orders", 1): 50, ("other", 0): 9}, MINUTE_MS)
    log.add({("orders", 0): 60, ("orders", 1): 50}, 5 * MINUTE_MS)
    assert site.run().published == [FIRST]
    DataEndsLog(folder).add({("orders", 0): 70, ("orders", 1): 90}, 30 * MINUTE_MS)
    assert site.run().published == [FIRST]  # samples alone make a day grow
    site.seal(SECOND_DAY)
    DataEndsLog(folder).add({("orders", 0): 70, ("orders", 1): 90}, DAY_MS + 8 * MINUTE_MS)
    site.run()
    return site


@pytest.fixture(scope="module")
def lag(told):
    rows = told.gold("lag_1m")
    return {(r["minute_ms"] // MINUTE_MS, r["partition"]): r["lag"] for r in rows}


def test_lag_is_the_distance_to_the_last_true_end(lag):
    assert lag[2, 0] == 0
    assert lag[5, 0] == 20
    assert lag[30, 0] == 30
    assert (lag[30, 1], lag[24 * 60, 1]) == (40, 40)


def test_a_group_that_has_gone_beyond_the_last_sample_gives_the_end(told, lag):
    assert lag[24 * 60 + 9, 1] == 0
    ends = {
        (row["minute_ms"] // MINUTE_MS, row["partition"]): row["end_offset"]
        for row in told.gold("lag_1m")
    }
    assert (ends[24 * 60 + 8, 1], ends[24 * 60 + 10, 1]) == (90, 95)


def test_partitions_that_members_of_a_consumer_group_got_are_counted_on_their_day(told):
    rows = sorted(told.gold("rebalances"), key=lambda row: (row["seq"], row["dt"]))
    found = [(row["seq"], row["dt"], row["assigned"], row["moved"]) for row in rows]
    assert found == [
        (2, FIRST, 2, 0),
        (6, FIRST, 1, 1),
        (15, FIRST, 1, 1),
        (15, SECOND, 1, 1),
    ]
    moves = [
        (move["partition"], move["from"], move["to"]) for row in rows for move in row["moves"] or ()
    ]
    assert moves == [(1, "static-a", "b"), (1, "b", "c"), (0, "static-a", "c")]


def test_days_one_by_one_are_those_that_are_computed_at_once(told):
    problems = [check for check in verify(told.spark, told.lake) if check.problem]
    assert problems == []


@pytest.fixture(scope="module")
def pages(told, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    write_reports(Scope(told.spark, told.lake), ["lag", "partitions"], folder, lambda _: None)
    return folder


def test_each_partition_has_its_owner_and_the_time_since_it_was_at_the_end(pages):
    rows = json.loads((pages / "partitions.json").read_text())
    found = {row["partition"]: row for row in rows}
    assert {number: row["owner"] for number, row in found.items()} == {
        0: "cat (/10.0.0.1)",
        1: "cat (/10.0.0.1)",
    }
    # its offset was the end until the sample at minute 5
    assert (found[0]["lag"], found[0]["behind_ms"]) == (30, (24 * 60 + 10 - 5) * MINUTE_MS)
    assert (found[1]["lag"], found[1]["behind_ms"]) == (0, 0)


def test_without_samples_nobody_knows_since_when_a_group_is_behind(site, tmp_path):
    far, near = [("orders", 0, 90)], [("orders", 0, 30)]
    said_by_coordinator = at(3, end_of((0, 90)), MINUTE_MS)
    site.seal([commit(1, far, group="far"), commit(2, near), said_by_coordinator])
    site.run()
    folder = tmp_path / "pages"
    write_reports(Scope(site.spark, site.lake), ["partitions"], folder, lambda _: None)
    rows = json.loads((folder / "partitions.json").read_text())
    found = [(row["name"], row["lag"], row["behind_ms"]) for row in rows]
    assert found == [("g", 60, None), ("far", 0, None)]
    assert "unknown" in (folder / "partitions.html").read_text()


@pytest.mark.parametrize("name", ["lag", "partitions"])
def test_the_first_line_of_a_page_says_that_lag_is_the_distance_to_the_end(pages, name):
    text = (pages / f"{name}.html").read_text()
    assert "Lag is the distance to the end of the partition." in text
    assert "1970-01-02 00:08:00" in text


def test_a_group_alone_on_its_topic_misses_its_slo_by_the_true_lag(told):
    bounds = IncidentBounds(slo_lag=25, slo_minutes=1)
    found = find(Scope(told.spark, told.lake, bounds=bounds)).incidents
    above = [each for each in found if each["rule"] == "lag_above_slo"]
    assert [(each["group"], each["state"], each["amount"]) for each in above] == [("g", "open", 40)]
