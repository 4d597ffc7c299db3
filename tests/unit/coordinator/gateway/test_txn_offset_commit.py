"""TxnOffsetCommit on the wire: every version is read into one request, and answered in its own."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.transactions import (
    TxnOffsetCommit,
    TxnOffsetCommitResult,
)
from groupkeeper.coordinator.gateway.txn_offset_commit import handler
from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.protocol.asking import read_response, write_request
from groupkeeper.protocol.frames import read_request_header
from groupkeeper.protocol.last_requests import LastRequests
from groupkeeper.protocol.writer import Row
from tests.helpers.core.shard_driver import CLIENT
from tests.helpers.wire.handling import FakeChannel, make_services

KEY = 28


class FakeJournal:
    """Remembers what it is given, and answers with one result."""

    def __init__(self, result: TxnOffsetCommitResult) -> None:
        self.result = result
        self.calls: list[tuple[TxnOffsetCommit, str, int]] = []

    def submit(self, request: Any, transactional_id: str, version: int, done: Any) -> None:
        self.calls.append((request, transactional_id, version))
        done(self.result)


def a_frame(version: int) -> bytes:
    rows = [
        Row(
            partition_index=number,
            committed_offset=100 + number,
            committed_leader_epoch=4,
            committed_metadata="note" if number else None,
        )
        for number in range(2)
    ]
    return write_request(
        KEY,
        version,
        77,
        "app",
        transactional_id="copy-1",
        group_id="g",
        producer_id=2**40,
        producer_epoch=3,
        generation_id=5,
        member_id="m",
        group_instance_id="i",
        topics=[Row(name="orders", partitions=rows)],
    )


def answered(version: int, journal: FakeJournal | None, **services: Any) -> Any:
    channel = FakeChannel()
    frame = a_frame(version)
    body_at = read_request_header(frame).body_offset
    exchange = Exchange(channel, KEY, version, 77, CLIENT, frame, body_at, LastRequests())
    handler(lambda: journal)(exchange, make_services(**services))  # type: ignore[arg-type,return-value]
    (reply,) = channel.replies
    return read_response(KEY, version, 77, reply[4:])


def errors(answer: Any) -> list[tuple[str, int, int]]:
    return [
        (topic.name, row.partition_index, row.error_code)
        for topic in answer.topics
        for row in topic.partitions
    ]


@pytest.mark.parametrize("version", range(6))
def test_every_version_is_read_into_one_request(version: int) -> None:
    result = TxnOffsetCommitResult(ErrorCode.NONE, [("orders", "", [(0, ErrorCode.NONE)])])
    journal = FakeJournal(result)
    assert errors(answered(version, journal)) == [("orders", 0, 0)]
    ((request, transactional_id, served),) = journal.calls
    assert (transactional_id, served) == ("copy-1", version)
    assert (request.group_id, request.producer_id, request.producer_epoch) == ("g", 2**40, 3)
    epoch = 4 if version >= 2 else -1
    assert request.topics == [("orders", "", [(0, 100, epoch, None), (1, 101, epoch, "note")])]
    member = (request.generation_id, request.member_id, request.group_instance_id)
    assert member == ((5, "m", "i") if version >= 3 else (-1, "", None))


def test_each_request_has_a_pending_id_of_its_own() -> None:
    journal = FakeJournal(TxnOffsetCommitResult(ErrorCode.NONE, []))
    for _ in range(2):
        answered(5, journal, mint=uuid4)
    first, second = [request.pending_id for request, _, _ in journal.calls]
    assert first != second


@pytest.mark.parametrize("version", range(6))
def test_old_clients_do_not_know_that_a_coordinator_loads(version: int) -> None:
    journal = FakeJournal(TxnOffsetCommitResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    error = (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
        if version < 2
        else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    expected = [("orders", 0, error), ("orders", 1, error)]
    assert errors(answered(version, journal)) == expected


def test_without_a_journal_or_permission_every_partition_has_the_error() -> None:
    missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert {code for _, _, code in errors(answered(5, None))} == {missing}
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    journal = FakeJournal(TxnOffsetCommitResult(ErrorCode.NONE, []))
    assert {code for _, _, code in errors(answered(5, journal, denied=denied))} == {denied}
    assert journal.calls == []
