"""Produce (0): refused, partition by partition, with a message that says why (design 1).

| version | change |
| --- | --- |
| 5 | log start offset |
| 8 | record errors and an error message |
| 9 | flexible |
| 10 | current leader, as a tag |
| 13 | topic ids instead of names |

Listed from 0 as Kafka lists it, for old librdkafka; 0-2 close the connection. So does a producer
that wants no acknowledgement (acks=0): it reads no error.
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
    if wire.acks == 0:
        # There is no reply to say it in, so the connection does, as Kafka's (KafkaApis).
        exchange.channel.refused(exchange, "produce_without_acks")
        return
    exchange.send(render(wire, exchange))


def render(wire: Any, exchange: Exchange) -> bytes:
    """Render for the version asked."""
    exchange.error = ErrorCode.POLICY_VIOLATION
    version = exchange.version
    flexible = version >= FIRST_FLEXIBLE
    out = begin(exchange.correlation_id, flexible)
    out += wire_count(len(wire.topic_data), flexible)
    tail = b""
    if version >= 8:
        tail = wire_count(0, flexible) + wire_string(MESSAGE, flexible)
    if flexible:
        tail += b"\0"
    for topic in wire.topic_data:
        if version >= TOPIC_IDS:
            out += ZERO_UUID if topic.topic_id is None else topic.topic_id.bytes
        else:
            out += wire_string(topic.name, flexible)
        out += wire_count(len(topic.partition_data), flexible)
        for partition in topic.partition_data:
            # Index, error, base offset, log append time, log start offset.
            if version >= 5:
                out += _V5.pack(partition.index, ErrorCode.POLICY_VIOLATION, -1, -1, -1)
            else:
                out += _V3.pack(partition.index, ErrorCode.POLICY_VIOLATION, -1, -1)
            out += tail
        if flexible:
            out.append(0)
    out += _THROTTLE
    if flexible:
        out.append(0)
    return finish(out)
