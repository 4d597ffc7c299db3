"""ListGroups (16): every group of every shard that is ours (spec 11.1).

| version | change |
| --- | --- |
| 1 | throttle time |
| 3 | flexible |
| 4 | filter by state; state in the reply |
| 5 | filter by type; type in the reply |
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from coordinator.core.java_text import trim
from coordinator.core.requests import ListGroups, ListGroupsResult
from coordinator.handlers.packing import begin, finish, wire_count, wire_string
from coordinator.handlers.reading import read

if TYPE_CHECKING:
    from coordinator.handlers.exchange import Exchange
    from coordinator.handlers.services import Services

FIRST_FLEXIBLE = 3

_ERROR = struct.Struct(">h")
_THROTTLE = bytes(4)


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
    version = exchange.version
    flexible = version >= FIRST_FLEXIBLE
    out = begin(exchange.correlation_id, flexible)
    if version >= 1:
        out += _THROTTLE
    out += _ERROR.pack(result.error)
    out += wire_count(len(result.groups), flexible)
    tails: dict[tuple[str, str, str], bytes] = {}
    for group_id, protocol_type, state, group_type in result.groups:
        out += wire_string(group_id, flexible)
        # Few kinds, many groups.
        kind = (protocol_type, state, group_type)
        tail = tails.get(kind)
        if tail is None:
            tail = wire_string(protocol_type, flexible)
            if version >= 4:
                tail += wire_string(state, flexible)
            if version >= 5:
                tail += wire_string(group_type, flexible)
            if flexible:
                tail += b"\0"
            tails[kind] = tail
        out += tail
    if flexible:
        out.append(0)
    return finish(out)
