"""DeleteGroups (42): delete Empty groups with all of their offsets
(docs/spec/administration.md#delete-groups).

| version | change |
| --- | --- |
| 2 | flexible |

Each group is deleted on its own. A group that is named twice is deleted and answered once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.handlers.gather import Gather
from groupkeeper.protocol.writer import Row, Written

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

AT_ONCE = 16
"""The largest number of groups that are deleted at the same time. Each group is deleted in portions
of up to 3 ms, in which the event loop is blocked."""


def handle(exchange: Exchange, services: Services) -> None:
    """Delete each group. The answer is sent when the last deletion is durable."""
    wire = exchange.read(services)
    group_ids = list(dict.fromkeys(wire.groups_names))

    def render_part(error: ErrorCode, index: int) -> bytes:
        exchange.error = exchange.error or error
        row = Row(group_id=group_ids[index], error_code=error)
        return exchange.write_part("results", [row])

    def render_all(parts: list[bytes]) -> bytes:
        return exchange.write(results=Written(len(parts), parts))

    requests = [DeleteGroup(group_id, exchange.client) for group_id in group_ids]
    Gather(exchange, services, requests, render_part, render_all, AT_ONCE).begin()
