"""TxnOffsetCommit and the end of transactions: docs/spec/offsets.md#transactions, and
docs/spec/edge-cases.md#edge-75, #edge-76, #edge-81 and #edge-82.
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import CommitRejected, GroupCreated
from groupkeeper.coordinator.core.groups.pendings import Pendings
from groupkeeper.coordinator.core.offsets.transactions import MAX_ENDED
from groupkeeper.coordinator.core.records import (
    JournalPosition,
    OffsetsCommitted,
    PendingEnded,
    PendingOffsets,
)
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.offsets import OffsetDelete
from groupkeeper.coordinator.core.requests.transactions import (
    ConfirmPending,
    DropPending,
    MoveJournal,
    ReadPending,
)
from tests.helpers.core.consumer_members import ConsumerStub
from tests.helpers.core.shard_driver import (
    CLIENT,
    JOURNAL_ID,
    ORDERS,
    PAYMENTS,
    ShardDriver,
    a_member,
    a_stable_group,
    completing,
)

NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def driver():
    driver = ShardDriver(initial_rebalance_delay_ms=0)
    yield driver
    driver.check_replay()


def stable_offsets(driver, topics=None, group_id="g"):
    """What a fetch that requires stable offsets answers: (offset, error) by partition."""
    call = driver.fetch(group_id, topics, require_stable=True)
    return {
        (name, row[0]): (row[1], row[4]) for name, _, rows in call.result.topics for row in rows
    }


def states(driver):
    return {group_id: str(group.group_state) for group_id, group in driver.list_groups().items()}


def offset(driver, partition=0, group_id="g"):
    return driver.fetch(group_id, {"orders": [partition]}).offsets()["orders", partition]


# --- pending, then committed or aborted ---------------------------------------------


def test_pending_offset_counts_only_when_its_transaction_commits(driver):
    driver.commit(topics={"orders": {0: 10}})
    call = driver.txn_commit("p1", topics={"orders": {0: 20}})
    assert (call.result.is_pending, call.partition_errors()) == (True, {("orders", 0): NONE})
    assert offset(driver) == 10
    driver.check_replay()
    assert driver.end_transactions("p1", position=7) is NONE
    assert offset(driver) == 20
    assert driver.shard.pendings.journal == JournalPosition(JOURNAL_ID, 7)
    assert driver.steps[-2].records[-1] == JournalPosition(JOURNAL_ID, 7), "in the same step"


def test_aborted_offset_has_no_effect(driver):
    driver.commit(topics={"orders": {0: 10}})
    driver.txn_commit("p1", topics={"orders": {0: 20}})
    before = len(driver.records)
    driver.end_transactions("p1", commit=False)
    assert offset(driver) == 10
    assert driver.records[before:] == [PendingEnded("p1"), JournalPosition(JOURNAL_ID, 1)]


def test_commit_of_a_transaction_is_an_event_like_any_other_commit(driver):
    driver.commit(topics={"orders": {0: 10}})
    sent_ms = driver.now.wall_ms
    driver.txn_commit("p1", topics=[("orders", "", [(0, 20, 4, "note")])])
    driver.advance(5_000)
    driver.end_transactions("p1")
    record = driver.records_of(OffsetsCommitted)[-1]
    assert record.topics[0].partitions == [(0, 20, 10, 4, "note")]
    assert (record.client_id, record.commit_time_ms) == (CLIENT.client_id, sent_ms)


def test_marker_of_another_producer_ends_nothing(driver):
    driver.txn_commit("p1", 77)
    driver.producers["p1"] = 66  # whose record in the journal has this id
    assert driver.end_transactions("p1") is NONE
    assert [each.pending_id for each in driver.send(ReadPending(0)).result.pending] == ["p1"]


def test_second_marker_changes_nothing(driver):
    driver.txn_commit("p1")
    driver.end_transactions("p1", position=3)
    before = len(driver.records)
    assert driver.end_transactions("p1", position=3) is NONE
    assert driver.end_transactions("p1", commit=False, position=3) is NONE
    assert driver.records[before:] == []
    assert offset(driver) == 100


def test_same_pending_id_again_changes_nothing(driver):
    driver.txn_commit("p1")
    before = len(driver.records)
    assert driver.txn_commit("p1").result.is_pending
    assert driver.records[before:] == []


def test_of_several_offsets_of_one_producer_the_last_counts(driver):
    driver.txn_commit("p1", topics={"orders": {0: 1, 1: 1}})
    driver.txn_commit("p2", topics={"orders": {0: 2}})
    driver.end_transactions("p1", "p2")
    assert driver.fetch().offsets() == {("orders", 0): 2, ("orders", 1): 1}


def test_partition_named_twice_keeps_its_last_offset(driver):
    driver.txn_commit("p1", topics=[("orders", "", [(0, 1, -1, ""), (0, 2, -1, "")])])
    driver.end_transactions("p1")
    assert offset(driver) == 2


def test_pending_offsets_survive_a_restart(driver):
    driver.txn_commit("p1", topics={"orders": {0: 5}})
    driver.txn_commit("p2", 10, topics={"orders": {0: 6}})
    driver.reload(from_fold=True)
    assert stable_offsets(driver, {"orders": [0]}) == {("orders", 0): (-1, UNSTABLE)}
    driver.end_transactions("p2")
    driver.end_transactions("p1")
    assert offset(driver) == 6, "the order of arrival is kept"


# --- order against other commits ----------------------------------------------------


def test_plain_commit_after_a_pending_one_stays(driver):
    """docs/spec/edge-cases.md#edge-76."""
    driver.txn_commit("p1", topics={"orders": {0: 20, 1: 20}})
    driver.commit(topics={"orders": {0: 15}})
    assert stable_offsets(driver, {"orders": [0]}) == {("orders", 0): (-1, UNSTABLE)}
    driver.reload(from_fold=True)
    driver.end_transactions("p1")
    assert driver.fetch().offsets() == {("orders", 0): 15, ("orders", 1): 20}
    assert stable_offsets(driver, {"orders": [0]}) == {("orders", 0): (15, NONE)}


