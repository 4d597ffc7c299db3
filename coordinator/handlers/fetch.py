"""Fetch (1): a long poll that returns no records, for static mode holds none (design 1).

| version | change |
| --- | --- |
| 5 | log start offset |
| 7 | sessions, and an error for the whole |
| 9 | current leader epoch |
| 11 | rack, preferred read replica |
| 12 | flexible |
| 13 | topic ids instead of names |
| 15 | replica state |
| 16 | current leader, as a tag; node endpoints |

There are no sessions: a full fetch is answered with session id 0, and an incremental one with
FETCH_SESSION_ID_NOT_FOUND, after which clients send full ones. A poll that has nothing wrong in it
waits for as long as the client asks, up to a limit; with an error in it, it is answered at once, as
Kafka does. What does not exist is no such error: the rest of the poll waits.
"""

from __future__ import annotations

import struct
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator.core.errors import ErrorCode
from coordinator.handlers.packing import ZERO_UUID, begin, finish, wire_count, wire_string
from coordinator.handlers.partitions import LEADER_EPOCH, check_partition, find_by_id, find_by_name
from coordinator.handlers.reading import read

if TYPE_CHECKING:
    from coordinator.core.topic_image import TopicImage
    from coordinator.handlers.exchange import Exchange
    from coordinator.handlers.services import Services, TopicSource

FIRST_FLEXIBLE = 12
TOPIC_IDS = 13
CURRENT_LEADER = 16

MAX_WAIT_MS = 30_000
"""A poll never waits longer, whatever the client asks: Kafka's clients ask for 500 ms."""

FULL_EPOCHS = frozenset({0, -1})
"""Session epochs that begin or end a session, and so name every partition
(FetchMetadata.isFull).
"""

# Partition, error, high watermark, last stable offset, then by version: log start offset, aborted
# transactions, no preferred replica, no bytes of records, no tags.
_V4 = struct.Struct(">ihqqii")
_V5 = struct.Struct(">ihqqqii")
_V11 = struct.Struct(">ihqqqiii")
_FLEXIBLE = struct.Struct(">ihqqqBiBx")
_LEADER = struct.Struct(">BBBiix")
"""One tag, its number and its size: who leads, since which epoch, no tags."""
_ERROR_AND_SESSION = struct.Struct(">hi")
_THROTTLE = bytes(4)

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONSUMER, DEBUGGING_CONSUMER = -1, -2
"""Replica ids of those that are none."""
NO_EPOCH = -1


class _Asked(NamedTuple):
    """A partition of the request."""

    name: bytes
    """Its topic, by name or by id, as the answer has it."""
    topic_id: str
    error: ErrorCode
    """What it is that there is no such partition."""
    wire: Any


def handle(exchange: Exchange, services: Services) -> None:
    """Answer at once, or after the wait."""
    wire = read(exchange, services)
    if exchange.version >= 7 and wire.session_epoch not in FULL_EPOCHS:
        exchange.error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        exchange.send(_pack(exchange, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, []))
        return
    wait_ms = min(wire.max_wait, MAX_WAIT_MS)
    reply, may_wait = render(wire, exchange, services)
    if not may_wait or wait_ms <= 0 or wire.min_bytes <= 0:
        exchange.send(reply)
        return

    def answer() -> None:
        exchange.on_closed = None
        # Rendered anew: the ends may have grown, a topic may have gone.
        exchange.send(render(wire, exchange, services)[0])

    exchange.on_closed = exchange.channel.later(wait_ms / 1000, answer)


def _each_once(wire: Any, version: int, image: TopicImage) -> tuple[list[_Asked], list[_Asked]]:
    """Find what exists, and what does not. A partition that comes twice stands where it comes
    first, and is what is said last.
    """
    by_id, flexible = version >= TOPIC_IDS, version >= FIRST_FLEXIBLE
    asked: dict[tuple[bytes, int], _Asked] = {}
    for one in wire.topics:
        if by_id:
            topic = find_by_id(image, one.topic_id)
            name = ZERO_UUID if one.topic_id is None else one.topic_id.bytes
        else:
            topic = find_by_name(image, one.topic)
            name = wire_string(one.topic, flexible)
        topic_id = "" if isinstance(topic, ErrorCode) else topic.topic_id
        for partition in one.partitions:
            index = partition.partition
            error = check_partition(topic, index, NO_EPOCH)
            asked[name, index] = _Asked(name, topic_id, error, partition)
    known: list[_Asked] = []
    missing: list[_Asked] = []
    for found in asked.values():
        (missing if found.error else known).append(found)
    if by_id and _replica_id(wire, version) < 0:
        # Of a consumer's partitions Kafka looks at the ids first (KafkaApis.handleFetchRequest).
        missing.sort(key=lambda one: one.error is not ErrorCode.UNKNOWN_TOPIC_ID)
    return known, missing


