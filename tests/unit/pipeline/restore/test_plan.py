"""Plans without any server: clamps, checksums, how far a group is, and the way back."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.pipeline.restore.plan import (
    Change,
    Clamp,
    Committed,
    Content,
    GroupPlan,
    Log,
    Partition,
    Plan,
    PlanError,
    PlanKind,
    State,
    decode,
    plan_group,
    progress,
    renamed,
    sealed,
)

WHOLE = Log(0, 100)
P0, P1 = Partition("orders", 0), Partition("orders", 1)


def one_change(
    current: Committed | None, wanted: Committed | None, log: Log | None = WHOLE
) -> Change:
    plan = plan_group(
        "g",
        {} if current is None else {P0: current},
        {} if wanted is None else {P0: wanted},
        {} if log is None else {P0: log},
    )
    (change,) = plan.changes
    return change


def a_plan(*groups: GroupPlan) -> Plan:
    return sealed(Content(PlanKind.RESTORE, 1, "log", "here:9092", "here:9092", groups, as_of_ms=2))


def test_a_target_within_the_log_is_what_was_asked_for() -> None:
    change = one_change(Committed(50), Committed(20, 3, "note"))
    assert (change.target, change.delta, change.clamp) == (Committed(20, 3, "note"), -30, "none")
    assert change.wanted is None


@pytest.mark.parametrize(
    ("wanted", "target", "clamp"),
    [(5, 10, Clamp.LOG_START), (101, 100, Clamp.LOG_END), (10, 10, "none"), (100, 100, "none")],
)
def test_a_target_outside_the_log_goes_to_its_nearest_end(
    wanted: int, target: int, clamp: Clamp
) -> None:
    change = one_change(Committed(50), Committed(wanted, 3, "note"), Log(10, 100))
    assert change.target is not None
    assert (change.target.offset, change.clamp) == (target, clamp)
    assert change.target.metadata == "note"
    assert change.target.leader_epoch == (-1 if clamp != "none" else 3)
    assert change.wanted == (wanted if clamp != "none" else None)


def test_where_no_records_are_kept_nothing_is_clamped() -> None:
    change = one_change(Committed(5), Committed(10**15), Log())
    assert (change.target, change.clamp) == (Committed(10**15), Clamp.NONE)


def test_a_negative_offset_is_restored_as_it_was() -> None:
    assert one_change(Committed(5), Committed(-7)).target == Committed(-7)


def test_an_offset_that_was_not_there_is_to_go() -> None:
    change = one_change(Committed(5), None)
    assert (change.target, change.delta, change.changes) == (None, None, True)


def test_what_has_no_partition_stays_as_it_is_and_says_so() -> None:
    change = one_change(Committed(5), Committed(3), None)
    assert (change.target, change.clamp, change.wanted) == (Committed(5), Clamp.NO_PARTITION, 3)
    assert not change.changes


def test_how_far_a_partition_is() -> None:
    change = one_change(Committed(50), Committed(20))
    assert change.state(Committed(50)) is State.PENDING
    assert change.state(Committed(20)) is State.DONE
    assert change.state(Committed(21)) is State.DRIFTED
    assert change.state(Committed(50, -1, "other")) is State.DRIFTED
    assert change.state(None) is State.DRIFTED
    assert one_change(Committed(50), Committed(50)).state(Committed(50)) is State.UNCHANGED
    assert one_change(None, Committed(50)).state(None) is State.PENDING


def test_a_leader_epoch_that_one_side_does_not_know_is_no_difference() -> None:
    assert Committed(5, -1).same_as(Committed(5, 7))
    assert not Committed(5, 6).same_as(Committed(5, 7))


def test_a_plan_file_is_read_as_it_was_written() -> None:
    plan = a_plan(plan_group("g", {P0: Committed(5, 1, "ü\0")}, {P1: Committed(3)}, {}))
    assert decode(plan.encode()) == plan
    assert plan.id in plan.client_id
    assert plan.checksum == f"sha256:{plan.checksum.removeprefix('sha256:')}"
    assert plan.checksum.removeprefix("sha256:").startswith(plan.id)


def test_a_plan_file_that_was_edited_is_refused() -> None:
    plan = a_plan(plan_group("g", {P0: Committed(5)}, {P0: Committed(3)}, {P0: Log()}))
    text = plan.encode().decode()
    with pytest.raises(PlanError, match="checksum"):
        decode(text.replace('"g"', '"h"').encode())
    with pytest.raises(PlanError, match="delta"):
        decode(text.replace('"delta": -2', '"delta": -1').encode())
    with pytest.raises(PlanError, match="not a plan"):
        decode(text[:-20].encode())
    with pytest.raises(PlanError, match="not a plan"):
        decode(b"{}")
    with pytest.raises(PlanError, match="version 9"):
        decode(text.replace('"version": 1', '"version": 9').encode())


def test_another_moment_is_another_plan() -> None:
    plan = a_plan()
    later = sealed(msgspec.structs.replace(plan.content, created_ms=2))
    assert later.id != plan.id


committed = st.builds(Committed, st.integers(-3, 120), st.just(-1), st.sampled_from(["", "m"]))
offsets = st.dictionaries(
    st.builds(Partition, st.sampled_from(["a", "b"]), st.integers(0, 2)), committed
)
logs = st.dictionaries(
    st.builds(Partition, st.sampled_from(["a", "b"]), st.integers(0, 2)),
    st.sampled_from([Log(), Log(0, 0), Log(10, 100)]),
)


@given(offsets, offsets, logs)
def test_a_plan_and_its_undo_lead_there_and_back(current, wanted, logs) -> None:  # type: ignore[no-untyped-def]
    plan = a_plan(plan_group("g", current, wanted, logs))
    (group,) = plan.content.groups
    now = {**current}
    assert not progress(group, now)[State.DRIFTED]
    for change in group.to_do:
        assert Partition(change.topic, change.partition) in logs
        _follow(now, change)
    found = progress(group, now)
    assert found[State.PENDING] == found[State.DRIFTED] == []
    for partition, value in now.items():
        log = logs.get(partition, Log())
        if value != current.get(partition) and log.end is not None and value.offset >= 0:
            assert log.start is not None
            assert log.start <= value.offset <= log.end
    (back,) = plan.undo(2).content.groups
    assert not progress(back, now)[State.DRIFTED]
    for change in back.to_do:
        _follow(now, change)
    assert now == current


def _follow(now: dict[Partition, Committed], change: Change) -> None:
    partition = Partition(change.topic, change.partition)
    if change.target is None:
        del now[partition]
    else:
        now[partition] = change.target


def test_an_undo_names_what_it_takes_back_and_is_undone_itself() -> None:
    plan = a_plan(plan_group("g", {P0: Committed(5)}, {P0: Committed(3)}, {P0: Log()}))
    undo = plan.undo(7)
    assert (undo.content.kind, undo.content.undoes) == (PlanKind.UNDO, plan.id)
    assert undo.undo(8).content.groups == plan.content.groups


def test_topics_are_mapped_and_leader_epochs_stay_behind() -> None:
    mapped = renamed({P0: Committed(5, 9, "m"), Partition("b", 1): Committed(1)}, {"orders": "o2"})
    assert mapped == {Partition("o2", 0): Committed(5, -1, "m"), Partition("b", 1): Committed(1)}


def test_two_topics_do_not_become_one() -> None:
    with pytest.raises(ValueError, match="two topics"):
        renamed({P0: Committed(5), Partition("b", 0): Committed(1)}, {"orders": "b"})
