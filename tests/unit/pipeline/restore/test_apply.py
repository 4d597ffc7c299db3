"""Plans carried out against a coordinator in memory: refusals, going on, verifying."""

from __future__ import annotations

from groupkeeper.pipeline.restore.apply import (
    Outcome,
    Purpose,
    Result,
    apply,
    check,
    clamped,
    make_plan,
    verify,
)
from groupkeeper.pipeline.restore.plan import Clamp, Committed, Log, Partition, Plan, PlanKind
from tests.helpers.daemon.fake_cluster import FakeCluster

P0, P1, P2 = (Partition("orders", number) for number in range(3))
LOGS = dict.fromkeys((P0, P1, P2), Log(0, 100))
PURPOSE = Purpose(PlanKind.RESTORE, "a log", 1, 2)


def a_cluster(*groups: str) -> FakeCluster:
    return FakeCluster({g: {P0: Committed(50), P1: Committed(60)} for g in groups}, LOGS)


def a_plan(cluster: FakeCluster, *groups: str) -> Plan:
    wanted = {g: {P0: Committed(20, 1, "then"), P2: Committed(30)} for g in groups}
    return make_plan(cluster, wanted, cluster, PURPOSE)


def applied(cluster: FakeCluster, plan: Plan) -> list[Outcome]:
    return list(apply(cluster, plan.content.groups))


def test_offsets_are_committed_and_deleted_and_a_second_run_changes_nothing() -> None:
    cluster = a_cluster("g")
    plan = a_plan(cluster, "g")
    assert applied(cluster, plan) == [Outcome("g", Result.APPLIED, 3)]
    assert cluster.stored["g"] == {P0: Committed(20, 1, "then"), P2: Committed(30)}
    writes = len(cluster.writes)
    assert applied(cluster, plan) == [Outcome("g", Result.DONE_BEFORE)]
    assert len(cluster.writes) == writes


def test_the_undo_brings_back_what_was_there() -> None:
    cluster = a_cluster("g")
    plan = a_plan(cluster, "g")
    applied(cluster, plan)
    assert applied(cluster, plan.undo(3)) == [Outcome("g", Result.APPLIED, 3)]
    assert cluster.stored["g"] == {P0: Committed(50), P1: Committed(60)}


def test_a_group_with_members_is_refused_and_they_are_named() -> None:
    cluster = a_cluster("g")
    plan = a_plan(cluster, "g")
    cluster.states["g"] = "Stable"
    cluster.member_names["g"] = ["billing-1 at /10.0.0.7"]
    (outcome,) = applied(cluster, plan)
    assert outcome.result is Result.REFUSED
    assert "billing-1 at /10.0.0.7" in outcome.message
    assert "Stable" in outcome.message
    assert "`groupkeeper group describe g --server fake:9092`" in outcome.message
    assert cluster.writes == []


def test_a_group_that_somebody_joins_at_the_last_moment_is_refused_by_the_server() -> None:
    cluster = a_cluster("g")
    plan = a_plan(cluster, "g")
    cluster.joined_unseen.add("g")
    (outcome,) = applied(cluster, plan)
    assert outcome.result is Result.REFUSED
    assert "members" in outcome.message


def test_a_value_that_is_not_the_plans_refuses_the_whole_group() -> None:
    cluster = a_cluster("g")
    plan = a_plan(cluster, "g")
    cluster.stored["g"][P1] = Committed(61)
    (outcome,) = applied(cluster, plan)
    assert outcome.result is Result.REFUSED
    assert "orders-1 has 61, the plan knows 60 and none" in outcome.message
    assert cluster.writes == []


def test_a_commit_while_the_groups_before_are_written_is_not_overwritten() -> None:
    cluster = a_cluster("a", "b")
    plan = a_plan(cluster, "a", "b")
    cluster.meanwhile = {"b": {P0: Committed(99)}}
    a, b = applied(cluster, plan)
    assert (a.result, b.result) == (Result.APPLIED, Result.REFUSED)
    assert cluster.stored["b"][P0] == Committed(99)


def test_a_crash_between_two_groups_is_continued_by_running_it_again() -> None:
    cluster = a_cluster("a", "b", "c")
    plan = a_plan(cluster, "a", "b", "c")
    cluster.dies_before = "b"
    results = [outcome.result for outcome in applied(cluster, plan)]
    assert results == [Result.APPLIED, Result.FAILED, Result.APPLIED]
    cluster.dies_before = None
    again = [outcome.result for outcome in applied(cluster, plan)]
    assert again == [Result.DONE_BEFORE, Result.APPLIED, Result.DONE_BEFORE]
    assert [write for write in cluster.writes if write[0] == "commit"] == [
        ("commit", "a"),
        ("commit", "c"),
        ("commit", "b"),
    ]


def test_a_group_that_is_half_done_is_finished() -> None:
    cluster = a_cluster("g")
    plan = a_plan(cluster, "g")
    cluster.stored["g"][P0] = Committed(20, 1, "then")
    assert applied(cluster, plan) == [Outcome("g", Result.APPLIED, 2)]


def test_what_reads_back_as_something_else_is_a_failure() -> None:
    cluster = a_cluster("g")
    plan = a_plan(cluster, "g")
    cluster.committed_over["g"] = {P0: Committed(99)}
    (outcome,) = applied(cluster, plan)
    assert outcome.result is Result.FAILED
    assert "orders-0 has 99" in outcome.message


def test_a_check_tells_what_an_apply_would_do_and_does_nothing() -> None:
    cluster = a_cluster("a", "b")
    plan = a_plan(cluster, "a", "b")
    cluster.states["b"] = "Stable"
    results = [outcome.result for outcome in check(cluster, plan.content.groups)]
    assert results == [Result.PENDING, Result.REFUSED]
    assert cluster.writes == []


def test_drift_is_told_whoever_is_a_member() -> None:
    cluster = a_cluster("a", "b")
    plan = a_plan(cluster, "a", "b")
    applied(cluster, plan)
    cluster.states["a"] = "Stable"
    cluster.stored["b"][P2] = Committed(31)
    a, b = verify(cluster, plan.content.groups)
    assert a == Outcome("a", Result.DONE_BEFORE)
    assert (b.result, b.changed) == (Result.REFUSED, 1)
    assert "orders-2 has 31" in b.message


def test_the_logs_of_another_cluster_clamp_and_a_missing_partition_is_left_out() -> None:
    cluster = FakeCluster({"g": {}}, dict.fromkeys((P0, P1), Log()))
    data = FakeCluster({}, {P0: Log(0, 10)})
    wanted = {"g": {P0: Committed(20), P1: Committed(20)}}
    plan = make_plan(cluster, wanted, data, PURPOSE)
    found = {each.partition: each.clamp for _, each in clamped(plan)}
    assert found == {0: Clamp.LOG_END, 1: Clamp.NO_PARTITION}
    unclamped = make_plan(cluster, wanted, None, PURPOSE)
    assert clamped(unclamped) == []
    assert "no cluster with the records" in unclamped.content.data


def test_what_a_group_has_beyond_the_plan_may_be_kept() -> None:
    cluster = a_cluster("g")
    wanted = {"g": {P0: Committed(20)}}
    plan = make_plan(cluster, wanted, cluster, PURPOSE, removes=lambda partition: False)
    applied(cluster, plan)
    assert cluster.stored["g"] == {P0: Committed(20), P1: Committed(60)}
