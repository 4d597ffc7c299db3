"""Worlds report each session or phase that has not ended in time, or ends too early, and nothing
else.

For an end that comes too late, time passes without timers of the shard. For an end that comes too
early, a timer is set back.
"""

from __future__ import annotations

import re

import pytest

from groupkeeper.coordinator.core.classic import rebalance
from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.cluster.group_configs import GroupOverrides
from groupkeeper.coordinator.core.deadlines import Deadline
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberEvicted, RebalanceEnd
from groupkeeper.coordinator.core.now import Now
from tests.helpers.core.shard_driver import a_member, a_stable_group, completing, stable
from tests.simulation.breakages_of_members import static_members_are_put_out
from tests.simulation.checked_shard import CheckedShard
from tests.simulation.patience import LATE_MS
from tests.simulation.world_shard_driver import WorldShardDriver

SESSION_MS = 60_000
REBALANCE_MS = 8_000
TIMEOUTS = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS}
LONG_PHASE = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 40_000}
INITIAL_DELAY_MS = 3_000
EARLY_BY_ONE = ": 1 ms before the phase may end"


class Story(WorldShardDriver):
    """Drives a shard of a world."""

    def __init__(self) -> None:
        super().__init__(initial_rebalance_delay_ms=INITIAL_DELAY_MS)

    @property
    def group(self) -> ClassicGroup:
        return self.shard.groups["g"]

    def hurry(self, deadline: Deadline, ms: int) -> list[str]:
        """Let a session or phase end after this number of ms. Return the failures."""
        self.shard.deadlines.arm(deadline, self.now.monotonic_ms + ms)
        self.durable.problems.clear()
        self.advance(ms)
        return self.durable.problems

    def pass_by(self, ms: int) -> list[str]:
        """Let time pass without an end. Return the failures."""
        self.now = Now(self.now.monotonic_ms + ms, self.now.wall_ms + ms)
        self.durable.problems.clear()
        self.shard.check_timers(self.now)
        return self.durable.problems

    def ends_within(self, ms: int, told: str) -> None:
        """Check that the session or phase must end at this time, and not before."""
        assert self.pass_by(ms + LATE_MS) == []
        (problem,) = self.pass_by(1)
        assert re.search(told, problem), problem


@pytest.fixture
def story():
    return Story()


def test_a_member_that_is_silent_is_evicted_with_its_session(story):
    a_stable_group(story, members=1, **TIMEOUTS)
    story.ends_within(SESSION_MS, "g in Stable, generation 1: .* is silent since")


@pytest.mark.parametrize("sign", ["heartbeat", "commit"])
def test_a_sign_of_life_begins_its_session_again(story, sign):
    (member,) = a_stable_group(story, members=1, **TIMEOUTS)
    story.advance(40_000)
    assert getattr(member, sign)().error is ErrorCode.NONE
    story.ends_within(SESSION_MS, "is silent since")


@pytest.mark.parametrize("sign", ["heartbeat", "commit"])
def test_one_that_is_refused_does_not(story, sign):
    (member,) = a_stable_group(story, members=1, **TIMEOUTS)
    story.advance(40_000)
    member.generation_id -= 1
    assert getattr(member, sign)().error is ErrorCode.ILLEGAL_GENERATION
    story.ends_within(SESSION_MS - 40_000, "is silent since")


def test_nor_does_a_sync_that_is_answered_with_what_is_known(story):
    (member,) = a_stable_group(story, members=1, **TIMEOUTS)
    story.advance(40_000)
    assert member.sync().error is ErrorCode.NONE
    story.ends_within(SESSION_MS - 40_000, "is silent since")


def test_a_member_that_waits_is_not_silent_and_its_session_begins_with_the_answer(story):
    short = a_member(story, session_timeout_ms=10_000, rebalance_timeout_ms=40_000)
    other = a_member(story, **TIMEOUTS)
    stable(story, short, other)
    assert a_member(story, **TIMEOUTS).join().parked
    waits = short.join()
    assert story.pass_by(35_000) == []
    assert other.join().error is waits.error is ErrorCode.NONE
    story.ends_within(10_000, "is silent since")


def test_a_first_join_phase_ends_with_the_delay_or_the_rebalance_timeout(story):
    assert a_member(story, **TIMEOUTS).join().parked
    story.ends_within(REBALANCE_MS, "g in PreparingRebalance, generation 0: should be over")


def test_a_join_phase_ends_with_the_rebalance_timeout(story):
    a_stable_group(story, **TIMEOUTS)
    assert a_member(story, **TIMEOUTS).join().parked
    story.ends_within(REBALANCE_MS, "g in PreparingRebalance, generation 1: should be over")


