"""Translates AddOffsetsToTxn into AddPartitionsToTxn for the journal, and the answer back (pure).

In Kafka AddOffsetsToTxn adds the group's partition of ``__consumer_offsets`` to the transaction.
Here it adds the group's partition of the journal instead. The journal is a topic of ours in the
upstream cluster (docs/design.md#journal).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.protocol.asking import read_response, write_request
from groupkeeper.protocol.codec import read_request, write_response
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.frames import PREFIX_BYTES, read_request_header
from groupkeeper.protocol.versions import ApiKey
from groupkeeper.protocol.writer import Row

ADD_PARTITIONS: Final = 24
ADD_OFFSETS: Final = ApiKey.ADD_OFFSETS_TO_TXN
ADD_PARTITIONS_VERSION: Final = 3
"""The highest version for clients. Later ones are for brokers (KIP-890)."""

_MAX_ELEMENTS: Final = 100


class JournalTopic(NamedTuple):
    """The name and the size of the journal's topic."""

    name: str
    partitions: int
    """The number of partitions. Each shard has one."""


def to_add_partitions(frame: bytes, journal: JournalTopic) -> bytes:
    """Return the AddPartitionsToTxn for an AddOffsetsToTxn, with the same correlation id and client
    id.

    ``frame`` and the result are whole frames. Raises ProtocolError if the request is damaged.
    """
    header = read_request_header(frame)
    asked = read_request(ADD_OFFSETS, header.api_version, frame, header.body_offset, _MAX_ELEMENTS)
    partition = shard_of(asked.group_id, journal.partitions)
    return write_request(
        ADD_PARTITIONS,
        ADD_PARTITIONS_VERSION,
        header.correlation_id,
        header.client_id or "",
        v3_and_below_transactional_id=asked.transactional_id,
        v3_and_below_producer_id=asked.producer_id,
        v3_and_below_producer_epoch=asked.producer_epoch,
        v3_and_below_topics=[Row(name=journal.name, partitions=[partition])],
    )


def from_add_partitions(reply: bytes, version: int, *, as_client: bool = False) -> bytes:
    """Convert the broker's answer to our AddPartitionsToTxn into the answer to the client's
    AddOffsetsToTxn, which has this version.

    ``reply`` and the result are whole frames. ``as_client`` is True if the broker checks the rights
    of the client, and False if it checks ours (``upstream.identity``). Raises ProtocolError if the
    reply is damaged.
    """
    body = reply[PREFIX_BYTES:]
    correlation_id = int.from_bytes(body[:4], "big", signed=True)
    answer = read_response(ADD_PARTITIONS, ADD_PARTITIONS_VERSION, correlation_id, body)
    errors = [
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]
    if len(errors) != 1:
        raise ProtocolError("bad_reply", f"one partition was added, {len(errors)} are answered")
    error = error_of_add_offsets(errors[0], as_client=as_client)
    if error == ErrorCode.PRODUCER_FENCED and version < 2:
        error = int(ErrorCode.INVALID_PRODUCER_EPOCH)  # as KafkaApis.handleAddOffsetsToTxnRequest
    values = {"error_code": error}
    return write_response(ADD_OFFSETS, version, correlation_id, answer.throttle_time, values)


def error_of_add_offsets(code: int, *, as_client: bool = False) -> int:
    """Return the error of AddOffsetsToTxn that stands for this error of AddPartitionsToTxn.

    AddOffsetsToTxn has no errors about topics. If the journal's topic is missing, clients get an
    error after which they look for the coordinator and retry. With ``as_client``, a client that may
    not write to the topic gets GROUP_AUTHORIZATION_FAILED, after which it does not retry.
    """
    if as_client and code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return _ERRORS.get(code, code)


_ERRORS: Final = {
    int(code): int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    for code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
}
