"""Fetch (1): a long poll that returns no records, since static mode has none
(docs/design.md#static-mode).

| version | change |
| --- | --- |
| 5 | log start offset |
| 7 | sessions, and one error for the whole reply |
| 9 | current leader epoch |
| 11 | rack, preferred read replica |
| 12 | flexible |
| 13 | topic ids instead of names |
| 15 | replica state |
| 16 | current leader, as a tag; node endpoints |

There are no sessions. A full fetch is answered with session id 0. An incremental fetch is answered
with FETCH_SESSION_ID_NOT_FOUND, and clients then send full ones.

A poll without errors waits for as long as the client asks, up to a limit. A poll with an error is
answered at once, as in Kafka. An absent partition is not such an error: the poll still waits.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.handlers.partitions import (
    LEADER_EPOCH,
    check_partition,
    find_by_id,
    find_by_name,
)
from groupkeeper.protocol.codec import uuid_to_topic_id
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from groupkeeper.coordinator.cluster.topics import Topics
    from groupkeeper.coordinator.core.cluster.image import TopicImage
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

TOPIC_IDS = 13
CURRENT_LEADER = 16

MAX_WAIT_MS = 30_000
"""The longest wait, whatever the client asks for. Kafka's clients ask for 500 ms."""

FULL_EPOCHS = frozenset({0, -1})
"""The session epochs of a request that begins or ends a fetch session. Such a request names every
partition (FetchMetadata.isFull)."""

_ZERO_ID = ("", "")
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONSUMER, DEBUGGING_CONSUMER = -1, -2
"""The replica ids in requests of clients. Other ids are those of brokers."""
NO_EPOCH = -1


class _Asked(NamedTuple):
    """A partition that the request names."""

    topic: tuple[str, str]
    """The name or the id of the topic, in the form that the client sent. The answer repeats it."""
    topic_id: str
    """The id of the topic; empty if the topic does not exist."""
    error: ErrorCode
    """The error if the partition does not exist; otherwise NONE."""
    wire: Any


class _Fetched(NamedTuple):
    """A partition in the answer. It has no records."""

    partition_index: int
    error_code: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: tuple[()] | None
    """An empty array for an absent partition, and for a consumer that reads committed records.
    Otherwise null (FetchResponse.partitionResponse, KafkaApis.handleFetchRequest).
    """
    current_leader: Row | None = None
    preferred_read_replica: int = -1
    records: bytes = b""


def handle(exchange: Exchange, services: Services) -> None:
    """Answer at once if an existing partition has an error, if no partition exists, or if the
    client does not wait. Otherwise answer after the client's ``max_wait``, at most ``MAX_WAIT_MS``.
    """
    wire = exchange.read(services)
    if exchange.version >= 7 and wire.session_epoch not in FULL_EPOCHS:
        exchange.error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        exchange.send(_write(exchange, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, []))
        return
    if services.denied:
        exchange.error = services.denied
        entries = _refused(wire, exchange.version, services.denied)
        exchange.send(_write(exchange, ErrorCode.NONE, 0, entries))
        return
    wait_ms = min(wire.max_wait, MAX_WAIT_MS)
    reply, may_wait = render(wire, exchange, services)
    if not may_wait or wait_ms <= 0 or wire.min_bytes <= 0:
        exchange.send(reply)
        return

    def answer() -> None:
        exchange.on_closed = None
        # Rendered again: ends may have grown, and topics may have been deleted.
        exchange.send(render(wire, exchange, services)[0])

    exchange.on_closed = exchange.channel.later(wait_ms / 1000, answer)


def _each_once(wire: Any, version: int, image: TopicImage) -> tuple[list[_Asked], list[_Asked]]:
    """Return the known partitions and the missing ones, each once. If the request names a partition
    twice, this partition has its first position and the values of its last entry.
    """
    by_id = version >= TOPIC_IDS
    asked: dict[tuple[tuple[str, str], int], _Asked] = {}
    for one in wire.topics:
        if by_id:
            topic = find_by_id(image, one.topic_id)
            named = ("", uuid_to_topic_id(one.topic_id))
        else:
            topic = find_by_name(image, one.topic)
            named = (one.topic, "")
        topic_id = "" if isinstance(topic, ErrorCode) else topic.topic_id
        for partition in one.partitions:
            index = partition.partition
            error = check_partition(topic, index, NO_EPOCH)
            asked[named, index] = _Asked(named, topic_id, error, partition)
    known: list[_Asked] = []
    missing: list[_Asked] = []
    for found in asked.values():
        (missing if found.error else known).append(found)
    if by_id and _replica_id(wire, version) < 0:
        # For a consumer, Kafka checks the ids first (KafkaApis.handleFetchRequest).
        missing.sort(key=lambda one: one.error is not ErrorCode.UNKNOWN_TOPIC_ID)
    return known, missing


