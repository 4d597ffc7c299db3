"""What the tables say of a few events whose meaning is plain."""

from __future__ import annotations

import hashlib
import json
from datetime import date
from pathlib import Path

import pytest

from groupkeeper.coordinator.core import events as core
from groupkeeper.pipeline.tables.compute import COMPUTATION, LIVES_TABLE
from groupkeeper.pipeline.tables.hours import SAMPLES_TABLE
from tests.pipeline.conftest import a_site
from tests.pipeline.events import DAY_MS, at, commit

FIRST, SECOND = date(1970, 1, 1), date(1970, 1, 2)
MINUTE_MS = 60_000


def by(client: str, member: str = "", generation: int = 3) -> dict:
    return {
        "group_id": "g",
        "member_id": member,
        "client_id": client,
        "client_host": "/10.0.0.1",
        "principal": "User:ANONYMOUS",
        "generation_id": generation,
    }


def end_of(*partitions: tuple[int, int]) -> core.EndOffset:
    rows = [core.EndPartition(number, offset) for number, offset in partitions]
    return core.EndOffset(topics=[core.EndTopic("orders", "", rows)])


def assigned(**partitions: list[int]) -> core.Assignment:
    held = {member: {"orders": numbers} for member, numbers in partitions.items()}
    return core.Assignment(group_id="g", generation_id=3, protocol_type="consumer", partitions=held)


STORY = [
    # ann and bob share two partitions
    at(1, core.MemberJoin(**by("ann", "a"), group_instance_id="static-a")),
    at(2, core.RebalanceStart(**by("ann", "a"), reason="member_join", members=1)),
    at(3, core.RebalanceEnd(group_id="g", generation_id=1, duration_ms=0, members=1)),
    at(4, assigned(a=[0, 1])),
    at(5, core.MemberJoin(**by("bob", "b"))),
    at(6, core.RebalanceStart(**by("bob", "b"), reason="member_join", members=2)),
    at(7, core.RebalanceEnd(group_id="g", generation_id=2, duration_ms=900, members=2)),
    at(8, assigned(a=[0], b=[1])),
    # they commit: forward, not at all, far ahead, back
    at(9, end_of((0, 100), (1, 50)), MINUTE_MS),
    commit(10, [("orders", 0, 40), ("orders", 1, 50)], member="a", ts_ms=MINUTE_MS + 1),
    commit(11, [("orders", 0, 60, 40)], member="a", ts_ms=2 * MINUTE_MS),
    commit(12, [("orders", 0, 60, 60)], member="a", ts_ms=2 * MINUTE_MS + 1),
    commit(13, [("orders", 0, 30, 60)], member="a", ts_ms=3 * MINUTE_MS),
    # the end moves on, the group does not
    at(14, end_of((0, 400)), 5 * MINUTE_MS),
    # a reset and a restore from outside, a zombie, a delete
    commit(15, [("orders", 0, 5, 30)], member="", generation=-1, ts_ms=6 * MINUTE_MS),
    commit(
        16,
        [("orders", 0, 300_005, 5)],
        member="",
        generation=-1,
        client_id="groupkeeper-restore/p-1",
        ts_ms=6 * MINUTE_MS,
    ),
    at(
        17,
        core.CommitRejected(**by("old", "z"), error="ILLEGAL_GENERATION", count=3),
        7 * MINUTE_MS,
    ),
    at(
        18,
        core.OffsetDeleted(
            **by("ops"),
            reason="deleted",
            topics=[core.LostTopic("orders", "", [core.LostPartition(1, 50, -1, "", 1)])],
        ),
        8 * MINUTE_MS,
    ),
    # ann comes back under a new id; bob falls silent over midnight, and is missed in the rebalance
    at(
        19,
        core.MemberJoin(**by("ann", "a2"), group_instance_id="static-a", replaces="a"),
        9 * MINUTE_MS,
    ),
    at(
        20, core.RebalanceStart(**by("ann", "a2"), reason="leader_rejoin", members=2), DAY_MS - 1000
    ),
    at(
        21,
        core.RebalanceEnd(
            group_id="g", generation_id=4, duration_ms=2000, members=1, awaited=["b"]
        ),
        DAY_MS + 1000,
    ),
    at(22, core.MemberEvicted(**by("", "b"), reason="join_timeout"), DAY_MS + 1000),
    at(23, assigned(a2=[0, 1]), DAY_MS + 2000),
]


@pytest.fixture(scope="module")
def told(spark, tmp_path_factory):
    """The tables of the story, computed once."""
    site = a_site(spark, tmp_path_factory.mktemp("story"))
    site.seal(STORY)
    assert site.run().published == [FIRST, SECOND]
    return site


