"""OffsetDelete (47): delete offsets of topics that the group does not subscribe to (spec 7.5).

One version, not flexible. The error code of the whole stands before the throttle time.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from coordinator.core.errors import ErrorCode
from coordinator.core.requests import OffsetDelete, OffsetDeleteResult
from coordinator.handlers.packing import begin, finish, wire_count, wire_string
from coordinator.handlers.reading import read

if TYPE_CHECKING:
    from coordinator.core.requests import Client
    from coordinator.handlers.exchange import Exchange
    from coordinator.handlers.services import Services

_HEAD = struct.Struct(">hi")
_PARTITION = struct.Struct(">ih")


def handle(exchange: Exchange, services: Services) -> None:
    """Submit; answered once the offsets are durably gone."""
    wire = read(exchange, services)
    exchange.render = render
    services.coordinator.submit(parse(wire, exchange.client), exchange)


def parse(wire: Any, client: Client) -> OffsetDelete:
    """Turn the request into the core's."""
    topics = [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in wire.topics
    ]
    return OffsetDelete(wire.group_id, tuple(topics), client)


def render(result: OffsetDeleteResult, exchange: Exchange) -> bytes:
    """Render the one version."""
    exchange.error = result.error or _first_error(result)
    out = begin(exchange.correlation_id, flexible_header=False)
    out += _HEAD.pack(result.error, 0)
    out += wire_count(len(result.topics), flexible=False)
    for name, partitions in result.topics:
        out += wire_string(name, flexible=False)
        out += wire_count(len(partitions), flexible=False)
        for partition, error in partitions:
            out += _PARTITION.pack(partition, error)
    return finish(out)


def _first_error(result: OffsetDeleteResult) -> ErrorCode:
    errors = (error for _, partitions in result.topics for _, error in partitions if error)
    return next(errors, ErrorCode.NONE)
