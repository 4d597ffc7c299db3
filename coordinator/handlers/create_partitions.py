"""CreatePartitions (37): add partitions to topics. Here topics have no records (static mode).

| version | change |
| --- | --- |
| 2 | flexible |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.topics import ChangeTopics, TopicChange
from groupkeeper.coordinator.handlers import topic_changes
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services


def handle(exchange: Exchange, services: Services) -> None:
    """Submit the topics that may be changed. The answer is sent when the new partitions are
    durable.
    """
    wire = exchange.read(services)
    named = [(topic.name, "") for topic in wire.topics]
    if services.denied:
        topic_changes.refuse_all(exchange, named, services.denied, None, _render_once)
        return
    twice = topic_changes.repeated([topic.name for topic in wire.topics])
    if wire.timeout <= 0 and any(topic.name not in twice for topic in wire.topics):
        topic_changes.refuse_all(exchange, named, ErrorCode.REQUEST_TIMED_OUT, None, render)
        return
    refusals = []
    room = topic_changes.MAX_NEW_PARTITIONS
    for topic in wire.topics:
        refusals.append(_refusal_of(topic, twice, room, services))
        if refusals[-1] is None:
            room -= max(_growth(topic, services), 0)
    change = ChangeTopics(
        client=exchange.client,
        grow=tuple(
            [
                (topic.name, topic.count)
                for topic, refused in zip(wire.topics, refusals, strict=True)
                if refused is None
            ]
        ),
        validate_only=wire.validate_only,
    )
    topic_changes.submit(exchange, services, change, refusals, _render_once)


def _growth(topic: Any, services: Services) -> int:
    known = services.topics.image.by_name.get(topic.name)
    return 0 if known is None else int(topic.count) - known.partitions


def _refusal_of(
    topic: Any, twice: frozenset[str], room: int, services: Services
) -> TopicChange | None:
    if topic.name in twice:
        return topic_changes.refusal(topic.name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    growth = _growth(topic, services)
    if growth <= 0:
        return None  # the cluster shard reports the error
    assigned = topic.assignments
    if assigned is not None and (
        len(assigned) != growth or any(tuple(a.broker_ids) != (services.node_id,) for a in assigned)
    ):
        return topic_changes.refusal(
            topic.name,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"every new partition must be on broker {services.node_id} alone",
        )
    if growth > room:
        message = f"More than {topic_changes.MAX_NEW_PARTITIONS} partitions in one request."
        return topic_changes.refusal(topic.name, ErrorCode.POLICY_VIOLATION, message)
    return None


def _render_once(changes: list[TopicChange], exchange: Exchange) -> bytes:
    return render(topic_changes.unique(changes), exchange)


def render(changes: list[TopicChange], exchange: Exchange) -> bytes:
    """Return the reply frame in the version of the request, and set ``exchange.error``."""
    exchange.error = topic_changes.first_error(changes)
    return exchange.write(
        results=[
            Row(name=change.name, error_code=change.error, error_message=change.message)
            for change in changes
        ],
    )