def test_arrival_decides_between_two_transactions_and_not_their_markers(driver):
    driver.txn_commit("p1", 1, topics={"orders": {0: 10}})
    driver.txn_commit("p2", 2, topics={"orders": {0: 20}})
    driver.end_transactions("p2")
    driver.end_transactions("p1")
    assert offset(driver) == 20


def test_later_transaction_replaces_an_earlier_one(driver):
    driver.txn_commit("p1", 1, topics={"orders": {0: 10}})
    driver.txn_commit("p2", 2, topics={"orders": {0: 20}})
    driver.end_transactions("p1")
    assert stable_offsets(driver, {"orders": [0]}) == {("orders", 0): (-1, UNSTABLE)}
    assert offset(driver) == 10
    driver.end_transactions("p2")
    assert offset(driver) == 20


def test_wholly_overtaken_transaction_writes_no_commit(driver):
    driver.txn_commit("p1")
    driver.commit()
    before = len(driver.records)
    driver.end_transactions("p1")
    assert driver.records_of(OffsetsCommitted, before) == []


# --- fetches ------------------------------------------------------------------------


def test_fetch_that_requires_stable_offsets_waits_for_the_transaction(driver):
    """docs/spec/edge-cases.md#edge-75."""
    driver.commit(topics={"orders": {0: 10, 1: 11}})
    driver.txn_commit("p1", topics={"orders": {0: 20}})
    asked = {"orders": [0, 1]}
    assert stable_offsets(driver, asked) == {
        ("orders", 0): (-1, UNSTABLE),
        ("orders", 1): (11, NONE),
    }
    assert driver.fetch("g", asked).offsets() == {("orders", 0): 10, ("orders", 1): 11}
    driver.end_transactions("p1", commit=False)
    assert stable_offsets(driver, asked)["orders", 0] == (10, NONE)


@pytest.mark.parametrize("size", ["small", "large"])
def test_fetch_of_all_offsets_leaves_out_partitions_that_are_only_pending(
    driver, size, monkeypatch
):
    if size == "large":
        monkeypatch.setattr("groupkeeper.coordinator.core.offsets.fetch.LARGE_BYTES", 0)
    driver.commit(topics={"orders": {0: 10, 1: 11}, "payments": {0: 1}})
    driver.txn_commit("p1", topics={"orders": {0: 20, 2: 20}})
    assert stable_offsets(driver) == {
        ("orders", 0): (-1, UNSTABLE),
        ("orders", 1): (11, NONE),
        ("payments", 0): (1, NONE),
    }
    assert driver.fetch().offsets()["orders", 0] == 10


