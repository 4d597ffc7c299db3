"""LeaveGroup (13): remove members from a group (docs/spec/membership.md#leave-group).

| version | change |
| --- | --- |
| 1 | throttle time |
| 3 | several members, by id or instance id, each with its error; before, one member |
| 4 | flexible |
| 5 | reason |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.membership import (
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
)
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services


def handle(exchange: Exchange, services: Services) -> None:
    """Submit the request to leave. The answer has one entry for each member."""
    wire = exchange.read(services)
    exchange.render = render
    services.coordinator.submit(parse(wire, exchange.version, exchange.client), exchange)


def parse(wire: Any, version: int, client: Client) -> LeaveGroup:
    """Convert a request of any version to a ``LeaveGroup``, which has no version."""
    if version < 3:
        members: tuple[LeavingMember, ...] = (LeavingMember(wire.member_id, None),)
    elif version < 5:
        members = tuple([LeavingMember(m.member_id, m.group_instance_id) for m in wire.members])
    else:
        members = tuple(
            [LeavingMember(m.member_id, m.group_instance_id, m.reason) for m in wire.members]
        )
    return LeaveGroup(group_id=wire.group_id, members=members, client=client)


def render(result: LeaveGroupResult, exchange: Exchange) -> bytes:
    """Return the reply frame in the version of the request, and set ``exchange.error``."""
    error = result.error
    if exchange.version < 3 and error is ErrorCode.NONE and result.members:
        error = result.members[0].error
    exchange.error = error or next((m.error for m in result.members if m.error), error)
    return exchange.write(
        error_code=error,
        members=[
            Row(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=member.error,
            )
            for member in result.members
        ],
    )
