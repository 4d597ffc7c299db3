"""ListConfigResources (74): the resources with configs (docs/spec/administration.md#group-configs).

| version | change |
| --- | --- |
| 1 | resource types in request and reply; version 0 lists only client metrics |

A request without types gets the resources of all types. As in Kafka, an unknown type makes the
whole request fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.handlers.configs.resources import ResourceType
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services


def handle(exchange: Exchange, services: Services) -> None:
    """Answer at once from durable state, without asking a shard."""
    request = exchange.read(services)
    asked = {ResourceType.CLIENT_METRICS.value}
    if exchange.version >= 1:
        asked = set(request.resource_types) or {kind.value for kind in ResourceType}
    error = services.denied
    if error:
        asked = set()
    elif not asked <= {kind.value for kind in ResourceType}:
        error, asked = ErrorCode.UNSUPPORTED_VERSION, set()
    exchange.error = error
    rows = [
        Row(resource_name=name, resource_type=kind)
        for kind, names in _names(asked, services)
        for name in names
    ]
    exchange.send(exchange.write(error_code=error, config_resources=rows))


def _names(asked: set[int], services: Services) -> list[tuple[ResourceType, list[str]]]:
    """Return the names of the resources of each type that is asked for. There are no loggers to
    configure here, and no client metrics.
    """
    found: dict[ResourceType, list[str]] = {
        ResourceType.TOPIC: list(services.topics.image.by_name),
        ResourceType.BROKER: [str(services.node_id)],
        ResourceType.GROUP: services.coordinator.group_configs.groups(),
    }
    return [(kind, names) for kind, names in found.items() if kind in asked]
