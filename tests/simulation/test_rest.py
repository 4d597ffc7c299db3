"""Worlds report each group at rest that differs from its record, and no other group."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.classic import behaviour
from groupkeeper.protocol.consumer_protocol import Subscription, encode_subscription
from tests.helpers.core.shard_driver import a_member, a_stable_group, protocols, stable
from tests.simulation.checked_shard import CheckedShard
from tests.simulation.world_shard_driver import WorldShardDriver


class Story(WorldShardDriver):
    """Drives a shard of a world."""

    @property
    def group(self):
        return self.shard.groups["g"]

    def look(self):
        self.durable.problems.clear()
        self.shard.check_rest()
        return self.durable.problems

    def load(self):
        self.shard = CheckedShard(0, self.limits, self.image, self.durable)
        for record in self.records:
            self.shard.apply(record)
        self._take(self.shard.loaded(self.now))


@pytest.fixture
def story():
    return Story()


def consumers(story, *topics):
    """Return a Stable group with one consumer for each topic."""
    of = [
        protocols("range", subscription=encode_subscription(Subscription(1, [t]))) for t in topics
    ]
    return stable(story, *(a_member(story, protocols=each) for each in of))


def one_consumer(story):
    consumers(story, "orders")


def an_empty_group(story):
    for member in consumers(story, "orders"):
        member.leave()


@pytest.mark.parametrize("make", [one_consumer, an_empty_group, a_stable_group])
def test_a_group_is_what_its_record_says_before_a_load_and_after_it(story, make):
    make(story)
    assert story.look() == []
    story.load()
    assert story.durable.problems == []
    assert story.look() == []


def test_an_empty_group_that_forgot_its_type_is_told(story):
    an_empty_group(story)
    story.group.protocol_type = None
    (problem,) = story.look()
    assert problem.startswith("g: at rest as GroupRecord(group_id='g', protocol_type=None")


def test_a_load_that_forgets_it_is_told_at_once(story, monkeypatch):
    an_empty_group(story)
    restore = behaviour.restore

    def forgetful(group):
        restore(group)
        group.protocol_type = None

    monkeypatch.setattr(behaviour, "restore", forgetful)
    story.load()
    (problem,) = story.durable.problems
    assert problem.startswith("g: at rest as")


@pytest.mark.parametrize("known", [{"orders"}, {"orders", "payments", "more"}, None])
def test_what_the_members_consume_is_known(story, known):
    consumers(story, "orders", "payments")
    assert story.look() == []
    story.group.subscribed_topics = known
    (problem,) = story.look()
    assert problem.endswith(f"is taken to consume {known}")


def test_a_group_under_way_is_not_judged(story):
    consumers(story, "orders")
    assert a_member(story).join().parked
    story.group.protocol_type = "connect"
    assert story.look() == []
