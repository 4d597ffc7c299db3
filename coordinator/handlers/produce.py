"""Produce (0): every partition is refused, with a message that says why
(docs/design.md#static-mode).

| version | change |
| --- | --- |
| 5 | log start offset |
| 8 | record errors and an error message |
| 9 | flexible |
| 10 | current leader, as a tag |
| 13 | topic ids instead of names |

ApiVersions lists it from version 0, as Kafka does for old librdkafka. Versions 0-2 close the
connection. So do records without acknowledgement (acks=0), because their producer reads no reply.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.protocol.codec import uuid_to_topic_id
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

TOPIC_IDS = 13

MESSAGE = "groupkeeper coordinates groups and keeps their offsets; it stores no records"


@dataclass(slots=True)
class _Refused:
    """One partition in the answer, which refuses its records."""

    index: int
    error_code: ErrorCode
    error_message: str | None
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    record_errors: tuple[()] = ()


def handle(exchange: Exchange, services: Services) -> None:
    """Refuse all records at once. If the producer wants no reply (acks=0), close its connection."""
    wire = exchange.read(services)
    if wire.acks != 0:
        exchange.send(render(wire, exchange, services.denied))
    elif any(topic.partition_data for topic in wire.topic_data):
        # There is no reply for the error, so the connection is closed, as in Kafka (KafkaApis).
        exchange.channel.refused(exchange, "produce_without_acks")
    else:
        exchange.send(b"")


def render(wire: Any, exchange: Exchange, denied: ErrorCode) -> bytes:
    """Return the answer in the version of the request. It has each partition once."""
    merged = _merged(wire, exchange.version)
    error = denied or ErrorCode.POLICY_VIOLATION
    refused = partial(_Refused, error_code=error, error_message=None if denied else MESSAGE)
    exchange.error = error if merged else ErrorCode.NONE
    return exchange.write(
        responses=[
            Row(name=name, topic_id=topic_id, partition_responses=list(map(refused, indexes)))
            for (name, topic_id), indexes in merged.items()
        ],
    )


def _merged(wire: Any, version: int) -> dict[tuple[str, str], dict[int, None]]:
    """Return the partitions that the request names, each once, by (topic name, topic id). A request
    has only one of the two, and the other is "".

    Topics without partitions are left out.
    """
    merged: dict[tuple[str, str], dict[int, None]] = {}
    for topic in wire.topic_data:
        named = (topic.name, "") if version < TOPIC_IDS else ("", uuid_to_topic_id(topic.topic_id))
        if topic.partition_data:
            indexes = dict.fromkeys(partition.index for partition in topic.partition_data)
            merged.setdefault(named, {}).update(indexes)
    return merged
