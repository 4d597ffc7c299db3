"""ConsumerGroupHeartbeat (68): join a consumer group, stay in it, leave it
(docs/spec/consumer-groups.md#heartbeat). This is the only request of its members for membership.

| version | change |
| --- | --- |
| 1 | subscription by a pattern; the client makes the member id |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from groupkeeper.coordinator.core.consumer.validation import heartbeat_error
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from groupkeeper.coordinator.handlers.exchange import NO_THROTTLE_MS
from groupkeeper.protocol.codec import uuid_to_topic_id
from groupkeeper.protocol.packed.consumer_group_heartbeat import (
    pack_consumer_group_heartbeat,
    read_steady_heartbeat,
)
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

FIRST_WITH_PATTERN = 1


def handle(exchange: Exchange, services: Services) -> None:
    """Submit the heartbeat. One that changes nothing is usually answered before this returns."""
    version = exchange.version
    steady = read_steady_heartbeat(version, exchange.frame, exchange.offset)
    if steady is None:
        request = parse(exchange.read(services), exchange, services)
    else:
        group_id, member_epoch, member_id, instance_id = steady
        exchange.holds = False
        request = ConsumerGroupHeartbeat(
            group_id,
            member_id,
            member_epoch,
            instance_id,
            None,
            -1,
            None,
            None,
            None,
            None,
            None,
            "",
            exchange.client,
        )
    exchange.render = render
    refusal = _refusal_of(request, version, services)
    if refusal is None:
        services.coordinator.submit(request, exchange)
    else:
        exchange.resolve(refusal)


def parse(wire: Any, exchange: Exchange, services: Services) -> ConsumerGroupHeartbeat:
    """Convert a request of any version to the core's type."""
    names = wire.subscribed_topic_names
    pattern = wire.subscribed_topic_regex if exchange.version >= FIRST_WITH_PATTERN else None
    owned = wire.topic_partitions
    return ConsumerGroupHeartbeat(
        group_id=wire.group_id,
        member_id=wire.member_id,
        member_epoch=wire.member_epoch,
        group_instance_id=wire.instance_id,
        rack_id=wire.rack_id,
        rebalance_timeout_ms=wire.rebalance_timeout,
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=pattern,
        pattern_error=services.pattern_error(pattern) if pattern else None,
        server_assignor=wire.server_assignor,
        owned=None
        if owned is None
        else tuple([(uuid_to_topic_id(each.topic_id), tuple(each.partitions)) for each in owned]),
        new_member_id="" if wire.member_id else uuid_to_topic_id(services.mint()),
        client=exchange.client,
    )


def _refusal_of(
    request: ConsumerGroupHeartbeat, version: int, services: Services
) -> ConsumerGroupHeartbeatResult | None:
    """Return the refusal of a request that the state of the group does not matter for."""
    if not services.serves_consumer_groups:
        return ConsumerGroupHeartbeatResult(ErrorCode.UNSUPPORTED_VERSION)
    if services.denied:
        return None  # the coordinator of a denied client answers
    client_makes_id = version >= FIRST_WITH_PATTERN
    wrong = heartbeat_error(request, services.consumer_assignors, client_makes_id=client_makes_id)
    return None if wrong is None else ConsumerGroupHeartbeatResult(wrong.error, wrong.message)


def render(result: ConsumerGroupHeartbeatResult, exchange: Exchange) -> bytes:
    """Return the reply frame, and set ``exchange.error``."""
    exchange.error = result.error
    assignment = result.assignment
    if assignment is None and result.message is None:
        return pack_consumer_group_heartbeat(
            exchange.correlation_id,
            NO_THROTTLE_MS,
            result.error,
            result.member_id,
            result.member_epoch,
            result.heartbeat_interval_ms,
        )
    return exchange.write(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval=result.heartbeat_interval_ms,
        assignment=None
        if assignment is None
        else Row(
            topic_partitions=[
                Row(topic_id=topic_id, partitions=partitions) for topic_id, partitions in assignment
            ]
        ),
    )
