"""ListConfigResources (74): what has configs (spec 12).

| version | change |
| --- | --- |
| 1 | resource types in request and reply; before, it listed client metrics alone |

No types: all of them. A type that is not known fails the whole request, as in Kafka.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from coordinator.core.errors import ErrorCode
from coordinator.handlers.config_resources import ResourceType
from coordinator.handlers.packing import begin, finish, wire_count, wire_string
from coordinator.handlers.reading import read

if TYPE_CHECKING:
    from coordinator.handlers.exchange import Exchange
    from coordinator.handlers.services import Services

_HEAD = struct.Struct(">ih")
_TAIL = struct.Struct(">bb")


def handle(exchange: Exchange, services: Services) -> None:
    """Answer at once, from what is durable."""
    request = read(exchange, services)
    asked = {ResourceType.CLIENT_METRICS.value}
    if exchange.version >= 1:
        asked = set(request.resource_types) or {kind.value for kind in ResourceType}
    error = ErrorCode.NONE
    if not asked <= {kind.value for kind in ResourceType}:
        error, asked = ErrorCode.UNSUPPORTED_VERSION, set()
    exchange.error = error
    exchange.send(_render(exchange, error, _names(asked, services)))


def _names(asked: set[int], services: Services) -> list[tuple[ResourceType, list[str]]]:
    """There are no loggers that could be configured, and no subscriptions of client metrics."""
    found: dict[ResourceType, list[str]] = {
        ResourceType.TOPIC: list(services.topics.image.by_name),
        ResourceType.BROKER: [str(services.node_id)],
        ResourceType.GROUP: services.coordinator.group_configs.groups(),
    }
    return [(kind, names) for kind, names in found.items() if kind in asked]


def _render(
    exchange: Exchange, error: ErrorCode, found: list[tuple[ResourceType, list[str]]]
) -> bytes:
    out = begin(exchange.correlation_id, flexible_header=True)
    out += _HEAD.pack(0, error)
    out += wire_count(sum([len(names) for _, names in found]), flexible=True)
    for kind, names in found:
        tail = _TAIL.pack(kind, 0) if exchange.version >= 1 else b"\0"
        for name in names:
            out += wire_string(name, flexible=True)
            out += tail
    out.append(0)
    return finish(out)
