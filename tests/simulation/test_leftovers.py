"""Worlds report each offset or group that should be deleted and stays for longer than one pass, and
nothing else. Tested with a pass that deletes nothing.
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.cluster.group_configs import GroupOverrides
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.offsets import retention
from groupkeeper.coordinator.core.requests.membership import JoinProtocol
from groupkeeper.protocol.consumer_protocol import Subscription, encode_subscription
from tests.helpers.core.shard_driver import a_member, a_stable_group, stable
from tests.simulation.patience import LATE_MS
from tests.simulation.world_shard_driver import WorldShardDriver

PASS_MS = 7_000
RETENTION_MS = 20_000
AT_MOST_MS = PASS_MS + LATE_MS


class Story(WorldShardDriver):
    """Drives a shard of a world."""

    def __init__(self) -> None:
        super().__init__(offsets_retention_ms=RETENTION_MS, retention_check_interval_ms=PASS_MS)

    def look(self, ms: int = 0, *, set_ms: int = 0) -> list[str]:
        """Let time pass without a timer. The wall clock may be set."""
        self.now = Now(self.now.monotonic_ms + ms, self.now.wall_ms + ms + set_ms)
        self.durable.problems.clear()
        self.shard.check_leftovers(self.now)
        return self.durable.problems

    def stays(self, told: str) -> None:
        """Make an offset or a group that is expired from now on. The next pass should delete it."""
        assert self.look() == []
        assert self.look(AT_MOST_MS) == []
        assert self.look(1) == [f"{told}: should have gone {AT_MOST_MS + 1} ms ago"]


@pytest.fixture
def story():
    return Story()


def commit(story, **changes):
    story.commit(topics={"orders": {0: 5}}, **changes)


def test_an_offset_that_is_past_its_time_has_to_go(story):
    commit(story)
    assert story.look(RETENTION_MS - 1) == []
    story.look(1)
    story.stays("('g', 'orders', 0)")


def test_so_has_one_that_is_past_what_its_commit_named(story):
    commit(story, retention_ms=5_000)
    assert story.look(4_999) == []
    story.look(1)
    story.stays("('g', 'orders', 0)")


def test_what_is_set_for_its_group_counts(story):
    commit(story)
    settings = GroupOverrides(offsets_retention_ms=60_000)
    story._take(story.shard.configs_changed({"g": settings}, story.now))
    assert story.look(59_999) == []
    story.look(1)
    story.stays("('g', 'orders', 0)")


def test_an_offset_of_a_group_counts_from_when_that_is_empty(story):
    (member,) = a_stable_group(story, members=1)
    member.commit(topics={"orders": {0: 5}})
    story.look(15_000)
    member.leave()
    assert story.look(RETENTION_MS - 1) == []
    story.look(1)
    story.stays("('g', 'orders', 0)")


def test_what_members_consume_stays(story):
    subscription = encode_subscription(Subscription(1, ["orders"]))
    member = a_member(story, protocols=(JoinProtocol("range", subscription),))
    stable(story, member)
    member.commit(topics={"orders": {0: 5}, "payments": {0: 5}})
    story.look(RETENTION_MS)
    story.stays("('g', 'payments', 0)")


def test_a_group_with_nothing_left_has_to_go(story):
    (member,) = a_stable_group(story, members=1)
    member.leave()
    story.stays("('g', '', -1)")


def test_a_clock_that_is_set_back_begins_again(story):
    commit(story)
    story.look(RETENTION_MS)
    assert story.look(1_000, set_ms=-30_000) == []
    story.look(30_000 - 1_000)
    story.stays("('g', 'orders', 0)")


def test_what_goes_in_time_is_fine(story):
    commit(story)
    a_stable_group(story, group_id="h", members=1)
    story.advance(10 * PASS_MS)
    assert not story.shard.groups
    assert story.durable.problems == []


@pytest.mark.parametrize("broken", ["_is_expired", "_remove_group"])
def test_what_the_timers_leave_is_seen_by_them(story, monkeypatch, broken):
    monkeypatch.setattr(retention, broken, lambda *_: False)
    commit(story)
    story.advance(RETENTION_MS + 3 * PASS_MS)
    assert "should have gone" in story.durable.problems[0]
