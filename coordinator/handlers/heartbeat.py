"""Heartbeat (12): a member shows that it is alive (docs/spec/membership.md#heartbeat). This is the
most frequent request.

| version | change |
| --- | --- |
| 1 | throttle time |
| 3 | group instance id |
| 4 | flexible |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from groupkeeper.coordinator.core.requests.membership import Heartbeat
from groupkeeper.coordinator.handlers.exchange import NO_THROTTLE_MS
from groupkeeper.protocol.last_requests import MAX_REPEATED_BYTES, Repeated
from groupkeeper.protocol.packed.heartbeat import pack_heartbeat, read_heartbeat

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.errors import ErrorCode
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services


_MOST_BYTES: Final = MAX_REPEATED_BYTES + 1
"""The largest number of bytes of a body that are compared with the last body. A longer body is cut
to this length. It then differs from every remembered body, because those are shorter."""


def handle(exchange: Exchange, services: Services) -> None:
    """Submit the heartbeat. It is usually answered before this returns.

    A member sends the same heartbeat again and again. If version, body and client equal those of
    the last heartbeat of the connection, the request made from that one is submitted again. So the
    body is not parsed.
    """
    offset = exchange.body_at
    body = exchange.frame[offset : offset + _MOST_BYTES]
    exchange.blocks = False
    exchange.render = render
    last = exchange.last.heartbeat
    if last is not None and last.body == body and last.version == exchange.version:
        request: Heartbeat = last.request
        if request.client is exchange.client:
            services.coordinator.submit(request, exchange)
            return
    request = _read(exchange, services)
    if len(body) <= MAX_REPEATED_BYTES:
        exchange.last.heartbeat = Repeated(exchange.version, body, request)
    services.coordinator.submit(request, exchange)


def _read(exchange: Exchange, services: Services) -> Heartbeat:
    group_id, generation_id, member_id, instance_id = read_heartbeat(
        exchange.version,
        exchange.frame,
        exchange.body_at,
        services.max_request_elements,
        exchange.last,
    )
    return Heartbeat(group_id, generation_id, member_id, instance_id, exchange.client)


def render(result: ErrorCode, exchange: Exchange) -> bytes:
    """Return the reply frame in the version of the request, and set ``exchange.error``."""
    exchange.error = result
    return pack_heartbeat(exchange.version, exchange.correlation_id, NO_THROTTLE_MS, result)
