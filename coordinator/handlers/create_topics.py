"""CreateTopics (19): topics of static mode. Kafka's configs are accepted and have no meaning here.

| version | change |
| --- | --- |
| 4 | -1 partitions or replicas: the server's default |
| 5 | flexible; partitions, replicas and configs in the reply |
| 7 | topic id in the reply |
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from coordinator.core.errors import ErrorCode
from coordinator.core.requests import ChangeTopics, NewTopic, TopicChange
from coordinator.handlers import topic_changes
from coordinator.handlers.packing import begin, finish, topic_id_bytes, wire_count, wire_string
from coordinator.handlers.reading import read
from coordinator.handlers.topic_configs import TOPIC_CONFIG_NAMES

if TYPE_CHECKING:
    from coordinator.handlers.exchange import Exchange
    from coordinator.handlers.services import Services

FIRST_FLEXIBLE = 5

_ERROR = struct.Struct(">h")
_PARTITIONS_AND_REPLICAS = struct.Struct(">ih")
_THROTTLE = bytes(4)


def handle(exchange: Exchange, services: Services) -> None:
    """Submit what can be asked of us; answered once the topics are durable."""
    wire = read(exchange, services)
    judged = [_judge(topic, services) for topic in wire.topics]
    change = ChangeTopics(
        client=exchange.client,
        create=tuple(
            [
                NewTopic(topic.name, _partitions(topic, services), services.new_topic_id())
                for topic, refused in zip(wire.topics, judged, strict=True)
                if refused is None
            ]
        ),
        validate_only=wire.validate_only,
    )
    topic_changes.submit(exchange, services, change, judged, render)


def _judge(topic: Any, services: Services) -> TopicChange | None:
    if topic.name in services.topics.image.by_name:
        return None  # that it exists comes before what else is wrong with it, as in Kafka
    for config in topic.configs:
        if config.name not in TOPIC_CONFIG_NAMES:
            return topic_changes.refusal(
                topic.name,
                ErrorCode.INVALID_CONFIG,
                f"Unknown topic config name: {config.name}",
            )
    if topic.assignments:
        return _judge_assignments(topic, services.node_id)
    if topic.replication_factor not in (-1, 1):
        return topic_changes.refusal(
            topic.name,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {topic.replication_factor}, but there is one broker",
        )
    return None


def _judge_assignments(topic: Any, node_id: int) -> TopicChange | None:
    """A manual assignment may only say what is so anyway: every partition on us."""
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        return topic_changes.refusal(
            topic.name,
            ErrorCode.INVALID_REQUEST,
            "partitions and replication factor must be -1 beside a manual assignment",
        )
    indexes = sorted(a.partition_index for a in topic.assignments)
    if indexes != list(range(len(indexes))) or any(
        tuple(a.broker_ids) != (node_id,) for a in topic.assignments
    ):
        return topic_changes.refusal(
            topic.name,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partitions must be numbered from 0, each on broker {node_id} alone",
        )
    return None


def _partitions(topic: Any, services: Services) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return services.num_partitions if topic.num_partitions == -1 else int(topic.num_partitions)


def render(changes: list[TopicChange], exchange: Exchange) -> bytes:
    """Render for the version asked."""
    version = exchange.version
    flexible = version >= FIRST_FLEXIBLE
    shown = topic_changes.unique(changes)
    exchange.error = topic_changes.first_error(shown)
    out = begin(exchange.correlation_id, flexible)
    out += _THROTTLE
    out += wire_count(len(shown), flexible)
    for change in shown:
        created = change.error is ErrorCode.NONE
        out += wire_string(change.name, flexible)
        if version >= 7:
            out += topic_id_bytes(change.topic_id if created else "")
        out += _ERROR.pack(change.error)
        out += wire_string(change.message, flexible)
        if version >= 5:
            out += _PARTITIONS_AND_REPLICAS.pack(
                change.partitions if created else -1, 1 if created else -1
            )
            out += wire_count(0, flexible)  # configs
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    return finish(out)
