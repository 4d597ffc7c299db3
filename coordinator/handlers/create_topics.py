"""CreateTopics (19): create topics without records (static mode). Kafka's topic configs are
checked, but have no effect here.

| version | change |
| --- | --- |
| 4 | -1 partitions or replicas: the server's default |
| 5 | flexible; partitions, replicas and configs in the reply |
| 7 | topic id in the reply |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from groupkeeper.coordinator.core.cluster.names import CLUSTER_TOPIC
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.topics import ChangeTopics, NewTopic, TopicChange
from groupkeeper.coordinator.handlers import topic_changes
from groupkeeper.coordinator.handlers.configs.topic_configs import topic_config_error
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services


def handle(exchange: Exchange, services: Services) -> None:
    """Submit the topics that may be created. The answer is sent when they are durable."""
    wire = exchange.read(services)
    named = [(topic.name, "") for topic in wire.topics]
    if services.denied:
        topic_changes.refuse_all(exchange, named, services.denied, None, _render_once)
        return
    undecided = _undecided(wire.topics)
    new = [_new_topic(topic, services) for topic in wire.topics]
    if undecided and wire.timeout <= 0:
        topic_changes.refuse_all(exchange, named, ErrorCode.REQUEST_TIMED_OUT, None, render)
    elif _are_too_many(wire.topics, new, undecided, services):
        message = f"More than {topic_changes.MAX_NEW_PARTITIONS} partitions in one request."
        topic_changes.refuse_all(exchange, named, ErrorCode.POLICY_VIOLATION, message, render)
    else:
        change = ChangeTopics(exchange.client, create=tuple(new), validate_only=wire.validate_only)
        topic_changes.submit(exchange, services, change, [None] * len(new), _render_once)


def _undecided(topics: Any) -> frozenset[str]:
    """Return the names that Kafka would pass to its controller. Kafka refuses all other names
    earlier.
    """
    names = [topic.name for topic in topics]
    return frozenset(names) - topic_changes.repeated(names) - {CLUSTER_TOPIC}


def _new_topic(topic: Any, services: Services) -> NewTopic:
    partitions, refusal = _partitions(topic, services), _refusal_of(topic, services)
    return NewTopic(topic.name, partitions, services.new_topic_id(), refusal)


def _are_too_many(
    topics: Any, new: list[NewTopic], undecided: frozenset[str], services: Services
) -> bool:
    """Return True if the request exceeds one of Kafka's two limits: the number of new partitions,
    and the number of records that Kafka would write.
    """
    asked = written = 0
    for topic, made in zip(topics, new, strict=True):
        if made.name in undecided and made.partitions > 0:
            asked += made.partitions
            if made.refusal is None and made.name not in services.topics.image.by_name:
                written += 1 + made.partitions + len({config.name for config in topic.configs})
    return max(asked, written) > topic_changes.MAX_NEW_PARTITIONS


def _refusal_of(topic: Any, services: Services) -> tuple[ErrorCode, str] | None:
    """Return the first error of a topic, in Kafka's order; None if there is none. The name of the
    topic is checked elsewhere.
    """
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        message = f"Null value not supported for topic configs: {', '.join(nulls)}"
        return ErrorCode.INVALID_CONFIG, message
    wrong = topic_config_error({config.name: config.value for config in topic.configs})
    if wrong is not None:
        return ErrorCode.INVALID_CONFIG, wrong
    if topic.assignments:
        return _refusal_of_assignments(topic, services.node_id)
    replicas = topic.replication_factor
    if replicas in (-1, 1) or (replicas > 1 and _partitions(topic, services) < 1):
        return None
    message = f"replication factor {replicas}, but there is one broker"
    return ErrorCode.INVALID_REPLICATION_FACTOR, message


def _refusal_of_assignments(topic: Any, node_id: int) -> tuple[ErrorCode, str] | None:
    """Return the error of a manual assignment of partitions to brokers; None if there is none. The
    assignment must place every partition on this server.
    """
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        message = "partitions and replication factor must be -1 beside a manual assignment"
        return ErrorCode.INVALID_REQUEST, message
    indexes = sorted(a.partition_index for a in topic.assignments)
    if indexes != list(range(len(indexes))) or any(
        tuple(a.broker_ids) != (node_id,) for a in topic.assignments
    ):
        message = f"partitions must be numbered from 0, each on broker {node_id} alone"
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    return None


def _partitions(topic: Any, services: Services) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return services.num_partitions if topic.num_partitions == -1 else int(topic.num_partitions)


def _render_once(changes: list[TopicChange], exchange: Exchange) -> bytes:
    return render(topic_changes.unique(changes), exchange)


def render(changes: list[TopicChange], exchange: Exchange) -> bytes:
    """Return the reply frame in the version of the request, and set ``exchange.error``."""
    exchange.error = topic_changes.first_error(changes)
    return exchange.write(topics=[_row(change) for change in changes])


def _row(change: TopicChange) -> Row:
    created = change.error is ErrorCode.NONE
    return Row(
        name=change.name,
        topic_id=change.topic_id if created else "",
        error_code=change.error,
        error_message=change.message,
        num_partitions=change.partitions if created else -1,
        replication_factor=1 if created else -1,
        configs=(),
    )
