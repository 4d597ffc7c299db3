"""Worlds check that each member that leaves has one event, and that no answer is sent before the
records that it depends on.
"""

from __future__ import annotations

import msgspec
import pytest

from groupkeeper.coordinator.core.classic import membership, rebalance
from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberEvicted, MemberLeave
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    LeaveGroupResult,
    LeavingMember,
)
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Reply, Step
from tests.helpers.core.shard_driver import (
    CLIENT,
    SESSION_MS,
    a_member,
    a_stable_group,
    stable,
)
from tests.simulation.roll_call import check_goes_on, check_waits
from tests.simulation.world_shard_driver import WorldShardDriver

GOOD_NEWS = [ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS]


class Story(WorldShardDriver):
    """Drives a shard of a world."""

    def group_generation(self) -> int:
        return self.shard.groups["g"].generation_id

    @property
    def problems(self) -> list[str]:
        return [problem.splitlines()[0] for problem in self.durable.problems]


@pytest.fixture
def story():
    return Story()


def repeated_events(monkeypatch: pytest.MonkeyPatch, kind: type, times: int) -> None:
    """Repeat each event of this kind ``times`` times."""
    event = ShardState.event

    def told(self, fact):
        for _ in range(times if isinstance(fact, kind) else 1):
            event(self, fact)

    monkeypatch.setattr(ShardState, "event", told)


def test_members_that_come_and_go_as_they_are_told_to_are_fine(story):
    of_two = [a_member(story, instance_id=name) for name in "ab"]
    stable(story, *of_two, a_member(story))
    a_member(story, instance_id="a").join()  # takes the place of one
    of_two[1].leave()
    story.advance(2 * SESSION_MS)
    assert {type(event) for event in story.events} >= {MemberEvicted, MemberLeave}
    assert story.problems == []


@pytest.mark.parametrize("times", [0, 2])
def test_an_eviction_is_told_once(story, monkeypatch, times):
    (member,) = a_stable_group(story, members=1)
    repeated_events(monkeypatch, MemberEvicted, times)
    story.advance(SESSION_MS)
    gone = ("g", member.member_id)
    told = {gone: times} if times else {}
    assert f"went: { {gone: 1} }, told to have gone: {told}" in story.problems[0]


@pytest.mark.parametrize("times", [0, 2])
def test_a_leave_is_told_once(story, monkeypatch, times):
    (member,) = a_stable_group(story, members=1)
    repeated_events(monkeypatch, MemberLeave, times)
    member.leave()
    assert "told to have gone" in story.problems[0]


@pytest.mark.parametrize("is_static", [False, True])
def test_who_is_told_to_have_left_is_no_member(story, monkeypatch, is_static):
    member = a_member(story, instance_id="a" if is_static else None)
    stable(story, member)
    monkeypatch.setattr(membership, "_leave", lambda *_: ErrorCode.NONE)
    leaving = LeavingMember("" if is_static else member.member_id, member.instance_id)
    story.leave("g", leaving)
    assert story.problems[0].endswith("said to have left, stays")


def test_who_is_told_to_have_gone_has_gone(story, monkeypatch):
    (member,) = a_stable_group(story, members=1)
    monkeypatch.setattr(rebalance, "remove_member", lambda *_: None)
    member.leave()
    assert any("told to have gone" in problem for problem in story.problems)


def test_who_was_refused_may_stay(story):
    (member,) = a_stable_group(story, members=1)
    story.leave("g", LeavingMember(member.member_id, "another"), LeavingMember("stranger", None))
    assert story.problems == []


@pytest.mark.parametrize("code", GOOD_NEWS)
@pytest.mark.parametrize("instance_id", [None, "a"])
def test_a_member_may_go_on(story, code, instance_id):
    member = a_member(story, instance_id=instance_id)
    stable(story, member)
    for told in {instance_id, None}:
        request = Heartbeat("g", 1, member.member_id, told, CLIENT)
        check_goes_on(story.shard, request, code)


@pytest.mark.parametrize("code", GOOD_NEWS)
@pytest.mark.parametrize(
    "changes",
    [
        {"generation_id": 0},
        {"generation_id": 2},
        {"member_id": "stranger"},
        {"group_instance_id": "b"},
        {"group_id": "h"},
    ],
)
def test_nobody_else_may(story, code, changes):
    member = a_member(story, instance_id="a")
    stable(story, member)
    request = Heartbeat("g", 1, member.member_id, "a", CLIENT)
    other = msgspec.structs.replace(request, **changes)
    check_goes_on(story.shard, other, ErrorCode.ILLEGAL_GENERATION)
    with pytest.raises(AssertionError, match="is told to go on"):
        check_goes_on(story.shard, other, code)


@pytest.mark.parametrize("result", GOOD_NEWS)
def test_a_good_answer_to_a_heartbeat_may_hurry(result):
    check_waits(Step([Reply(None, result, waits=False)]))


@pytest.mark.parametrize(
    "result", [ErrorCode.UNKNOWN_MEMBER_ID, LeaveGroupResult(ErrorCode.NONE, ())]
)
def test_no_other_answer_may(result):
    reply = Reply(None, result)
    check_waits(Step([reply]))
    with pytest.raises(AssertionError, match="does not wait for its records"):
        check_waits(Step([msgspec.structs.replace(reply, waits=False)]))


def test_each_join_phase_makes_the_next_generation(story):
    members = [a_member(story) for _ in range(2)]
    stable(story, *members)
    members[1].leave()
    story.advance(2 * SESSION_MS)
    assert story.group_generation() == 2
    assert story.problems == []


def test_a_generation_is_not_used_again(story, monkeypatch):
    leader, other = a_stable_group(story)
    other.leave()
    monkeypatch.setattr(ClassicGroup, "next_generation", lambda _: None)
    leader.join()
    assert "generation_id=1" in story.problems[0]
    assert story.problems[0].endswith("after generation 1")


def test_nor_does_it_change_with_no_word_of_it(story):
    assert a_member(story).join().parked
    story.shard.groups["g"].next_generation()
    story.heartbeat("g", "nobody", 1)
    assert "g: generation 1, was 0" in story.problems


def test_a_group_that_was_deleted_begins_again(story):
    (member,) = a_stable_group(story, members=1)
    member.leave()
    story.send(DeleteGroup("g", CLIENT))
    a_stable_group(story, members=1)
    assert story.group_generation() == 1
    assert story.problems == []
