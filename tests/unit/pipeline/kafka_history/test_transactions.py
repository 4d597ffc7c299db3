"""From when on a record of __consumer_offsets counts, as OffsetMetadataManager has it."""

from __future__ import annotations

import msgspec

from groupkeeper.pipeline.kafka_history.transactions import (
    ABORT_MARKER,
    COMMIT_MARKER,
    OpenTransaction,
    RawRecord,
    Transactions,
)
from groupkeeper.protocol.offsets_topic import ENTITIES, encode

MINE, OTHER = 7, 8


def at(offset: int, partition: int = 0, value: bytes | None = b"v", ts_ms: int = 100) -> RawRecord:
    key = ENTITIES["OffsetCommitKey", 1](group="g", topic="orders", partition=partition)
    return RawRecord(offset, ts_ms, encode(key), value)


def counted(
    offset: int, partition: int = 0, value: bytes | None = b"v", *, ts_ms: int
) -> RawRecord:
    """The same as it counts: from the end of its transaction, and told to be of one."""
    return msgspec.structs.replace(at(offset, partition, value, ts_ms), is_transactional=True)


def test_what_was_sent_counts_from_the_marker_and_with_its_time() -> None:
    transactions = Transactions()
    transactions.sent(MINE, at(1))
    transactions.sent(MINE, at(2, partition=1))
    assert transactions.ended(OTHER, COMMIT_MARKER, 200) == []
    ended = transactions.ended(MINE, COMMIT_MARKER, 300)
    assert ended == [counted(1, ts_ms=300), counted(2, partition=1, ts_ms=300)]
    assert transactions.open() == ()


def test_what_was_aborted_never_counts() -> None:
    transactions = Transactions()
    transactions.sent(MINE, at(1))
    assert transactions.ended(MINE, ABORT_MARKER, 300) == []
    assert transactions.ended(MINE, COMMIT_MARKER, 300) == []


def test_of_a_partition_that_is_sent_twice_the_last_one_counts() -> None:
    transactions = Transactions()
    transactions.sent(MINE, at(1))
    transactions.sent(MINE, at(2, value=b"w"))
    assert transactions.ended(MINE, COMMIT_MARKER, 300) == [counted(2, value=b"w", ts_ms=300)]


def test_a_commit_or_a_deletion_in_between_stands() -> None:
    for value in (b"plain", None):
        transactions = Transactions()
        transactions.sent(MINE, at(1))
        transactions.sent(MINE, at(2, partition=1))
        assert transactions.record(at(3, value=value)) == at(3, value=value)
        assert transactions.ended(MINE, COMMIT_MARKER, 300) == [counted(2, partition=1, ts_ms=300)]


def test_of_two_transactions_the_one_that_sent_last_stands() -> None:
    transactions = Transactions()
    transactions.sent(MINE, at(1))
    transactions.sent(OTHER, at(2))
    assert transactions.ended(OTHER, COMMIT_MARKER, 200) == [counted(2, ts_ms=200)]
    assert transactions.ended(MINE, COMMIT_MARKER, 300) == []
    transactions.sent(MINE, at(5))
    transactions.sent(OTHER, at(6))
    assert transactions.ended(MINE, COMMIT_MARKER, 400) == [counted(5, ts_ms=400)]
    assert transactions.ended(OTHER, COMMIT_MARKER, 500) == [counted(6, ts_ms=500)]


def test_what_is_open_is_named() -> None:
    transactions = Transactions()
    transactions.sent(MINE, at(1, ts_ms=50))
    transactions.sent(MINE, at(2, partition=1, ts_ms=60))
    transactions.sent(OTHER, at(3, partition=2))
    transactions.record(at(4, partition=2))
    assert transactions.open() == (OpenTransaction(MINE, 50, 2, ("g",)),)
