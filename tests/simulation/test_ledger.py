"""Worlds check that a shard and the store agree: what is made is stored once, whole and in order.
An answer is sent only when everything before it is durable.
"""

from __future__ import annotations

import msgspec
import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberFenced, MemberLeave
from groupkeeper.coordinator.core.records import OffsetsRemoved
from groupkeeper.coordinator.core.requests.admin import ListGroups, ListGroupsResult
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    SyncGroup,
    SyncGroupResult,
)
from groupkeeper.coordinator.core.step import Reply, Step
from groupkeeper.storage.base import Batch
from tests.helpers.core.shard_driver import CLIENT, a_join
from tests.simulation.history import Durable
from tests.simulation.tickets import OpenTickets, WatchedTicket


class Answers:
    """A client's ticket."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def resolve(self, result: object) -> None:
        self.told.append(result)


class Story:
    """One shard under one lease."""

    def __init__(self) -> None:
        self.durable = Durable()
        self.durable.granted(0, 1)
        self.life = self.durable.ledger.life(0, 1)
        self.client = Answers()
        self.ticket = self.asked(LeaveGroup("g", (), CLIENT))

    def asked(self, request):
        return WatchedTicket(request, self.client, self.durable.problem)

    def make(self, number, *, records=True, events=(), reply=None):
        """Add a step. Return what the store should get of it."""
        made = [OffsetsRemoved(f"g{number}", [])] if records else []
        replies = [Reply(self.ticket, reply)] if reply is not None else []
        self.life.add(Step(replies, made, list(events)))
        return Batch(made, list(events))

    def store(self, *batches):
        self.durable.stored(0, 1, batches)

    @property
    def problems(self):
        return [problem.splitlines()[0] for problem in self.durable.problems]


def left(member_id="m"):
    return MemberLeave(group_id="g", generation_id=1, member_id=member_id)


def refused():
    return MemberFenced(group_id="g", generation_id=1, member_id="m", api="Heartbeat", error="E")


@pytest.fixture
def story():
    return Story()


def test_what_is_made_is_stored_in_its_order(story):
    story.store(story.make(1), story.make(2, records=False, events=[left()]), story.make(3))
    story.durable.ledger.check_all_stored(0, 1)
    assert story.problems == []


def test_what_was_left_out_is_missed_with_what_follows(story):
    story.make(1)
    story.store(story.make(2))
    assert "made was Made(records=[OffsetsRemoved(group_id='g1'" in story.problems[0]


def test_and_where_nothing_follows_too(story):
    story.make(1, records=False, events=[left()])
    with pytest.raises(AssertionError, match=r"made and never stored: .*MemberLeave"):
        story.durable.ledger.check_all_stored(0, 1)


def test_nothing_is_stored_twice(story):
    batch = story.make(1)
    story.store(batch)
    story.store(batch)
    assert "made was None" in story.problems[0]


def test_nothing_is_stored_but_what_was_made(story):
    batch = story.make(1, events=[left()])
    story.store(Batch(batch.records, [left("another")]))
    assert "made was" in story.problems[0]


def test_an_event_stays_with_its_record(story):
    batch = story.make(1, events=[left()])
    story.store(Batch((), batch.events), Batch(batch.records, ()))
    assert "made was" in story.problems[0]


def test_refusals_may_be_merged_and_come_by_themselves(story):
    batch = story.make(1, events=[refused(), left()])
    story.make(2, records=False, events=[refused()])
    story.store(Batch(batch.records, [left()]), Batch((), [refused()]))
    story.durable.ledger.check_all_stored(0, 1)
    assert story.problems == []


def test_under_the_next_lease_another_life_begins(story):
    story.make(1)
    story.durable.granted(0, 2)
    made = Step(records=[OffsetsRemoved("g2", [])])
    story.durable.ledger.life(0, 2).add(made)
    story.durable.stored(0, 2, [Batch(made.records, ())])
    assert story.problems == []


LEFT = LeaveGroupResult(ErrorCode.NONE, ())


def test_an_answer_goes_out_once_what_it_rests_on_is_durable(story):
    batch = story.make(1, reply=LEFT)
    story.store(batch)
    story.ticket.resolve(LEFT)
    assert story.client.told == [LEFT]
    assert story.problems == []


@pytest.mark.parametrize("records", [True, False])
def test_and_not_before(story, records):
    story.make(1)
    story.make(2, records=records, reply=LEFT)
    story.ticket.resolve(LEFT)
    assert story.problems == [f"answered ahead of what it rests on: {LEFT}"]


def test_events_alone_hold_up_no_answer(story):
    story.make(1, records=False, events=[left()], reply=LEFT)
    story.ticket.resolve(LEFT)
    assert story.problems == []


def test_nor_do_records_one_that_need_not_wait(story):
    reply = msgspec.structs.replace(Reply(story.ticket, ErrorCode.NONE), waits=False)
    story.make(1)
    story.life.add(Step([reply]))
    story.ticket.resolve(ErrorCode.NONE)
    assert story.problems == []


def test_a_refusal_of_the_process_may_come_in_its_place(story):
    story.make(1, reply=LEFT)
    story.ticket.resolve(LeaveGroupResult(ErrorCode.NOT_COORDINATOR, ()))
    assert story.problems == []


HEARTBEAT = Heartbeat("g", 1, "m", None, CLIENT)
SYNC = SyncGroup("g", 1, "m", None, None, None, (), CLIENT)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (HEARTBEAT, ErrorCode.NONE),
        (SYNC, SyncGroupResult(ErrorCode.REBALANCE_IN_PROGRESS)),
        (a_join(), JoinGroupResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "")),
        (ListGroups(), ListGroupsResult(ErrorCode.NONE)),
    ],
)
def test_so_may_what_a_loading_shard_says(story, request_, answer):
    story.asked(request_).resolve(answer)
    assert story.problems == []


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID),
        (HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS),
        (SYNC, SyncGroupResult(ErrorCode.NONE)),
        (a_join(), JoinGroupResult(ErrorCode.REBALANCE_IN_PROGRESS, "")),
    ],
)
def test_but_nothing_that_takes_a_shard_to_know(story, request_, answer):
    story.asked(request_).resolve(answer)
    assert story.problems == [f"answered by no shard: {answer}"]


def two_answers_that_wait(story):
    """The tickets of both requests, in order."""
    tickets = [story.asked(HEARTBEAT), story.asked(HEARTBEAT)]
    for ticket in tickets:
        story.life.add(Step([Reply(ticket, ErrorCode.ILLEGAL_GENERATION)]))
    return tickets


def test_answers_that_wait_go_out_in_their_order(story):
    for ticket in two_answers_that_wait(story):
        ticket.resolve(ErrorCode.ILLEGAL_GENERATION)
    assert story.problems == []


def test_and_in_no_other(story):
    for ticket in reversed(two_answers_that_wait(story)):
        ticket.resolve(ErrorCode.ILLEGAL_GENERATION)
    told = f"answered behind one that was given later: {ErrorCode.ILLEGAL_GENERATION}"
    assert story.problems == [told]


def test_a_ticket_is_answered_once(story):
    story.store(story.make(1, reply=LEFT))
    story.ticket.resolve(LEFT)
    story.ticket.resolve(LEFT)
    assert story.problems == [f"answered twice: {LEFT}"]


def test_a_shard_answers_each_ticket_or_parks_it():
    tickets = OpenTickets()
    a, b, c = object(), object(), object()
    for ticket in (a, b, c):
        tickets.handed(ticket)
    tickets.after_step(Step([Reply(b, LEFT)]), [a, c])
    tickets.after_step(Step([Reply(c, LEFT)]), [a])
    tickets.after_step(Step([Reply(a, LEFT)]), [])


def test_none_is_forgotten():
    tickets = OpenTickets()
    tickets.handed("a")
    with pytest.raises(AssertionError, match="1 tickets are owed an answer, 0 are parked"):
        tickets.after_step(Step(), [])
    tickets.after_step(Step(), [])  # it is reported once


def test_none_is_answered_twice():
    tickets = OpenTickets()
    tickets.handed("a")
    with pytest.raises(AssertionError, match="answered twice, or not asked for"):
        tickets.after_step(Step([Reply("a", LEFT), Reply("a", LEFT)]), [])
