"""AddOffsetsToTxn in a gateway: the journal's partition becomes a part of the transaction."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.gateway.add_offsets import (
    JournalTopic,
    from_add_partitions,
    to_add_partitions,
)
from groupkeeper.protocol.asking import read_response, write_request
from groupkeeper.protocol.codec import read_request
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.frames import read_request_header
from groupkeeper.protocol.packing import classic_string

JOURNAL = JournalTopic("__journal", 50)


def an_add_offsets(version: int, group_id: str = "copiers") -> bytes:
    return write_request(
        25,
        version,
        77,
        "app",
        transactional_id="copy-1",
        producer_id=9,
        producer_epoch=3,
        group_id=group_id,
    )


def an_answer(*codes: int, throttle_time_ms: int = 0) -> bytes:
    """An answer to AddPartitionsToTxn v3 of one topic with a partition for each code."""
    body = (77).to_bytes(4, "big") + b"\0" + throttle_time_ms.to_bytes(4, "big") + b"\x02"
    body += b"\x0a" + JOURNAL.name.encode() + bytes([len(codes) + 1])
    for number, code in enumerate(codes):
        body += number.to_bytes(4, "big") + code.to_bytes(2, "big") + b"\0"
    body += b"\0\0"
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("version", range(5))
def test_partition_of_the_group_is_added_to_the_transaction(version: int) -> None:
    frame = to_add_partitions(an_add_offsets(version), JOURNAL)
    header = read_request_header(frame)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (
        *(24, 3, 77),
        "app",
    )
    body = frame.index(classic_string("app")) + len(classic_string("app")) + 1  # header v2
    asked = read_request(24, 3, frame, body, 100)
    assert asked.v3_and_below_transactional_id == "copy-1"
    assert (asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch) == (9, 3)
    (topic,) = asked.v3_and_below_topics
    assert (topic.name, topic.partitions) == (JOURNAL.name, (shard_of("copiers", 50),))


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize(
    ("code", "answered"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_answer_has_the_error_of_the_partition(
    version: int, code: ErrorCode, answered: ErrorCode
) -> None:
    reply = from_add_partitions(an_answer(code, throttle_time_ms=5), version)
    answer = read_response(25, version, 77, reply[4:])
    assert (answer.error_code, answer.throttle_time) == (answered, 5)


@pytest.mark.parametrize("version", range(2))
def test_old_clients_do_not_know_that_they_are_fenced(version: int) -> None:
    """See KafkaApis.handleAddOffsetsToTxnRequest."""
    reply = from_add_partitions(an_answer(ErrorCode.PRODUCER_FENCED), version)
    answer = read_response(25, version, 77, reply[4:])
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", range(2, 5))
def test_newer_clients_are_told_that_they_are_fenced(version: int) -> None:
    reply = from_add_partitions(an_answer(ErrorCode.PRODUCER_FENCED), version)
    assert read_response(25, version, 77, reply[4:]).error_code == ErrorCode.PRODUCER_FENCED


def test_client_that_lacks_the_right_itself_is_told_so() -> None:
    """To try again, as with our rights, would not help it."""
    reply = from_add_partitions(an_answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 3, as_client=True)
    answer = read_response(25, 3, 77, reply[4:])
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("codes", [(), (0, 0)])
def test_answer_about_other_partitions_is_refused(codes: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError, match="one partition was added"):
        from_add_partitions(an_answer(*codes), 4)


def test_damaged_request_is_refused() -> None:
    with pytest.raises(ProtocolError):
        to_add_partitions(an_add_offsets(4)[:-6], JOURNAL)
