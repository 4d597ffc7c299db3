"""Answers the requests of consumer groups as long as this room has no functions for them."""

from __future__ import annotations

from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
)
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket


@handles(ConsumerGroupHeartbeat)
@handles(ConsumerGroupDescribe)
def refuse(
    shard: ShardState,
    _group: Group | None,
    request: ConsumerGroupHeartbeat | ConsumerGroupDescribe,
    ticket: Ticket,
) -> None:
    """Refuse the request."""
    shard.reply(ticket, request.refused(ErrorCode.UNSUPPORTED_VERSION))