@pytest.fixture(scope="module")
def deltas(told):
    return {(row["seq"], row["partition"]): row for row in told.silver("commit_deltas")}


def test_a_version_of_the_computation_says_the_same_of_the_same_events(told):
    """Who makes it say something else raises the number: days that are there are computed anew."""
    kinds = ("silver", "gold", "_carried")
    tables = [path for kind in kinds for path in Path(told.lake.root, kind).iterdir()]
    names = [f"{table.parent.name}/{table.name}" for table in sorted(tables)]
    # a run does without these, and then reads more
    names = [name for name in names if name not in (LIVES_TABLE, SAMPLES_TABLE)]
    valid = {name: rows for name in names if (rows := told.valid(name)) is not None}
    said = {
        name: sorted(
            json.dumps(row.asDict(recursive=True), default=str, sort_keys=True)
            for row in rows.collect()
        )
        for name, rows in valid.items()
    }
    digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
    assert (COMPUTATION, digest) == (4, "9bcd7c18ce674d49")


def flags(row: dict) -> set[str]:
    return {name for name in ("is_rewind", "is_skip", "is_duplicate") if row[name]}


def test_the_first_commit_of_a_partition_has_no_delta(deltas):
    assert (deltas[10, 0]["delta"], flags(deltas[10, 0])) == (None, set())


def test_a_commit_says_how_far_it_moved_the_offset_and_what_that_was(deltas):
    assert (deltas[11, 0]["delta"], flags(deltas[11, 0])) == (20, set())
    assert (deltas[12, 0]["delta"], flags(deltas[12, 0])) == (0, {"is_duplicate"})
    assert (deltas[13, 0]["delta"], flags(deltas[13, 0])) == (-30, {"is_rewind"})


def test_a_reset_and_a_restore_are_told_from_a_members_commit(deltas):
    assert [deltas[seq, 0]["cause"] for seq in (13, 15, 16)] == ["member", "reset", "restore"]
    assert flags(deltas[16, 0]) == {"is_skip"}


def test_a_commit_that_counts_with_a_transaction_is_no_reset_whoever_has_left(site):
    outside = {"generation": -1, "member": ""}
    sent = commit(1, [("orders", 0, 9)], **outside) | {"api": "TxnOffsetCommit"}
    back = commit(2, [("orders", 0, 5, 9)], **outside) | {"api": "TxnOffsetCommit"}
    site.seal([sent, back, commit(3, [("orders", 0, 3, 5)], **outside)])
    site.run()
    causes = [row["cause"] for row in site.silver("commit_deltas")]
    actions = {row["seq"]: row["action"] for row in site.gold("audit")}
    assert (sorted(causes), actions) == (["member", "member", "reset"], {2: "rewind", 3: "reset"})


def test_a_session_has_its_end_on_the_day_of_its_end(told):
    sessions = {(r["member_id"], r["dt"]): r for r in told.silver("member_sessions")}
    assert sessions["b", FIRST]["ended_by"] is None
    assert sessions["b", SECOND]["ended_by"] == "join_timeout"
    assert sessions["b", SECOND]["duration_ms"] == DAY_MS + 1000 - 5000
    assert ("a", SECOND) not in sessions
    assert sessions["a2", SECOND]["ended_ms"] is None


def test_a_static_member_that_comes_back_ends_its_old_session(told):
    (old,) = [r for r in told.silver("member_sessions") if r["member_id"] == "a"]
    assert (old["ended_by"], old["ended_ms"]) == ("replaced", 9 * MINUTE_MS)


def test_a_rebalance_says_why_how_long_who_was_awaited_and_what_moved(told):
    first, second, *third = sorted(told.gold("rebalances"), key=lambda r: (r["dt"], r["seq"]))
    assert (first["cause"], first["caused_by"], first["moved"]) == ("join", "ann (/10.0.0.1)", 0)
    assert (second["duration_ms"], second["moved"], second["assigned"]) == (900, 1, 2)
    assert second["moves"] == [{"topic": "orders", "partition": 1, "from": "static-a", "to": "b"}]
    unfinished, finished = third
    assert (unfinished["dt"], unfinished["completed_ms"], unfinished["moved"]) == (
        FIRST,
        None,
        None,
    )
    assert (finished["dt"], finished["awaited_names"]) == (SECOND, ["bob (/10.0.0.1)"])
    # ann kept partition 0 although her id is new
    assert (finished["cause"], finished["moved"]) == ("change", 1)