def look_up(
    topics: TopicSource, asked: _Asked, version: int, *, is_replica: bool
) -> tuple[ErrorCode, int]:
    """Find (error, end) for a partition that exists; with an error the end is -1."""
    wire = asked.wire
    epoch = wire.current_leader_epoch if version >= 9 else NO_EPOCH
    if epoch > LEADER_EPOCH or (is_replica and epoch >= 0):
        return ErrorCode.UNKNOWN_LEADER_EPOCH, -1
    if is_replica:  # nobody is, here (Partition.followerReplicaOrThrow)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
    end = topics.end_offset(asked.topic_id, wire.partition)
    if not 0 <= wire.fetch_offset <= end:
        return ErrorCode.OFFSET_OUT_OF_RANGE, -1
    return ErrorCode.NONE, end


def render(wire: Any, exchange: Exchange, services: Services) -> tuple[bytes, bool]:
    """Render for the version asked; also say whether the answer may wait.

    What exists comes first; neighbours of one topic share an entry (FetchResponse.toMessage).
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
        tells = sees_aborted and not error
        row = _pack_partition(version, one.wire.partition, error, end, aborted=tells)
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= CURRENT_LEADER:
            row = row[:-1] + _LEADER.pack(1, 1, 9, services.node_id, LEADER_EPOCH)
        rows.append((one.name, row))
    for one in missing:
        exchange.error = exchange.error or one.error
        row = _pack_partition(version, one.wire.partition, one.error, -1, aborted=True)
        rows.append((one.name, row))
    entries = [
        (name, [row for _, row in group]) for name, group in groupby(rows, key=itemgetter(0))
    ]
    return _pack(exchange, ErrorCode.NONE, 0, entries), may_wait


def _replica_id(wire: Any, version: int) -> int:
    return int(wire.replica_state.replica_id if version >= 15 else wire.replica_id)


def _stumbles(missing: list[_Asked], version: int) -> bool:
    """Say whether something follows a partition of no id: Kafka has no name of that to compare with
    (FetchResponse.matchingTopic).
    """
    return version >= TOPIC_IDS and any(one.name == ZERO_UUID for one in missing[:-1])


def _render_refused(wire: Any, exchange: Exchange) -> bytes:
    """Answer as Kafka where it stumbles (FetchRequest.getErrorResponse): below 13 each partition as
    it was asked for.
    """
    version, error = exchange.version, ErrorCode.UNKNOWN_SERVER_ERROR
    exchange.error = error
    entries = []
    if version < TOPIC_IDS:
        entries = [
            (
                wire_string(one.topic, version >= FIRST_FLEXIBLE),
                [
                    _pack_partition(version, p.partition, error, -1, aborted=True)
                    for p in one.partitions
                ],
            )
            for one in wire.topics
        ]
    return _pack(exchange, error, wire.session_id if version >= 7 else 0, entries)


def _pack(
    exchange: Exchange, error: ErrorCode, session_id: int, entries: list[tuple[bytes, list[bytes]]]
) -> bytes:
    flexible = exchange.version >= FIRST_FLEXIBLE
    out = begin(exchange.correlation_id, flexible)
    out += _THROTTLE
    if exchange.version >= 7:
        out += _ERROR_AND_SESSION.pack(error, session_id)
    out += wire_count(len(entries), flexible)
    for name, rows in entries:
        out += name
        out += wire_count(len(rows), flexible)
        for row in rows:
            out += row
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    return finish(out)


def _pack_partition(
    version: int, index: int, error: ErrorCode, end: int, *, aborted: bool
) -> bytes:
    """Pack a row; ``aborted`` says that no transaction was, else nothing is said of them.

    Kafka says so of what does not exist, and to those who read what is committed
    (FetchResponse.partitionResponse, KafkaApis.handleFetchRequest).
    """
    start = 0 if error is ErrorCode.NONE else -1
    count = 0 if aborted else -1
    if version >= FIRST_FLEXIBLE:
        return _FLEXIBLE.pack(index, error, end, end, start, count + 1, -1, 1)
    if version >= 11:
        return _V11.pack(index, error, end, end, start, count, -1, 0)
    if version >= 5:
        return _V5.pack(index, error, end, end, start, count, 0)
    return _V4.pack(index, error, end, end, count, 0)
