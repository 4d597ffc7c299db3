"""DeleteGroups (42): remove Empty groups with all of their offsets (spec 11.3).

| version | change |
| --- | --- |
| 2 | flexible |

Each group is judged on its own; one that is named twice is deleted and answered once.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from coordinator.core.errors import ErrorCode
from coordinator.core.requests import DeleteGroup
from coordinator.handlers.gather import Gather
from coordinator.handlers.packing import begin, finish, wire_count, wire_string
from coordinator.handlers.reading import read

if TYPE_CHECKING:
    from coordinator.handlers.exchange import Exchange
    from coordinator.handlers.services import Services

FIRST_FLEXIBLE = 2

_ERROR = struct.Struct(">h")
_THROTTLE = bytes(4)


def handle(exchange: Exchange, services: Services) -> None:
    """Delete group after group; answered once the last of them is durably gone."""
    wire = read(exchange, services)
    flexible = exchange.version >= FIRST_FLEXIBLE
    group_ids = list(dict.fromkeys(wire.groups_names))

    def render_part(error: ErrorCode, index: int) -> bytes:
        exchange.error = exchange.error or error
        part = wire_string(group_ids[index], flexible) + _ERROR.pack(error)
        return part + b"\0" if flexible else part

    def render_all(parts: list[bytes]) -> bytes:
        out = begin(exchange.correlation_id, flexible)
        out += _THROTTLE
        out += wire_count(len(parts), flexible)
        out += b"".join(parts)
        if flexible:
            out.append(0)
        return finish(out)

    requests = [DeleteGroup(group_id, exchange.client) for group_id in group_ids]
    Gather(exchange, services, requests, render_part, render_all).begin()
