"""OffsetDelete (47): delete offsets of topics that the group does not subscribe to
(docs/spec/offsets.md#delete).

There is one version, and it is not flexible. In the reply, the error of the whole request stands
before the throttle time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.offsets import OffsetDelete, OffsetDeleteResult
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.requests.client import Client
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services


def handle(exchange: Exchange, services: Services) -> None:
    """Submit the deletion. The answer is sent when the deletion is durable."""
    wire = exchange.read(services)
    exchange.render = render
    services.coordinator.submit(parse(wire, exchange.client), exchange)


def parse(wire: Any, client: Client) -> OffsetDelete:
    """Convert the request to an ``OffsetDelete``, the coordinator's own type."""
    topics = [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in wire.topics
    ]
    return OffsetDelete(wire.group_id, tuple(topics), client)


def render(result: OffsetDeleteResult, exchange: Exchange) -> bytes:
    """Return the reply frame, and set ``exchange.error``."""
    exchange.error = result.error or _first_error(result)
    return exchange.write(
        error_code=result.error,
        topics=[
            Row(
                name=name,
                partitions=[Row(partition_index=p, error_code=error) for p, error in partitions],
            )
            for name, partitions in result.topics
        ],
    )


def _first_error(result: OffsetDeleteResult) -> ErrorCode:
    errors = (error for _, partitions in result.topics for _, error in partitions if error)
    return next(errors, ErrorCode.NONE)