def bound(story: Story, ms: int | None) -> None:
    """Set ``rebalance.max.join.ms`` for the group."""
    settings = {} if ms is None else {"g": GroupOverrides(rebalance_max_join_ms=ms)}
    story._take(story.shard.configs_changed(settings, story.now))


def test_it_ends_with_what_is_set_for_its_group(story):
    preparing(story)
    bound(story, 2_000)
    story.ends_within(2_000, "g in PreparingRebalance, generation 1: should be over")


def test_what_was_set_before_it_began_bounds_it_too(story):
    bound(story, 2_000)
    assert a_member(story, **TIMEOUTS).join().parked
    story.ends_within(2_000, "g in PreparingRebalance, generation 0: should be over")


def test_what_is_set_too_late_ends_it_from_then_on(story):
    preparing(story)
    story.advance(5_000)
    assert story.pass_by(0) == []
    with pytest.MonkeyPatch.context() as meanwhile:
        meanwhile.setattr(rebalance, "overrides_changed", lambda *_: None)
        bound(story, 2_000)
    story.ends_within(0, "g in PreparingRebalance, generation 1: should be over")


def test_what_is_taken_back_bounds_nothing(story):
    preparing(story)
    bound(story, 2_000)
    bound(story, None)
    assert story.pass_by(REBALANCE_MS + LATE_MS) == []


def test_a_phase_that_others_enter_does_not_begin_again(story):
    a_stable_group(story, **TIMEOUTS)
    a_member(story, **TIMEOUTS).join()
    story.advance(5_000)
    assert a_member(story, **TIMEOUTS).join().parked
    story.ends_within(REBALANCE_MS - 5_000, "g in PreparingRebalance, generation 1")


def test_nor_does_one_in_which_members_that_may_still_come_heartbeat(story):
    _, other, gone = a_stable_group(story, members=3, **TIMEOUTS)
    gone.leave()
    story.advance(5_000)
    assert other.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    story.ends_within(REBALANCE_MS - 5_000, "g in PreparingRebalance, generation 1")


def a_group_of_absent_static_members(story, **timeouts):
    of_two = [a_member(story, instance_id=name, **timeouts) for name in "ab"]
    gone = a_member(story, **timeouts)
    stable(story, *of_two, gone)
    gone.leave()
    return of_two


def test_static_members_that_did_not_come_back_have_until_their_sessions_end(story):
    back, _ = a_group_of_absent_static_members(story, **TIMEOUTS)
    story.advance(3 * REBALANCE_MS + 3_000)
    assert story.durable.problems == []
    assert back.join().parked
    story.ends_within(REBALANCE_MS - 3_000, "g in PreparingRebalance, generation 1")


def test_their_sessions_begin_again_with_a_generation_that_is_made_without_them(story):
    timeouts = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 15_000}
    back, absent = a_group_of_absent_static_members(story, **timeouts)
    story.advance(9_000)
    assert absent.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    join = back.join()
    story.advance(6_000)
    back.joined(join)
    assert back.leads
    assert back.sync({}).error is ErrorCode.NONE
    story.ends_within(10_000, "is silent since")


def test_a_sync_phase_ends_with_the_rebalance_timeout(story):
    completing(story, a_member(story, **TIMEOUTS))
    story.ends_within(REBALANCE_MS, "g in CompletingRebalance, generation 1: should be over")


def test_who_joined_and_does_not_sync_goes_with_it_where_the_group_is_stable_too(story):
    leader, other = completing(story, *(a_member(story, **TIMEOUTS) for _ in range(2)))
    assert leader.sync({}).error is ErrorCode.NONE
    told = rf"g in Stable, generation 1: \['{other.member_id}'\] should have synced"
    story.ends_within(REBALANCE_MS, told)


def test_a_sync_that_is_refused_is_none(story):
    leader, other = completing(story, *(a_member(story, **TIMEOUTS) for _ in range(2)))
    assert leader.sync({}).error is ErrorCode.NONE
    refused = other.sync(protocol_name="another")
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    story.ends_within(REBALANCE_MS, "should have synced")


def test_a_session_begins_when_a_sync_is_answered_that_waited_for_the_leader(story):
    leader, other = completing(story, *(a_member(story, **LONG_PHASE) for _ in range(2)))
    waits = other.sync()
    story.advance(9_000)
    assert leader.sync({}).error is waits.error is ErrorCode.NONE
    story.ends_within(10_000, "is silent since")


def test_of_a_static_member_its_successor_is_awaited(story):
    old = a_member(story, instance_id="a", **TIMEOUTS)
    leader, other = completing(story, a_member(story, instance_id="b", **TIMEOUTS), old)
    assert leader.sync({}).error is ErrorCode.NONE
    new = a_member(story, instance_id=other.instance_id, **TIMEOUTS)
    new.joined(new.join())
    story.ends_within(REBALANCE_MS, f"'{other.instance_id}'. should have synced")
    assert new.sync().error is ErrorCode.NONE
    assert story.pass_by(0) == []