# --- who may commit -----------------------------------------------------------------


def test_absent_group_is_created_as_a_simple_one_at_once(driver):
    assert driver.txn_commit("p1").result.is_pending
    assert states(driver) == {"g": "Empty"}
    assert [event.api for event in driver.events_of(GroupCreated)] == ["TxnOffsetCommit"]
    driver.end_transactions("p1", commit=False)
    assert states(driver) == {"g": "Empty"}


def test_a_commit_with_a_transaction_is_told_from_a_reset(driver):
    """Neither has a generation or a member, and a reset is what an administrator did."""
    driver.commit()
    driver.txn_commit("p1")
    driver.end_transactions("p1", commit=True)
    committed = driver.records_of(OffsetsCommitted)
    assert [each.api for each in committed] == ["OffsetCommit", "TxnOffsetCommit"]


def test_absent_group_refuses_a_generation(driver):
    call = driver.txn_commit("p1", generation_id=0, member_id="m")
    assert call.partition_errors() == {("orders", 0): ErrorCode.ILLEGAL_GENERATION}
    assert not call.result.is_pending
    assert driver.list_groups() == {}


def test_empty_group_id_is_invalid(driver):
    call = driver.txn_commit("p1", group_id="")
    assert call.partition_errors() == {("orders", 0): ErrorCode.INVALID_GROUP_ID}


