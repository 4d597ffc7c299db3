"""Worlds check that clients that are not members, or were replaced, get an error, and that leaders
learn what members sent.
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.membership import JoinProtocol
from tests.helpers.core.shard_driver import a_member, stable
from tests.simulation.world_shard_driver import WorldShardDriver

CALLS = ["heartbeat", "sync", "commit", "join"]


class Story(WorldShardDriver):
    """Drives a shard of a world with a static member that was replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.old, other = a_member(self, instance_id="a"), a_member(self)
        stable(self, self.old, other)
        assert a_member(self, instance_id="a").join().error is ErrorCode.NONE

    def ask(self, call: str) -> None:
        """The member that was replaced."""
        getattr(self.old, call)(**({"topics": {"orders": {0: 5}}} if call == "commit" else {}))


@pytest.fixture
def story():
    return Story()


@pytest.mark.parametrize("call", CALLS)
def test_who_is_told_that_it_was_replaced_is_fine(story, call):
    story.ask(call)
    assert story.durable.problems == []


@pytest.mark.parametrize("call", CALLS)
def test_who_was_replaced_is_told_so(story, monkeypatch, call):
    monkeypatch.setattr(ClassicGroup, "identity_error", lambda *_: ErrorCode.UNKNOWN_MEMBER_ID)
    story.ask(call)
    assert story.durable.problems[0].endswith(
        " as a: is answered ['UNKNOWN_MEMBER_ID'], is FENCED_INSTANCE_ID"
    )


@pytest.mark.parametrize("call", CALLS)
def test_who_is_no_member_is_told_so(story, monkeypatch, call):
    """It must not get the error of another member."""
    story.old.member_id, story.old.instance_id = "nobody", None
    story.ask(call)
    assert story.durable.problems == []
    monkeypatch.setattr(ClassicGroup, "identity_error", lambda *_: ErrorCode.FENCED_INSTANCE_ID)
    story.ask(call)
    assert story.durable.problems[0].endswith(
        "nobody as None: is answered ['FENCED_INSTANCE_ID'], is UNKNOWN_MEMBER_ID"
    )


def test_nobody_else_commits(story, monkeypatch):
    monkeypatch.setattr(ClassicGroup, "commit_error", lambda *_: ErrorCode.NONE)
    monkeypatch.setattr(ClassicGroup, "commit_restarts_session", lambda _: False)
    story.ask("commit")
    assert "as a: is answered ['NONE'], is FENCED_INSTANCE_ID" in story.durable.problems[0]


def test_anybody_may_commit_to_a_group_without_members(story):
    story.commit("h", {"orders": {0: 5}})
    story.commit("h", {"orders": {0: 6}}, member_id="somebody", group_instance_id="b")
    assert story.durable.problems == []


@pytest.mark.parametrize("keeps", [True, False])
def test_the_leader_is_shown_what_members_sent_last(story, monkeypatch, keeps):
    if not keeps:
        monkeypatch.setattr(ClassicGroup, "set_protocols", lambda *_: None)
    leader, other = a_member(story, group_id="h"), a_member(story, group_id="h")
    stable(story, leader, other)
    assert other.join(protocols=(JoinProtocol("range", b"changed"),)).parked
    call = leader.join()
    story.advance_until_answered(call)
    assert (story.durable.problems == []) is keeps
    assert keeps or "sent b'changed'" in story.durable.problems[0]
