"""Worlds check that each deleted offset has an event, and that a request asked for it."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    GroupDeleted,
    LostPartition,
    LostTopic,
    OffsetDeleted,
)
from groupkeeper.coordinator.core.records import (
    CommittedTopic,
    GroupRemoved,
    OffsetsCommitted,
    OffsetsRemoved,
    TopicRecord,
    TopicRemoved,
)
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.offsets import OffsetDelete, OffsetDeleteResult
from groupkeeper.storage.base import Batch
from tests.simulation.checker import check_losses
from tests.simulation.history import Durable, Op

CLIENT = Client("app", "/10.0.0.1")
NONE = ErrorCode.NONE
LOST = [LostTopic("orders", "t", [LostPartition(0, 5, -1, "", 0)])]
REMOVED = OffsetsRemoved("g", [("orders", 0)])


class Story:
    """One offset of one group, and the requests that named it."""

    def __init__(self) -> None:
        self.durable = Durable()
        self.history: list[Op] = []
        self.durable.granted(0, 1)
        self.store([TopicRecord("orders", "t", 4)])
        topics = [CommittedTopic("orders", "t", [(0, 5, -1, -1, "")])]
        self.store([OffsetsCommitted("g", -1, "", None, "app", "", "", 0, -1, topics)])

    def store(self, records, *events):
        self.durable.stored(0, 1, [Batch(records, events)])

    def ask(self, request):
        op = Op("app", request, 0.0, self.durable.position)
        self.history.append(op)
        return op

    def answer(self, op, result):
        op.result, op.answered_at = result, self.durable.position

    def lose(self, reason):
        self.store([REMOVED], OffsetDeleted(group_id="g", topics=LOST, reason=reason))

    def check(self):
        assert self.durable.problems == []
        check_losses(self.durable, self.history)


@pytest.fixture
def story():
    return Story()


def delete(*partitions, group_id="g"):
    return OffsetDelete(group_id, (("orders", list(partitions)),), CLIENT)


def test_an_offset_goes_with_who_asks_for_it(story):
    op = story.ask(delete(0, 1))
    story.lose("deleted")
    story.answer(op, OffsetDeleteResult(NONE, ()))
    story.check()


@pytest.mark.parametrize("request_", [delete(1), delete(0, group_id="h"), DeleteGroup("g", CLIENT)])
def test_but_with_nobody_else(story, request_):
    story.ask(request_)
    story.lose("deleted")
    with pytest.raises(AssertionError, match="nobody asked for"):
        story.check()


def test_nor_before_it_is_asked_for(story):
    story.lose("deleted")
    story.ask(delete(0))
    with pytest.raises(AssertionError, match="nobody asked for"):
        story.check()


def test_nor_after_that_was_done(story):
    story.answer(story.ask(delete(0)), OffsetDeleteResult(NONE, ()))
    story.lose("deleted")
    with pytest.raises(AssertionError, match="nobody asked for"):
        story.check()


def test_but_after_an_answer_that_leaves_it_open(story):
    story.answer(story.ask(delete(0)), OffsetDeleteResult(ErrorCode.NOT_COORDINATOR))
    story.lose("deleted")
    story.check()


def deleted_group(story):
    gone = GroupDeleted(group_id="g", generation_id=0, reason="deleted", offsets=1)
    lost = OffsetDeleted(group_id="g", topics=LOST, reason="group_deleted")
    story.store([GroupRemoved("g")], lost, gone)


def test_a_group_goes_with_its_offsets_and_who_asks_for_it(story):
    story.ask(DeleteGroup("g", CLIENT))
    deleted_group(story)
    story.check()


@pytest.mark.parametrize("request_", [DeleteGroup("h", CLIENT), delete(0)])
def test_but_with_nobody_else_either(story, request_):
    story.ask(request_)
    deleted_group(story)
    with pytest.raises(AssertionError, match="nobody asked for"):
        story.check()


@pytest.mark.parametrize("again", [None, TopicRecord("orders", "another", 4)])
def test_an_offset_goes_with_its_topic(story, again):
    story.store([TopicRemoved("orders")] if again is None else [again])
    story.lose("topic_deleted")
    story.check()


def test_but_not_while_that_stands(story):
    story.lose("topic_deleted")
    with pytest.raises(AssertionError, match="the topic stands"):
        story.check()


def test_none_goes_without_a_word(story):
    story.store([REMOVED])
    with pytest.raises(AssertionError, match="offsets that went"):
        story.check()


def test_none_goes_with_a_group_without_a_word(story):
    story.store([GroupRemoved("g")])
    with pytest.raises(AssertionError, match="offsets that went"):
        story.check()