def look_up(
    topics: Topics, asked: _Asked, version: int, *, is_replica: bool
) -> tuple[ErrorCode, int]:
    """Check an existing partition of the request. Return (error, end); the end is -1 on error."""
    wire = asked.wire
    epoch = wire.current_leader_epoch if version >= 9 else NO_EPOCH
    if epoch > LEADER_EPOCH or (is_replica and epoch >= 0):
        return ErrorCode.UNKNOWN_LEADER_EPOCH, -1
    if is_replica:  # there are no replicas here (Partition.followerReplicaOrThrow)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
    end = topics.end_offset(asked.topic_id, wire.partition)
    if not 0 <= wire.fetch_offset <= end:
        return ErrorCode.OFFSET_OUT_OF_RANGE, -1
    return ErrorCode.NONE, end


def render(wire: Any, exchange: Exchange, services: Services) -> tuple[bytes, bool]:
    """Return the encoded answer, and whether it may wait for the client's ``max_wait``.

    Known partitions come first. Neighbouring partitions of one topic share an entry
    (FetchResponse.toMessage).
    """
    version = exchange.version
    known, missing = _each_once(wire, version, services.topics.image)
    strange_level = wire.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED)
    if (known and strange_level) or _stumbles(missing, version):
        return _render_refused(wire, exchange), False
    replica_id = _replica_id(wire, version)
    is_consumer = replica_id in (CONSUMER, DEBUGGING_CONSUMER)
    sees_aborted = is_consumer and wire.isolation_level == READ_COMMITTED
    rows = []
    may_wait = bool(known)
    for one in known:
        error, end = look_up(services.topics, one, version, is_replica=replica_id >= 0)
        exchange.error = exchange.error or error
        may_wait = may_wait and not error
        row = _row(one.wire.partition, error, end, tells_aborted=sees_aborted and not error)
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= CURRENT_LEADER:
            leader = Row(leader_id=services.node_id, leader_epoch=LEADER_EPOCH)
            row = row._replace(current_leader=leader)
        rows.append((one.topic, row))
    for one in missing:
        exchange.error = exchange.error or one.error
        rows.append((one.topic, _row(one.wire.partition, one.error, -1, tells_aborted=True)))
    entries = [
        (topic, [row for _, row in group]) for topic, group in groupby(rows, key=itemgetter(0))
    ]
    return _write(exchange, ErrorCode.NONE, 0, entries), may_wait


def _replica_id(wire: Any, version: int) -> int:
    return int(wire.replica_state.replica_id if version >= 15 else wire.replica_id)


def _stumbles(missing: list[_Asked], version: int) -> bool:
    """Return True if a missing partition has the topic id zero, and another missing partition
    follows. Kafka fails on such an answer, because it has no name to compare
    (FetchResponse.matchingTopic).
    """
    return version >= TOPIC_IDS and any(one.topic == _ZERO_ID for one in missing[:-1])


def _render_refused(wire: Any, exchange: Exchange) -> bytes:
    """Return the answer that Kafka gives if its handler fails (FetchRequest.getErrorResponse).
    Below version 13 the answer has an entry for each partition of the request.
    """
    version, error = exchange.version, ErrorCode.UNKNOWN_SERVER_ERROR
    exchange.error = error
    entries = _refused(wire, version, error) if version < TOPIC_IDS else []
    return _write(exchange, error, wire.session_id if version >= 7 else 0, entries)


def _refused(
    wire: Any, version: int, error: ErrorCode
) -> list[tuple[tuple[str, str], list[_Fetched]]]:
    by_id = version >= TOPIC_IDS
    return [
        (
            ("", uuid_to_topic_id(one.topic_id)) if by_id else (one.topic, ""),
            [_row(p.partition, error, -1, tells_aborted=True) for p in one.partitions],
        )
        for one in wire.topics
    ]


def _write(
    exchange: Exchange,
    error: ErrorCode,
    session_id: int,
    entries: list[tuple[tuple[str, str], list[_Fetched]]],
) -> bytes:
    return exchange.write(
        error_code=error,
        session_id=session_id,
        responses=[
            Row(topic=name, topic_id=topic_id, partitions=rows)
            for (name, topic_id), rows in entries
        ],
    )


def _row(index: int, error: ErrorCode, end: int, *, tells_aborted: bool) -> _Fetched:
    start = 0 if error is ErrorCode.NONE else -1
    return _Fetched(index, error, end, end, start, () if tells_aborted else None)
