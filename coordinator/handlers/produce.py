"""Produce (0): refused, partition by partition, with a message that says why (design 1).

| version | change |
| --- | --- |
| 5 | log start offset |
| 8 | record errors and an error message |
| 9 | flexible |
| 10 | current leader, as a tag |
| 13 | topic ids instead of names |

Listed from 0 as Kafka lists it, for old librdkafka; 0-2 close the connection. So do records that
want no acknowledgement (acks=0): their producer reads no error.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from coordinator.core.errors import ErrorCode
from coordinator.handlers.packing import ZERO_UUID, begin, finish, wire_count, wire_string
from coordinator.handlers.reading import read

if TYPE_CHECKING:
    from coordinator.handlers.exchange import Exchange
    from coordinator.handlers.services import Services

FIRST_FLEXIBLE = 9
TOPIC_IDS = 13

MESSAGE = "groupkeeper coordinates groups and keeps their offsets; it stores no records"

_V3 = struct.Struct(">ihqq")
_V5 = struct.Struct(">ihqqq")
_THROTTLE = bytes(4)


def handle(exchange: Exchange, services: Services) -> None:
    """Refuse at once; nothing of the records is kept."""
    wire = read(exchange, services)
    if wire.acks != 0:
        exchange.send(render(wire, exchange))
    elif any(topic.partition_data for topic in wire.topic_data):
        # There is no reply to say it in, so the connection does, as Kafka's (KafkaApis).
        exchange.channel.refused(exchange, "produce_without_acks")
    else:
        exchange.send(b"")


def render(wire: Any, exchange: Exchange) -> bytes:
    """Render for the version asked, each partition once."""
    version = exchange.version
    flexible = version >= FIRST_FLEXIBLE
    merged = _merged(wire, version)
    exchange.error = ErrorCode.POLICY_VIOLATION if merged else ErrorCode.NONE
    out = begin(exchange.correlation_id, flexible)
    out += wire_count(len(merged), flexible)
    tail = b""
    if version >= 8:
        tail = wire_count(0, flexible) + wire_string(MESSAGE, flexible)
    if flexible:
        tail += b"\0"
    for name, indexes in merged.items():
        out += name
        out += wire_count(len(indexes), flexible)
        for index in indexes:
            # Index, error, base offset, log append time, log start offset.
            if version >= 5:
                out += _V5.pack(index, ErrorCode.POLICY_VIOLATION, -1, -1, -1)
            else:
                out += _V3.pack(index, ErrorCode.POLICY_VIOLATION, -1, -1)
            out += tail
        if flexible:
            out.append(0)
    out += _THROTTLE
    if flexible:
        out.append(0)
    return finish(out)


def _merged(wire: Any, version: int) -> dict[bytes, dict[int, None]]:
    """The partitions by topic, which is named as the answer has it."""
    merged: dict[bytes, dict[int, None]] = {}
    for topic in wire.topic_data:
        if version < TOPIC_IDS:
            name = wire_string(topic.name, version >= FIRST_FLEXIBLE)
        else:
            name = ZERO_UUID if topic.topic_id is None else topic.topic_id.bytes
        if topic.partition_data:
            merged.setdefault(name, {}).update(dict.fromkeys(p.index for p in topic.partition_data))
    return merged
