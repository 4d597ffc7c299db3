"""ListGroups (16): every group of all our shards (docs/spec/administration.md#list-groups).

| version | change |
| --- | --- |
| 1 | throttle time |
| 3 | flexible |
| 4 | filter by state; state in the reply |
| 5 | filter by type; type in the reply |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from groupkeeper.coordinator.core.requests.admin import ListedGroup, ListGroups, ListGroupsResult
from groupkeeper.coordinator.handlers.slices import REPLY_TOO_LARGE
from groupkeeper.protocol.writer import Written

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

_BLANKS = "".join(map(chr, range(0x21)))
"""The characters that Java's String.trim removes: control characters and the ASCII space."""


def handle(exchange: Exchange, services: Services) -> None:
    """Start the listing. The coordinator collects the groups of all its shards."""
    wire = exchange.read(services)
    reply = _Reply(exchange, services)
    cancel = services.coordinator.submit_listing(parse(wire, exchange.version), reply)
    if exchange.reply is None:
        exchange.on_closed = cancel


def parse(wire: Any, version: int) -> ListGroups:
    """Convert a request of any version to a ``ListGroups``, which has no version. Like Kafka, trim
    the names of states, but not the names of types.
    """
    return ListGroups(
        states=frozenset(s.strip(_BLANKS).lower() for s in wire.states_filter)
        if version >= 4
        else frozenset(),
        types=frozenset(t.lower() for t in wire.types_filter) if version >= 5 else frozenset(),
    )


class _Reply:
    """Collects the groups of one reply. When a shard has answered, its groups are rendered at
    once.
    """

    __slots__ = ("_bytes", "_exchange", "_groups", "_max_bytes", "_parts")

    def __init__(self, exchange: Exchange, services: Services) -> None:
        self._exchange = exchange
        self._max_bytes = services.max_reply_bytes
        self._parts: list[bytes] = []
        self._groups = 0
        self._bytes = 0
        exchange.render = self._render

    def receive(self, groups: Sequence[ListedGroup]) -> bool:
        exchange = self._exchange
        part = exchange.write_part("groups", groups)
        self._parts.append(part)
        self._groups += len(groups)
        self._bytes += len(part)
        if self._bytes > self._max_bytes:
            exchange.on_closed = None
            exchange.channel.refused(exchange, REPLY_TOO_LARGE)
            return False
        exchange.channel.grew(exchange, len(part))
        return True

    def resolve(self, result: ListGroupsResult) -> None:
        if not result.groups or self.receive(result.groups):
            self._exchange.resolve(result)

    def _render(self, result: ListGroupsResult, exchange: Exchange) -> bytes:
        exchange.error = result.error
        groups = Written(0, []) if result.error else Written(self._groups, self._parts)
        return exchange.write(error_code=result.error, groups=groups)