def test_an_id_that_nobody_joins_with_goes_with_its_session(story):
    a_stable_group(story, **TIMEOUTS)
    assert story.join(session_timeout_ms=7_000).error is ErrorCode.MEMBER_ID_REQUIRED
    story.ends_within(7_000, "should have joined")


def test_an_id_that_was_joined_with_is_a_member_and_no_longer_awaited(story):
    a_stable_group(story, members=1, **TIMEOUTS)
    handed_out = story.join(session_timeout_ms=7_000)
    assert story.join("g", handed_out.member_id, **TIMEOUTS).parked
    story.ends_within(REBALANCE_MS, "g in PreparingRebalance")


# --- As long as was asked for -----------------------------------------------------------------


KEPT_WRONGLY = {"session_timeout_ms": 10 * SESSION_MS, "rebalance_timeout_ms": 10 * REBALANCE_MS}


def keep_wrongly(story: Story) -> None:
    for member in story.group.members.values():
        member.session_timeout_ms = KEPT_WRONGLY["session_timeout_ms"]
        member.rebalance_timeout_ms = KEPT_WRONGLY["rebalance_timeout_ms"]


def test_a_session_is_as_long_as_was_asked_for_whatever_the_shard_keeps(story):
    a_stable_group(story, members=1, **TIMEOUTS)
    keep_wrongly(story)
    story.ends_within(SESSION_MS, "is silent since")


def test_so_is_a_phase(story):
    a_stable_group(story, **TIMEOUTS)
    keep_wrongly(story)
    assert a_member(story, **TIMEOUTS).join().parked
    story.ends_within(REBALANCE_MS, "g in PreparingRebalance, generation 1: should be over")


def test_so_are_both_in_a_life_that_began_with_a_load(story):
    a_stable_group(story, **TIMEOUTS)
    story.shard = CheckedShard(0, story.limits, story.image, story.durable)
    for record in story.records:
        story.shard.apply(record)
    story._take(story.shard.loaded(story.now))
    keep_wrongly(story)
    story.ends_within(SESSION_MS, "is silent since")


def test_what_a_member_asks_for_last_counts(story):
    (member,) = a_stable_group(story, members=1, **TIMEOUTS)
    member.fields.update(LONG_PHASE)
    stable(story, a_member(story, **TIMEOUTS), member)
    story.ends_within(LONG_PHASE["session_timeout_ms"], f"{member.member_id} is silent since")


def test_but_not_in_a_join_that_tells_it_its_generation_once_more(story):
    _, other = a_stable_group(story, **TIMEOUTS)
    assert other.join(**LONG_PHASE).error is ErrorCode.NONE
    story.ends_within(SESSION_MS, "is silent since")


def test_nor_in_one_that_is_refused(story):
    (member,) = a_stable_group(story, members=1, **TIMEOUTS)
    refused = member.join(protocol_type="connect", **LONG_PHASE)
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    story.ends_within(SESSION_MS, "is silent since")


# --- Too early --------------------------------------------------------------------------------


def test_a_member_is_not_evicted_before_its_session_ends(story):
    (member,) = a_stable_group(story, members=1, **TIMEOUTS)
    session = story.group.members[member.member_id].session
    (problem,) = story.hurry(session, SESSION_MS - 1)
    assert problem.startswith("MemberEvicted")
    assert "1 ms before its session ends" in problem


@pytest.mark.parametrize("sign", ["heartbeat", "commit"])
def test_nor_before_the_session_that_a_sign_of_life_begins(story, sign):
    (member,) = a_stable_group(story, members=1, **TIMEOUTS)
    story.advance(40_000)
    assert getattr(member, sign)().error is ErrorCode.NONE
    session = story.group.members[member.member_id].session
    (problem,) = story.hurry(session, SESSION_MS - 40_000)
    assert "40000 ms before its session ends" in problem


def test_nor_before_the_one_that_the_answer_to_a_sync_begins(story):
    leader, other = completing(story, *(a_member(story, **LONG_PHASE) for _ in range(2)))
    assert other.sync().parked
    story.advance(9_000)
    assert leader.sync({}).error is ErrorCode.NONE
    session = story.group.members[other.member_id].session
    (problem,) = story.hurry(session, 1_000)
    assert "9000 ms before its session ends" in problem


def test_with_its_session_it_may_go(story):
    a_stable_group(story, members=1, **TIMEOUTS)
    story.advance(SESSION_MS)
    assert [event.reason for event in story.events_of(MemberEvicted)] == ["session_timeout"]
    assert story.durable.problems == []


