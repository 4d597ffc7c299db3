"""Requests about the adoption of groups: the copy of their offsets from the upstream cluster
(docs/design.md#adoption). These are no Kafka APIs.
"""

from __future__ import annotations

from groupkeeper.coordinator.core.dispatch import handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.records import ADOPTION_BEGUN, AdoptionMark
from groupkeeper.coordinator.core.requests.adoption import (
    MarkAdoption,
    ReadAdoption,
    ReadAdoptionResult,
)
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Ticket


@handles(ReadAdoption)
def read_adoption(
    shard: ShardState, group: Group | None, request: ReadAdoption, ticket: Ticket
) -> None:
    """Answer whether this shard has the group, and the state of the group's adoption mark."""
    state = shard.adoptions.state(request.group_id)
    shard.reply(ticket, ReadAdoptionResult(ErrorCode.NONE, group is not None, state))


@handles(MarkAdoption)
def mark_adoption(
    shard: ShardState, _group: Group | None, request: MarkAdoption, ticket: Ticket
) -> None:
    """Set or clear the mark that the adoption of a group has begun."""
    state = ADOPTION_BEGUN if request.begins else ""
    if shard.adoptions.state(request.group_id) != state:
        shard.record(AdoptionMark(request.group_id, state, shard.now.wall_ms))
    shard.reply(ticket, ErrorCode.NONE)