def test_a_minute_with_a_commit_and_a_sample_has_one_lag(told):
    minutes = [(r["minute_ms"] // MINUTE_MS, r["partition"]) for r in told.gold("lag_1m")]
    assert (1, 0) in minutes
    assert len(minutes) == len(set(minutes))


@pytest.fixture(scope="module")
def lag_rows(told):
    return {(r["minute_ms"] // MINUTE_MS, r["partition"]): r for r in told.gold("lag_1m")}


def test_an_offset_that_was_deleted_has_a_last_row_and_no_lag(lag_rows):
    last = lag_rows[8, 1]
    assert (last["offset"], last["end_offset"], last["lag"]) == (None, 50, None)
    assert max(minute for minute, partition in lag_rows if partition == 1) == 8


def test_a_day_tells_the_lag_of_what_stood_on_it_though_nothing_moved(lag_rows):
    of_second = {key: row for key, row in lag_rows.items() if row["dt"] == SECOND}
    assert {key: row["offset"] for key, row in of_second.items()} == {(24 * 60, 0): 300_005}
    assert of_second[24 * 60, 0]["lag"] == 0


def test_a_negative_offset_has_no_lag(spark, tmp_path):
    site = a_site(spark, tmp_path)
    site.seal([at(1, end_of((0, 100))), commit(2, [("orders", 0, -5)])])
    site.run()
    (row,) = site.gold("lag_1m")
    assert (row["offset"], row["end_offset"], row["lag"]) == (-5, 100, None)


def test_rebalances_of_one_millisecond_have_their_own_causes_and_names(spark, tmp_path):
    site = a_site(spark, tmp_path)
    joins = [
        at(seq, core.MemberJoin(**by(name, name)), 1000) for seq, name in enumerate("ab", start=1)
    ]
    ends = (("a", 4, 1), ("b", 6, 2))
    rebalances = [
        event
        for name, seq, generation in ends
        for event in (
            at(seq - 1, core.RebalanceStart(**by(name, name), reason="member_join"), 1000),
            at(
                seq,
                core.RebalanceEnd(
                    group_id="g", generation_id=generation, duration_ms=0, awaited=[name]
                ),
                1000,
            ),
        )
    ]
    site.seal([*joins, *rebalances])
    site.run()
    found = [
        (row["seq"], row["caused_by"], row["awaited_names"]) for row in site.gold("rebalances")
    ]
    assert sorted(found) == [
        (3, "a (/10.0.0.1)", ["a (/10.0.0.1)"]),
        (5, "b (/10.0.0.1)", ["b (/10.0.0.1)"]),
    ]


def test_lag_grows_while_a_group_stands_still(lag_rows):
    lag = {key: row["lag"] for key, row in lag_rows.items()}
    assert lag[1, 0] == 60
    assert lag[1, 1] == 0
    assert lag[3, 0] == 70
    assert lag[5, 0] == 370
    assert lag[6, 0] == 0  # restored to beyond the end: never below 0


def test_the_rate_counts_what_members_moved_forward(told):
    rates = {r["minute_ms"] // MINUTE_MS: r for r in told.gold("commit_rate_1m")}
    assert (rates[2]["commits"], rates[2]["messages"], rates[2]["duplicates"]) == (2, 20, 1)
    assert (rates[3]["messages"], rates[3]["rewinds"]) == (0, 1)
    assert (rates[6]["commits"], rates[6]["messages"]) == (2, 0)
    assert rates[1]["partitions"] == 2


def test_the_audit_has_every_misdeed_with_who_it_was(told):
    audit = {r["seq"]: r for r in told.gold("audit")}
    assert {seq: row["action"] for seq, row in audit.items()} == {
        13: "rewind",
        15: "reset",
        16: "restore",
        17: "rejected",
        18: "delete",
    }
    zombie = audit[17]
    assert (zombie["client_id"], zombie["client_host"], zombie["principal"]) == (
        "old",
        "/10.0.0.1",
        "User:ANONYMOUS",
    )
    assert (zombie["detail"], zombie["count"]) == ("ILLEGAL_GENERATION", 3)
    assert audit[13]["messages"] == -30
    assert audit[13]["changes"] == [{"topic": "orders", "partition": 0, "from": 60, "to": 30}]
    assert audit[18]["changes"] == [{"topic": "orders", "partition": 1, "from": 50, "to": None}]


def test_a_groups_day_in_one_row(told):
    first, second = sorted(told.gold("group_daily"), key=lambda row: row["dt"])
    assert (first["commits"], first["resets"], first["rejected"]) == (6, 2, 3)
    assert (first["joined"], first["left"], first["evicted"], first["members"]) == (3, 1, 0, 2)
    assert (first["rebalances"], first["max_partition_lag"]) == (3, 370)
    assert (second["evicted"], second["members"], second["commits"]) == (1, 1, 0)