def preparing(story: Story) -> None:
    """Two of three members are awaited."""
    a_stable_group(story, **TIMEOUTS)
    assert a_member(story, **TIMEOUTS).join().parked


def test_a_join_phase_puts_nobody_out_before_the_rebalance_timeout(story):
    preparing(story)
    assert EARLY_BY_ONE in story.hurry(story.group.join_phase, REBALANCE_MS - 1)[0]


def test_with_the_rebalance_timeout_it_may(story):
    preparing(story)
    story.advance(REBALANCE_MS)
    assert len(story.events_of(RebalanceEnd)[-1].awaited) == 2
    assert story.durable.problems == []


ABSENT = "is static, and has until its session ends"


def one_of_two_static_members_is_back(story: Story) -> None:
    back, _ = a_group_of_absent_static_members(story, **TIMEOUTS)
    assert back.join().parked


def test_it_leaves_static_members_that_are_absent(story):
    one_of_two_static_members_is_back(story)
    story.advance(REBALANCE_MS)
    assert len(story.events_of(RebalanceEnd)[-1].awaited) == 1
    assert story.durable.problems == []


def test_one_that_puts_them_out_is_told(story):
    one_of_two_static_members_is_back(story)
    with pytest.MonkeyPatch.context() as meanwhile:
        static_members_are_put_out(meanwhile)
        story.advance(REBALANCE_MS)
    assert [event.reason for event in story.events_of(MemberEvicted)] == ["join_timeout"]
    assert ABSENT in story.durable.problems[0]


def test_so_is_one_that_puts_all_of_them_out(story):
    a_group_of_absent_static_members(story, **TIMEOUTS)
    with pytest.MonkeyPatch.context() as meanwhile:
        static_members_are_put_out(meanwhile)
        story.advance(REBALANCE_MS)
    assert ABSENT in story.durable.problems[0]


def test_with_what_is_set_for_the_group_it_may_where_nobody_is_back(story):
    a_group_of_absent_static_members(story, **TIMEOUTS)
    bound(story, 2_000)
    story.advance(2_000)
    assert [event.reason for event in story.events_of(MemberEvicted)] == 2 * ["join_timeout"]
    assert story.durable.problems == []


def test_it_may_end_as_soon_as_nobody_is_awaited(story):
    (leader,) = a_stable_group(story, members=1, **TIMEOUTS)
    new = a_member(story, **TIMEOUTS)
    waits = new.join()
    assert leader.join().error is waits.error is ErrorCode.NONE
    assert story.durable.problems == []


def test_it_may_end_with_what_is_set_for_the_group(story):
    preparing(story)
    settings = GroupOverrides(rebalance_max_join_ms=2_000)
    story._take(story.shard.configs_changed({"g": settings}, story.now))
    story.advance(2_000)
    assert len(story.events_of(RebalanceEnd)[-1].awaited) == 2
    assert story.durable.problems == []


def test_but_not_sooner(story):
    preparing(story)
    settings = GroupOverrides(rebalance_max_join_ms=2_000)
    story._take(story.shard.configs_changed({"g": settings}, story.now))
    assert EARLY_BY_ONE in story.hurry(story.group.join_phase, 1_999)[0]


def test_a_first_join_phase_lasts_for_the_initial_delay(story):
    assert a_member(story, **TIMEOUTS).join().parked
    assert EARLY_BY_ONE in story.hurry(story.group.join_phase, INITIAL_DELAY_MS - 1)[0]


def test_and_may_end_with_it(story):
    waits = a_member(story, **TIMEOUTS).join()
    story.advance(INITIAL_DELAY_MS)
    assert waits.error is ErrorCode.NONE
    assert story.durable.problems == []


def test_a_sync_phase_puts_nobody_out_before_the_rebalance_timeout(story):
    completing(story, a_member(story, **TIMEOUTS))
    (problem,) = story.hurry(story.group.sync_phase, REBALANCE_MS - 1)
    assert problem.startswith("MemberEvicted")
    assert EARLY_BY_ONE in problem


def test_nor_does_it_where_the_group_is_stable(story):
    leader, _ = completing(story, *(a_member(story, **TIMEOUTS) for _ in range(2)))
    assert leader.sync({}).error is ErrorCode.NONE
    (problem,) = story.hurry(story.group.sync_phase, REBALANCE_MS - 1)
    assert problem.startswith("MemberEvicted")


def test_with_the_rebalance_timeout_it_may_put_out_who_never_synced(story):
    completing(story, a_member(story, **TIMEOUTS))
    story.advance(REBALANCE_MS)
    assert [event.reason for event in story.events_of(MemberEvicted)] == ["sync_timeout"]
    assert story.durable.problems == []
