"""ConsumerGroupHeartbeat (68): join a consumer group, stay in it, leave it
(docs/spec/consumer-groups.md#heartbeat). Members of a consumer group need no other request for
their membership.

| version | change |
| --- | --- |
| 1 | subscription by a pattern; the client makes the member id |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from groupkeeper.coordinator.core.consumer.validation import heartbeat_error
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from groupkeeper.coordinator.handlers.exchange import NO_THROTTLE_MS
from groupkeeper.protocol.codec import uuid_to_topic_id
from groupkeeper.protocol.last_requests import MAX_REPEATED_BYTES, Repeated
from groupkeeper.protocol.packed.consumer_group_heartbeat import (
    consumer_group_heartbeat_body,
    pack_consumer_group_heartbeat,
    read_steady_heartbeat,
)
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

FIRST_WITH_PATTERN = 1


_MOST_BYTES: Final = MAX_REPEATED_BYTES + 1
"""The largest number of bytes of a body that are compared with the last body. A longer body is cut
to this length. It then differs from every remembered body, because those are shorter."""


def handle(exchange: Exchange, services: Services) -> None:
    """Submit the heartbeat. If it changes nothing, it is usually answered before this returns.

    A member repeats the same heartbeat again and again. If version, body and client are those of
    the last heartbeat, its parsed request is used again.
    """
    offset = exchange.body_at
    body = exchange.frame[offset : offset + _MOST_BYTES]
    exchange.render = render
    last = exchange.last.consumer_heartbeat
    if last is not None and last.body == body and last.version == exchange.version:
        again: ConsumerGroupHeartbeat = last.request
        if again.client is exchange.client:
            exchange.blocks = False
            services.coordinator.submit(again, exchange)
            return
    steady = _read_steady(exchange)
    request = parse(exchange.read(services), exchange, services) if steady is None else steady
    refusal = _refusal_of(request, exchange.version, services)
    if refusal is not None:
        exchange.resolve(refusal)
        return
    # The request of a denied client is not remembered: ``_refusal_of`` has not checked it.
    if steady is not None and not services.denied and len(body) <= MAX_REPEATED_BYTES:
        exchange.last.consumer_heartbeat = Repeated(exchange.version, body, steady)
    services.coordinator.submit(request, exchange)


def _read_steady(exchange: Exchange) -> ConsumerGroupHeartbeat | None:
    """Return the request of a heartbeat in which the member states no change. Return None for any
    other heartbeat.
    """
    read = read_steady_heartbeat(exchange.version, exchange.frame, exchange.body_at)
    if read is None:
        return None
    exchange.blocks = False
    group_id, member_epoch, member_id, instance_id = read
    return ConsumerGroupHeartbeat(
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


def parse(wire: Any, exchange: Exchange, services: Services) -> ConsumerGroupHeartbeat:
    """Convert a request of any version to a ``ConsumerGroupHeartbeat``, which has no version."""
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
    """Return the refusal for a request that no group would accept; None for any other request."""
    if not services.serves_consumer_groups:
        return ConsumerGroupHeartbeatResult(ErrorCode.UNSUPPORTED_VERSION)
    if services.denied:
        return None  # ``routes._Denying`` answers a denied client
    client_makes_id = version >= FIRST_WITH_PATTERN
    wrong = heartbeat_error(request, services.consumer_assignors, client_makes_id=client_makes_id)
    return None if wrong is None else ConsumerGroupHeartbeatResult(wrong.error, wrong.message)


def render(result: ConsumerGroupHeartbeatResult, exchange: Exchange) -> bytes:
    """Return the response frame, and set ``exchange.error``."""
    last = exchange.last
    if result is last.answer:  # the core repeats the result of a heartbeat that changes nothing
        body = last.answer_body
    else:
        exchange.error = result.error
        if result.assignment is not None or result.message is not None:
            return _write(result, exchange)
        body = consumer_group_heartbeat_body(
            result.error, result.member_id, result.member_epoch, result.heartbeat_interval_ms
        )
        if not result.error and len(body) <= MAX_REPEATED_BYTES:
            last.answer = result
            last.answer_body = body
    return pack_consumer_group_heartbeat(exchange.correlation_id, NO_THROTTLE_MS, body)


def _write(result: ConsumerGroupHeartbeatResult, exchange: Exchange) -> bytes:
    assignment = result.assignment
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
