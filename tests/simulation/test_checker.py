"""The checker against wrong histories, written by hand. Each has one fault, and a twin without it
that passes.
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    Assignment,
    LostPartition,
    LostTopic,
    OffsetDeleted,
)
from groupkeeper.coordinator.core.records import (
    GroupRemoved,
    OffsetsRemoved,
)
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.membership import (
    JoinGroup,
    JoinGroupResult,
    SyncGroup,
    SyncGroupResult,
)
from groupkeeper.coordinator.core.requests.offsets import (
    OffsetCommit,
    OffsetCommitResult,
    OffsetDelete,
    OffsetDeleteResult,
    OffsetFetch,
    OffsetFetchResult,
)
from groupkeeper.coordinator.core.requests.topics import (
    ChangeTopics,
    ChangeTopicsResult,
    TopicChange,
)
from tests.simulation.checker import check_acknowledged, check_log
from tests.simulation.story import Story, assignment

CLIENT = Client("app", "/10.0.0.1")
NONE = ErrorCode.NONE


def a_commit(offset, *, generation=-1, member="", epoch=-1, metadata="", retention_ms=-1):
    topics = [("orders", "", [(0, offset, epoch, metadata)])]
    error = ErrorCode.ILLEGAL_GENERATION
    return OffsetCommit("g", generation, member, None, topics, False, retention_ms, error, CLIENT)


def a_sync(generation, member):
    return SyncGroup("g", generation, member, None, None, None, (), CLIENT)


def a_join():
    return JoinGroup("g", "m1", None, "consumer", (), 1, 1, "m1", True, True, CLIENT)


ALL = OffsetFetch("g", None, False, True)
NAMED = OffsetFetch("g", [("orders", "", [0])], False, True)
COMMITTED = OffsetCommitResult(NONE)


def shown(offset, epoch=-1, metadata=""):
    return OffsetFetchResult(NONE, [("orders", "", [(0, offset, epoch, metadata, NONE)])])


@pytest.fixture
def story():
    return Story()


# --- Commits -------------------------------------------------------------------------------------


def test_a_commit_that_is_acknowledged_and_stored_is_fine(story):
    op = story.ask(a_commit(5))
    story.commit(5)
    story.answer(op, COMMITTED)
    check_acknowledged(story.durable, op)
    story.check()


def test_a_commit_that_is_acknowledged_and_not_stored_is_lost(story):
    op = story.answer(story.ask(a_commit(5)), COMMITTED)
    with pytest.raises(AssertionError, match="not durable"):
        check_acknowledged(story.durable, op)
    story.fails("is lost")


def test_a_commit_that_is_stored_after_its_acknowledgement_was_acknowledged_too_early(story):
    story.answer(story.ask(a_commit(5)), COMMITTED)
    story.commit(5)
    story.fails("too early")


def test_a_commit_that_nobody_made_is_invented(story):
    story.commit(5)
    story.fails("nobody committed it")


def test_a_commit_may_be_stored_if_its_client_never_knew(story):
    story.ask(a_commit(5))
    story.commit(5)
    story.check()


def test_a_commit_that_was_refused_is_not_stored(story):
    op = story.ask(a_commit(5))
    story.commit(5)
    story.answer(op, OffsetCommitResult(ErrorCode.ILLEGAL_GENERATION))
    story.fails("refused with ILLEGAL_GENERATION, and is stored")


def test_a_commit_whose_coordinator_was_lost_may_be_stored(story):
    op = story.ask(a_commit(5))
    story.commit(5)
    story.answer(op, OffsetCommitResult(ErrorCode.NOT_COORDINATOR))
    story.check()


@pytest.mark.parametrize(("epoch", "metadata"), [(4, "note"), (-1, "note"), (3, ""), (3, "other")])
def test_a_commit_is_stored_with_its_leader_epoch_and_metadata(story, epoch, metadata):
    op = story.ask(a_commit(5, epoch=3, metadata="note"))
    story.commit(5, epoch=epoch, metadata=metadata)
    story.answer(op, COMMITTED)
    story.fails("committed with .3, 'note'., is kept with")


def test_a_commit_of_an_old_client_has_no_leader_epoch(story):
    op = story.ask(a_commit(5, epoch=3, metadata="note"), has_epochs=False)
    story.commit(5, metadata="note")
    story.answer(op, COMMITTED)
    story.check()


@pytest.mark.parametrize(("sent_ms", "kept_ms"), [(-1, -1), (0, 1_000), (500, 1_500)])
def test_a_commit_is_kept_as_long_as_it_says(story, sent_ms, kept_ms):
    op = story.ask(a_commit(5, retention_ms=sent_ms))
    story.commit(5, expire_ms=kept_ms)
    story.answer(op, COMMITTED)
    story.check()
    op.request = a_commit(5, retention_ms=sent_ms + 1)
    story.fails("5 is to be kept")


def test_a_commit_of_a_new_client_says_nothing_of_that(story):
    op = story.ask(a_commit(5, retention_ms=500), has_retention=False)
    story.commit(5)
    story.answer(op, COMMITTED)
    story.check()


def test_a_commit_is_stored_once(story):
    op = story.ask(a_commit(5))
    story.commit(5)
    story.commit(5)
    story.answer(op, COMMITTED)
    story.fails("stored 2 times")


def test_a_commit_is_kept_as_of_who_made_it(story):
    story.generation(2, m1=[0], m2=[])
    op = story.ask(a_commit(5, generation=2, member="m1"))
    story.commit(5, generation=2, member="m2")
    story.answer(op, COMMITTED)
    story.fails("is kept as of")


def test_a_commit_of_another_generation_is_not_accepted(story):
    story.generation(3, m1=[0])
    op = story.ask(a_commit(5, generation=2, member="m1"))
    story.commit(5, generation=2, member="m1")
    story.answer(op, COMMITTED)
    story.fails("accepted of m1 in generation 2")


def test_a_commit_of_a_member_that_is_gone_is_not_accepted(story):
    story.generation(3, m2=[0])
    op = story.ask(a_commit(5, generation=3, member="m1"))
    story.commit(5, generation=3, member="m1")
    story.answer(op, COMMITTED)
    story.fails("accepted of m1 in generation 3")


def test_a_commit_from_outside_is_not_accepted_while_there_are_members(story):
    story.generation(3, m1=[0])
    op = story.ask(a_commit(5))
    story.commit(5)
    story.answer(op, COMMITTED)
    story.fails("from outside")


def test_a_partition_that_was_made_is_not_unknown(story):
    change = TopicChange("orders", "t", 2, NONE, None)
    grown = ChangeTopicsResult(NONE, (), (change,), ())
    story.answer(story.ask(ChangeTopics(CLIENT, grow=(("orders", 2),))), grown)
    unknown = [("orders", "", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])]
    story.answer(story.ask(a_commit(5)), OffsetCommitResult(NONE, unknown))
    story.fails("said to be unknown")


# --- Reads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [ALL, NAMED])
def test_what_is_stored_may_be_read(story, read):
    story.ask(a_commit(5))
    story.commit(5)
    story.answer(story.ask(read), shown(5))
    story.check()


@pytest.mark.parametrize("read", [ALL, NAMED])
def test_it_is_read_with_its_leader_epoch_and_metadata(story, read):
    story.ask(a_commit(5, epoch=3, metadata="note"))
    story.commit(5, epoch=3, metadata="note")
    story.answer(story.ask(read), shown(5, 3, "note"))
    story.answer(story.ask(read, has_epochs=False), shown(5, -1, "note"))
    story.check()


@pytest.mark.parametrize(("epoch", "metadata"), [(4, "note"), (-1, "note"), (3, ""), (3, "other")])
def test_it_is_not_read_with_another_leader_epoch_or_metadata(story, epoch, metadata):
    story.ask(a_commit(5, epoch=3, metadata="note"))
    story.commit(5, epoch=3, metadata="note")
    story.answer(story.ask(NAMED), shown(5, epoch, metadata))
    story.fails("5 was read with .*, is stored with .3, 'note'.")


def test_an_offset_that_was_never_committed_is_not_read(story):
    story.answer(story.ask(NAMED), shown(0))
    story.fails("0 was read")


@pytest.mark.parametrize("read", [ALL, NAMED])
def test_nothing_is_not_read_where_something_is_stored(story, read):
    story.ask(a_commit(5))
    story.commit(5)
    nothing = OffsetFetchResult(NONE, []) if read is ALL else shown(-1)
    story.answer(story.ask(read), nothing)
    story.fails("-1 was read")


def test_an_old_value_is_not_read_once_the_new_one_is_durable(story):
    story.ask(a_commit(5))
    story.ask(a_commit(6))
    story.commit(5)
    story.commit(6)
    story.answer(story.ask(NAMED), shown(5))
    story.fails("5 was read")


def test_either_value_is_read_while_the_new_one_becomes_durable(story):
    story.ask(a_commit(5))
    story.ask(a_commit(6))
    story.commit(5)
    first, second = story.ask(NAMED), story.ask(NAMED)
    story.commit(6)
    story.answer(first, shown(5))
    story.answer(second, shown(6))
    story.check()


def test_a_value_is_not_read_before_it_is_durable(story):
    story.ask(a_commit(5))
    story.answer(story.ask(NAMED), shown(5))
    story.commit(5)
    story.fails("5 was read")


def test_an_owner_without_its_lease_may_be_as_old_as_its_loss_and_no_older(story):
    for offset in (5, 6, 7):
        story.ask(a_commit(offset))
    story.commit(5)
    story.commit(6)
    lost_at = story.durable.position
    story.commit(7)
    story.answer(story.ask(NAMED), shown(6), void_at=lost_at)
    story.check()
    story.answer(story.ask(NAMED), shown(5), void_at=lost_at)
    story.fails("5 was read")


# --- Generations and ownership -------------------------------------------------------------------


def test_nobody_is_told_of_an_earlier_generation_than_one_that_was_synced(story):
    story.generation(3, m1=[0])
    story.answer(story.ask(a_sync(3, "m1")), SyncGroupResult(NONE, assignment(0)))
    story.answer(story.ask(a_join()), JoinGroupResult(NONE, "m1", 2))
    story.fails("generation 2 after 3")


def test_a_group_that_was_deleted_begins_with_its_first_generation(story):
    story.generation(3, m1=[0])
    story.answer(story.ask(a_sync(3, "m1")), SyncGroupResult(NONE, assignment(0)))
    story.store(GroupRemoved("g"))
    story.answer(story.ask(a_join()), JoinGroupResult(NONE, "m1", 1))
    story.check()


def test_a_partition_is_not_owned_twice_in_a_generation(story):
    story.generation(3, m1=[0], m2=[0, 1])
    story.answer(story.ask(a_sync(3, "m1")), SyncGroupResult(NONE, assignment(0)))
    story.answer(story.ask(a_sync(3, "m2")), SyncGroupResult(NONE, assignment(0, 1)))
    story.fails("held by m1 and m2")


def test_a_static_member_under_a_new_id_takes_over_what_the_old_one_had(story):
    story.generation(3, old=[0])
    story.answer(story.ask(a_sync(3, "old")), SyncGroupResult(NONE, assignment(0)))
    story.generation(3, new=[0])
    story.answer(story.ask(a_sync(3, "new")), SyncGroupResult(NONE, assignment(0)))
    story.check()


def test_an_assignment_that_is_told_is_durable(story):
    story.generation(3, m1=[0])
    op = story.answer(story.ask(a_sync(3, "m1")), SyncGroupResult(NONE, assignment(1)))
    with pytest.raises(AssertionError, match="is not durable"):
        check_acknowledged(story.durable, op)


# --- Administration ------------------------------------------------------------------------------


def test_a_group_that_is_said_to_be_deleted_is(story):
    story.commit(5)
    op = story.answer(story.ask(DeleteGroup("g", CLIENT)), NONE)
    with pytest.raises(AssertionError, match="said to be deleted"):
        check_acknowledged(story.durable, op)


def test_an_offset_that_is_said_to_be_deleted_is(story):
    story.commit(5)
    op = story.ask(OffsetDelete("g", (("orders", [0]),), CLIENT))
    story.answer(op, OffsetDeleteResult(NONE, (("orders", [(0, NONE)]),)))
    with pytest.raises(AssertionError, match="said to be deleted"):
        check_acknowledged(story.durable, op)


def test_a_topic_that_is_said_to_be_made_is(story):
    change = TopicChange("new", "t", 2, NONE, None)
    op = story.answer(story.ask(ChangeTopics(CLIENT)), ChangeTopicsResult(NONE, (change,)))
    with pytest.raises(AssertionError, match="said to be made"):
        check_acknowledged(story.durable, op)


# --- What is checked as it becomes durable -------------------------------------------------------


def problem(story):
    (found,) = story.durable.problems
    return found


def test_an_append_under_a_lease_that_was_lost_is_not_accepted(story):
    story.durable.granted(0, 2)
    story.commit(5)
    assert "fence 1 accepted, the lease is 2" in problem(story)


def test_an_epoch_is_given_out_once(story):
    story.durable.granted(0, 3)
    story.durable.granted(0, 2)
    assert "epoch 2 was given out after 3" in problem(story)


def test_a_durable_generation_never_goes_back(story):
    story.generation(3, m1=[0])
    story.generation(2, m1=[0])
    assert "generation 2 after 3" in problem(story)


def test_a_commit_tells_what_it_replaces(story):
    story.commit(5)
    story.commit(6, previous=4)
    assert "replaces 4, 5 was stored" in problem(story)


def test_an_assignment_event_does_not_precede_its_record(story):
    event = Assignment(group_id="g", generation_id=3, protocol_type="consumer")
    story.store(events=[event])
    assert "and no group" in problem(story)


def test_a_log_is_whole_and_its_time_does_not_go_back():
    events = [
        {"seq": n, "log_id": "a" if n < 3 else "b", "ts_ms": 10 - n // 3} for n in (1, 2, 3, 4)
    ]
    events[2] |= {"kind": "log_started", "previous_log_id": "a", "previous_seq": 2}
    check_log(events, 3)
    with pytest.raises(AssertionError, match="of the log"):
        check_log(events, 4)
    with pytest.raises(AssertionError, match="of the log"):
        check_log([events[0], *events], 4)
    for wrong in ({"previous_seq": 1}, {"previous_log_id": "z"}, {"kind": "commit"}):
        with pytest.raises(AssertionError):
            check_log([*events[:2], events[2] | wrong, events[3]], 3)
    with pytest.raises(AssertionError):
        check_log([events[0], events[1] | {"ts_ms": 5}, {**events[0], "seq": 3, "ts_ms": 4}], 3)


@pytest.mark.parametrize(("epoch", "metadata"), [(3, ""), (-1, "note")])
def test_an_event_tells_all_of_what_was_lost(story, epoch, metadata):
    story.commit(5, epoch=3, metadata="note")
    lost = [LostTopic("orders", "t", [LostPartition(0, 5, epoch, metadata, 0)])]
    event = OffsetDeleted(group_id="g", topics=lost, reason="deleted")
    story.store(OffsetsRemoved("g", [("orders", 0)]), events=[event])
    assert "5 lost with" in problem(story)


def test_a_deletion_event_does_not_precede_its_record(story):
    story.commit(5)
    lost = [LostTopic("orders", "t", [LostPartition(0, 5, -1, "", 0)])]
    event = OffsetDeleted(group_id="g", topics=lost, reason="deleted")
    story.store(events=[event])
    assert "lost, and still stored" in problem(story)


def test_a_deletion_event_tells_the_last_value(story):
    story.commit(5)
    lost = [LostTopic("orders", "t", [LostPartition(0, 4, -1, "", 0)])]
    event = OffsetDeleted(group_id="g", topics=lost, reason="deleted")
    story.store(OffsetsRemoved("g", [("orders", 0)]), events=[event])
    assert "4 lost of 5" in problem(story)


# --- What is named twice -------------------------------------------------------------------------

TWICE = OffsetFetch("g", [("orders", "", [0]), ("orders", "", [0])], False, True)


def rows(*offsets):
    """The answer to an OffsetFetch of ``TWICE``."""
    return OffsetFetchResult(
        NONE, [("orders", "", [(0, offset, -1, "", NONE)]) for offset in offsets]
    )


def test_a_partition_that_is_read_twice_is_told_twice_and_alike(story):
    story.commit(5)
    story.ask(a_commit(5)).invoked_at = 0
    story.answer(story.ask(TWICE), rows(5, 5))
    story.check()


@pytest.mark.parametrize(
    ("told", "why"), [((5,), "were told"), ((5, 5, 5), "were told"), ((5, -1), ": .* and ")]
)
def test_a_partition_that_is_read_twice_and_told_otherwise(story, told, why):
    story.commit(5)
    story.ask(a_commit(5)).invoked_at = 0
    story.answer(story.ask(TWICE), rows(*told))
    story.fails(why)


def committed_twice(*errors):
    """A commit of one partition in two entries, and the answer to each."""
    error = ErrorCode.ILLEGAL_GENERATION
    entries = [("orders", "", [(0, offset, -1, "")]) for offset in (9, 4)]
    request = OffsetCommit("g", -1, "", None, entries, False, -1, error, CLIENT)
    told = [("orders", "", [(0, error) for error in errors])]
    return request, OffsetCommitResult(NONE, told)


def test_of_a_partition_that_is_committed_twice_the_last_is_kept(story):
    request, result = committed_twice(NONE, NONE)
    op = story.ask(request)
    story.commit(9, 4)
    story.answer(op, result)
    story.answer(story.ask(ALL), shown(4))
    assert story.durable.largest[0] == {("t", 0): 9}
    story.check()


def test_nobody_is_told_of_what_its_own_commit_replaces(story):
    request, result = committed_twice(NONE, NONE)
    op, read = story.ask(request), story.ask(ALL)
    story.commit(9, 4)
    story.answer(op, result)
    story.answer(read, shown(9))
    story.fails("9 was read, .-1, 4. were stored meanwhile")


@pytest.mark.parametrize("errors", [(NONE,), (NONE, NONE, NONE)])
def test_a_partition_that_is_committed_twice_is_answered_twice(story, errors):
    request, result = committed_twice(*errors)
    op = story.ask(request)
    story.commit(9, 4)
    story.answer(op, result)
    story.fails("committed, told")


def test_a_partition_that_is_committed_twice_is_answered_alike(story):
    request, result = committed_twice(NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    story.answer(story.ask(request), result)
    story.fails("told otherwise of the same")
