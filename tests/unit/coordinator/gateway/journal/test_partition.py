"""What is remembered of one partition of the journal."""

from __future__ import annotations

from groupkeeper.coordinator.core.requests.transactions import EndedTransaction
from groupkeeper.coordinator.gateway.journal.partition import JournalPartition
from groupkeeper.coordinator.gateway.journal.records import TransactionEntry

A, B = 1, 2


def record(offset: int, producer_id: int, pending_id: str) -> TransactionEntry:
    return TransactionEntry(offset, producer_id, pending_id)


def marker(offset: int, producer_id: int, *, commit: bool = True) -> TransactionEntry:
    return TransactionEntry(offset, producer_id, "", commit)


def test_a_record_that_is_there_twice_is_one() -> None:
    partition = JournalPartition(0)
    assert partition.take([record(3, A, "x"), record(4, A, "x"), record(5, A, "y")], 6) == []
    assert (partition.records, partition.restart_position()) == (2, 3)
    assert partition.take([marker(6, A)], 7) == [EndedTransaction(A, ("x", "y"), True)]
    assert (partition.records, partition.restart_position()) == (0, 7)
    assert not partition.has(A, "x")


def test_a_record_of_another_producer_with_the_id_of_pending_offsets_is_forgotten() -> None:
    partition = JournalPartition(0)
    partition.take([record(0, A, "x"), record(1, B, "x")], 2)
    partition.keep({"x": A}, before=2)
    assert [partition.has(A, "x"), partition.has(B, "x")] == [True, False]


def test_records_that_nobody_needs_are_forgotten_and_the_position_moves() -> None:
    partition = JournalPartition(0)
    partition.take([record(0, A, "x"), record(1, B, "y"), record(2, A, "z"), record(3, B, "v")], 4)
    partition.keep({"z": A}, before=3)
    assert [partition.has(A, "x"), partition.has(B, "y")] == [False, False]
    assert [partition.has(A, "z"), partition.has(B, "v")] == [True, True]
    assert (partition.records, partition.restart_position()) == (2, 2)
    partition.keep({}, before=4)
    assert (partition.records, partition.open_transactions()) == (0, 0)
    assert partition.restart_position() == 4
