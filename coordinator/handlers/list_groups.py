"""ListGroups (16): every group of every shard that is ours (spec 11.1).

| version | change |
| --- | --- |
| 1 | throttle time |
| 3 | flexible |
| 4 | filter by state; state in the reply |
| 5 | filter by type; type in the reply |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coordinator.core.java_text import trim
from coordinator.core.requests import ListGroups, ListGroupsResult
from coordinator.handlers.reading import read
from coordinator.handlers.writing import write

if TYPE_CHECKING:
    from coordinator.handlers.exchange import Exchange
    from coordinator.handlers.services import Services


def handle(exchange: Exchange, services: Services) -> None:
    """Submit the listing; the coordinator gathers it over its shards."""
    wire = read(exchange, services)
    exchange.render = render
    services.coordinator.submit(parse(wire, exchange.version), exchange)


def parse(wire: Any, version: int) -> ListGroups:
    """Turn a request of any version into the core's. Kafka trims states, and does not trim
    types.
    """
    return ListGroups(
        states=frozenset(trim(s).lower() for s in wire.states_filter)
        if version >= 4
        else frozenset(),
        types=frozenset(t.lower() for t in wire.types_filter) if version >= 5 else frozenset(),
    )


def render(result: ListGroupsResult, exchange: Exchange) -> bytes:
    """Render for the version asked."""
    exchange.error = result.error
    return write(exchange, error_code=result.error, groups=result.groups)
