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
| 16 | node endpoints |

There are no sessions: a full fetch is answered with session id 0, and an incremental one with
FETCH_SESSION_ID_NOT_FOUND, after which clients send full ones. A poll that has nothing wrong in it
waits for as long as the client asks, up to a limit; with an error in it, it is answered at once, as
Kafka does.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from coordinator.core.errors import ErrorCode
from coordinator.handlers.packing import ZERO_UUID, begin, finish, wire_count, wire_string
from coordinator.handlers.partitions import check_partition, find_by_id, find_by_name
from coordinator.handlers.reading import read

if TYPE_CHECKING:
    from coordinator.core.topic_image import TopicInfo
    from coordinator.handlers.exchange import Exchange
    from coordinator.handlers.services import Services, TopicSource

FIRST_FLEXIBLE = 12
TOPIC_IDS = 13

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
_ERROR_AND_SESSION = struct.Struct(">hi")
_THROTTLE = bytes(4)

UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""With these Kafka says that there are no aborted transactions; otherwise it leaves them out
(FetchResponse.partitionResponse, KafkaApis.handleFetchRequest).
"""


def handle(exchange: Exchange, services: Services) -> None:
    """Answer at once, or after the wait."""
    wire = read(exchange, services)
    topics = services.topics
    if exchange.version >= 7 and wire.session_epoch not in FULL_EPOCHS:
        exchange.send(_render_error(exchange, ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        return
    wait_ms = min(wire.max_wait, MAX_WAIT_MS)
    reply, may_wait = render(wire, exchange, topics)
    if not may_wait or wait_ms <= 0 or wire.min_bytes <= 0:
        exchange.send(reply)
        return

    def answer() -> None:
        exchange.on_closed = None
        # Rendered anew: the ends may have grown, a topic may have gone.
        exchange.send(render(wire, exchange, topics)[0])

    exchange.on_closed = exchange.channel.later(wait_ms / 1000, answer)


def look_up(
    topics: TopicSource, topic: TopicInfo | ErrorCode, wire: Any, version: int
) -> tuple[ErrorCode, int]:
    """Find (error, end) for one partition of the request; with an error the end is -1."""
    error = check_partition(
        topic, wire.partition, wire.current_leader_epoch if version >= 9 else -1
    )
    if error is not ErrorCode.NONE or isinstance(topic, ErrorCode):
        return error, -1
    end = topics.end_offset(topic.topic_id, wire.partition)
    if not 0 <= wire.fetch_offset <= end:
        return ErrorCode.OFFSET_OUT_OF_RANGE, -1
    return error, end


def render(wire: Any, exchange: Exchange, topics: TopicSource) -> tuple[bytes, bool]:
    """Render for the version asked; also say whether the answer may wait."""
    version = exchange.version
    flexible = version >= FIRST_FLEXIBLE
    by_id = version >= TOPIC_IDS
    image = topics.image
    may_wait = bool(wire.topics)
    out = begin(exchange.correlation_id, flexible)
    out += _THROTTLE
    if version >= 7:
        out += _ERROR_AND_SESSION.pack(ErrorCode.NONE, 0)
    out += wire_count(len(wire.topics), flexible)
    for asked in wire.topics:
        if by_id:
            topic = find_by_id(image, asked.topic_id)
            out += ZERO_UUID if asked.topic_id is None else asked.topic_id.bytes
        else:
            topic = find_by_name(image, asked.topic)
            out += wire_string(asked.topic, flexible)
        out += wire_count(len(asked.partitions), flexible)
        for partition in asked.partitions:
            error, end = look_up(topics, topic, partition, version)
            if error is not ErrorCode.NONE:
                exchange.error = exchange.error or error
                may_wait = False
            out += _pack_partition(version, partition.partition, error, end)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    return finish(out), may_wait


def _pack_partition(version: int, index: int, error: ErrorCode, end: int) -> bytes:
    start = 0 if error is ErrorCode.NONE else -1
    aborted = 0 if error in UNKNOWN else -1
    if version >= FIRST_FLEXIBLE:
        return _FLEXIBLE.pack(index, error, end, end, start, aborted + 1, -1, 1)
    if version >= 11:
        return _V11.pack(index, error, end, end, start, aborted, -1, 0)
    if version >= 5:
        return _V5.pack(index, error, end, end, start, aborted, 0)
    return _V4.pack(index, error, end, end, aborted, 0)


def _render_error(exchange: Exchange, error: ErrorCode) -> bytes:
    exchange.error = error
    flexible = exchange.version >= FIRST_FLEXIBLE
    out = begin(exchange.correlation_id, flexible)
    out += _THROTTLE
    out += _ERROR_AND_SESSION.pack(error, 0)
    out += wire_count(0, flexible)
    if flexible:
        out.append(0)
    return finish(out)