def test_without_member_every_state_accepts(driver):
    """docs/spec/edge-cases.md#edge-81."""
    a_stable_group(driver, members=1)
    assert driver.txn_commit("p1").result.is_pending


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, NONE),
        ({"generation_id": 5}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "", "generation_id": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "static"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_member_of_a_classic_group_is_checked(driver, changes, error):
    leader, *_ = a_stable_group(driver, members=1)
    fields = {"generation_id": 1, "member_id": leader.member_id, **changes}
    call = driver.txn_commit("p1", **fields)
    assert call.partition_errors() == {("orders", 0): error}
    refused = [event.error for event in driver.events_of(CommitRejected)]
    assert refused == ([error.name] if error else [])


def test_completing_rebalance_is_no_obstacle(driver):
    leader, *_ = completing(driver, a_member(driver))
    fields = {"generation_id": 1, "member_id": leader.member_id}
    assert driver.txn_commit("p1", **fields).partition_errors() == {("orders", 0): NONE}
    plain = driver.commit(**fields).partition_errors()
    assert plain == {("orders", 0): ErrorCode.REBALANCE_IN_PROGRESS}


def test_valid_call_does_not_extend_the_session(driver):
    leader, *_ = a_stable_group(driver, members=1, session_timeout_ms=10_000)
    driver.advance(9_000)
    driver.txn_commit("p1", generation_id=1, member_id=leader.member_id)
    driver.advance(1_500)
    assert driver.state("g") == "Empty"


def test_stale_epoch_in_a_consumer_group_is_an_illegal_generation(driver):
    """docs/spec/edge-cases.md#edge-82."""
    member = ConsumerStub(driver, "m")
    member.join()
    epoch = member.epoch
    for given, error in [(epoch, NONE), (epoch + 1, ErrorCode.ILLEGAL_GENERATION)]:
        call = driver.txn_commit(f"p{given}", generation_id=given, member_id=member.member_id)
        assert call.partition_errors() == {("orders", 0): error}
    assert driver.txn_commit("p", generation_id=-1).result.is_pending


def test_partitions_that_do_not_exist_are_refused_one_by_one(driver):
    topics = {"orders": {0: 1, 12: 1}, "nothing": {0: 1}}
    call = driver.txn_commit("p1", topics=topics)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert call.partition_errors() == {
        ("orders", 0): NONE,
        ("orders", 12): unknown,
        ("nothing", 0): unknown,
    }
    (record,) = driver.records_of(PendingOffsets)
    assert [(topic.topic, topic.topic_id) for topic in record.topics] == [
        ("orders", ORDERS.topic_id)
    ]


def test_without_a_partition_left_the_group_is_not_looked_at(driver):
    call = driver.txn_commit("p1", topics={"nothing": {0: 1}}, generation_id=4)
    assert call.partition_errors() == {("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not call.result.is_pending
    assert driver.list_groups() == {}


# --- limits -------------------------------------------------------------------------


def test_pending_offsets_of_a_group_are_limited():
    driver = ShardDriver(max_step_bytes=8_192)
    driver.txn_commit("p1")
    call = driver.txn_commit("p2", topics={"orders": dict.fromkeys(range(12), 1)})
    errors = set(call.partition_errors().values())
    assert errors == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert not call.result.is_pending
    driver.end_transactions("p1")
    assert driver.txn_commit("p3").result.is_pending
    driver.check_replay()


def test_pending_offsets_use_the_room_of_their_group():
    driver = ShardDriver(max_group_bytes=1_400)
    assert driver.txn_commit("p1").result.is_pending
    refused = driver.commit(topics={"orders": {1: 1}}).partition_errors()
    assert refused == {("orders", 1): ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    driver.end_transactions("p1", commit=False)
    assert driver.commit(topics={"orders": {1: 1}}).partition_errors() == {("orders", 1): NONE}


def test_large_transaction_ends_in_several_steps():
    driver = ShardDriver(max_step_bytes=40_000)
    ids = []
    for number in range(30):
        ids.append(f"p{number}")
        topics = {"orders": dict.fromkeys(range(6), number)}
        assert driver.txn_commit(ids[-1], topics=topics, group_id=f"g{number}").result.is_pending
    answers = []
    while not answers or answers[-1] is not NONE:
        answers.append(driver.end_transactions(*ids, position=9))
        assert driver.steps[-1].record_bytes <= 40_000
        assert (driver.shard.pendings.journal is None) is (answers[-1] is not NONE)
    assert set(answers[:-1]) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert [offset(driver, group_id=f"g{n}") for n in range(30)] == [*range(30)]
    driver.check_replay()


def test_transaction_with_many_commits_ends_in_several_steps():
    driver = ShardDriver()
    ids = [f"p{number}" for number in range(MAX_ENDED + 1)]
    for number, pending_id in enumerate(ids):
        driver.txn_commit(pending_id, topics={"orders": {0: number}})
    assert driver.end_transactions(*ids, position=9) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(driver.shard.pendings.by_id) == 1
    assert driver.end_transactions(*ids, position=9) is NONE
    assert offset(driver) == MAX_ENDED
    driver.check_replay()


def test_pending_offsets_of_a_group_stay_in_the_order_of_their_arrival():
    """A changed or loaded record comes after later ones."""
    driver = ShardDriver()
    for number in range(1, 5):
        driver.txn_commit(f"p{number}", topics={"orders": {number: 1}})
    driver.commit(topics={"orders": {2: 7}})  # overtakes p2, which is recorded again
    pendings = driver.shard.pendings
    assert [each.pending_id for each in pendings.of_group("g")] == ["p1", "p2", "p3", "p4"]
    before = pendings.by_id["p3"].arrival
    assert [each.pending_id for each in pendings.of_group("g", before)] == ["p1", "p2"]
    loaded = Pendings()
    for record in reversed([*pendings.records()]):
        loaded.apply(record)
    assert [each.pending_id for each in loaded.of_group("g", before)] == ["p1", "p2"]


def test_end_of_many_pending_offsets_looks_at_each_once(monkeypatch):
    """The time must not grow with the square of their number."""
    driver = ShardDriver()
    ids = [f"p{number}" for number in range(100)]
    for number, pending_id in enumerate(ids):
        driver.txn_commit(pending_id, topics={"orders": {0: number}})
    pendings, found = driver.shard.pendings, []
    of_group = pendings.of_group

    def counted(*asked):
        records = of_group(*asked)
        found.extend(records)
        return records

    monkeypatch.setattr(pendings, "of_group", counted)
    assert driver.end_transactions(*ids) is NONE
    assert len(found) <= len(ids)


# --- deletions ----------------------------------------------------------------------


def test_deleted_offset_is_not_pending_either(driver):
    driver.commit(topics={"orders": {0: 1}})
    driver.txn_commit("p1", topics={"orders": {0: 20, 1: 20}})
    driver.send(OffsetDelete("g", (("orders", [0]),), CLIENT))
    driver.end_transactions("p1")
    assert driver.fetch().offsets() == {("orders", 1): 20}


def test_deletion_of_the_last_pending_offset_ends_it(driver):
    driver.txn_commit("p1", topics={"orders": {0: 20}})
    driver.send(OffsetDelete("g", (("orders", [0]),), CLIENT))
    assert driver.shard.pendings.by_id == {}


def test_group_is_deleted_with_its_pending_offsets(driver):
    driver.txn_commit("p1")
    assert driver.send(DeleteGroup("g", CLIENT)).error is NONE
    assert driver.shard.pendings.by_id == {}
    driver.end_transactions("p1")
    assert driver.list_groups() == {}


def test_deleted_topic_takes_its_pending_offsets_along(driver):
    driver.txn_commit("p1", topics={"orders": {0: 1}, "payments": {0: 2}})
    driver.change_topics(PAYMENTS)
    driver.end_transactions("p1")
    assert driver.fetch().offsets() == {("payments", 0): 2}


def test_partition_with_a_pending_offset_does_not_expire_nor_its_group():
    driver = ShardDriver(offsets_retention_ms=1_000, retention_check_interval_ms=1_000)
    driver.commit(topics={"orders": {0: 1, 1: 1}})
    driver.txn_commit("p1", topics={"orders": {0: 20}})
    driver.advance(5_000)
    assert driver.fetch().offsets() == {("orders", 0): 1}
    driver.end_transactions("p1", commit=False)
    driver.advance(5_000)
    assert driver.list_groups() == {}
    driver.check_replay()


def test_group_without_offsets_stays_while_a_transaction_is_open():
    driver = ShardDriver(offsets_retention_ms=1_000, retention_check_interval_ms=1_000)
    driver.txn_commit("p1")
    driver.advance(5_000)
    assert states(driver) == {"g": "Empty"}
    driver.end_transactions("p1", commit=False)
    driver.advance(5_000)
    assert driver.list_groups() == {}


def test_group_that_becomes_a_consumer_group_keeps_its_pending_offsets(driver):
    driver.txn_commit("p1", topics={"orders": {0: 20}})
    ConsumerStub(driver, "m").join()
    driver.end_transactions("p1")
    assert offset(driver) == 20


# --- what the reader of the journal asks --------------------------------------------


def test_dropped_offsets_never_count(driver):
    driver.txn_commit("p1")
    assert driver.send(DropPending(0, ("p1", "unknown"))).error is NONE
    driver.end_transactions("p1")
    assert driver.fetch().offsets() == {}


def test_pending_offsets_are_confirmed_with_a_write(driver):
    driver.txn_commit("p1")
    driver.send(MoveJournal(0, JOURNAL_ID, 4))
    assert driver.send(ConfirmPending(0, "p1")).error is NONE
    assert driver.steps[-1].records, "a write, with which the store checks the lease"
    assert driver.send(ReadPending(0)).result.journal == JournalPosition(JOURNAL_ID, 4)
    driver.send(DropPending(0, ("p1",)))
    assert driver.send(ConfirmPending(0, "p1")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_reader_learns_what_is_pending_and_where_it_was(driver):
    assert driver.send(ReadPending(0)).result.journal is None
    driver.send(MoveJournal(0, JOURNAL_ID, 4))
    driver.txn_commit("p1", 77, topics={"orders": {0: 1, 1: 1}}, producer_epoch=3)
    sent_ms = driver.now.wall_ms
    result = driver.send(ReadPending(0)).result
    assert result.journal == JournalPosition(JOURNAL_ID, 4)
    (pending,) = result.pending
    assert pending[:5] == ("p1", 77, 3, "g", sent_ms)
    assert [row[:2] for row in pending.topics[0].partitions] == [(0, 1), (1, 1)]
