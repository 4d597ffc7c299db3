"""JoinGroup (11): enter a group or its next generation (docs/spec/joining.md#join-group).

| version | change |
| --- | --- |
| 1 | rebalance timeout; in version 0 it is the session timeout |
| 2 | throttle time |
| 4 | an unknown dynamic member gets an id first: MEMBER_ID_REQUIRED (KIP-394) |
| 5 | group instance id (KIP-345) |
| 6 | flexible |
| 7 | protocol type in the reply; in a reply with an error, the protocol name is null |
| 8 | reason |
| 9 | skip-assignment flag (KIP-814) |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.membership import (
    JoinGroup,
    JoinGroupResult,
    JoinProtocol,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services


def handle(exchange: Exchange, services: Services) -> None:
    """Submit the join. The coordinator answers it at once, or when the join phase of the group
    ends.
    """
    wire = exchange.read(services)
    exchange.render = render
    request = parse(wire, exchange.version, exchange.client, services.mint)
    exchange.group_id = request.group_id
    services.coordinator.submit(request, exchange)


def parse(wire: Any, version: int, client: Client, mint: Callable[[], UUID]) -> JoinGroup:
    """Convert a request of any version to a ``JoinGroup``, which has no version. ``mint`` returns a
    new UUID, for the member id.
    """
    instance_id = wire.group_instance_id if version >= 5 else None
    # A new member id is the client id or the instance id, and a UUID (docs/spec/groups.md#model).
    owner = client.client_id if instance_id is None else instance_id
    return JoinGroup(
        group_id=wire.group_id,
        member_id=wire.member_id,
        group_instance_id=instance_id,
        protocol_type=wire.protocol_type,
        protocols=tuple([JoinProtocol(p.name, p.metadata) for p in wire.protocols]),
        session_timeout_ms=wire.session_timeout,
        rebalance_timeout_ms=wire.rebalance_timeout if version >= 1 else wire.session_timeout,
        new_member_id="" if wire.member_id else f"{owner}-{mint()}",
        requires_known_member_id=version >= 4,
        supports_skip_assignment=version >= 9,
        client=client,
        reason=wire.reason if version >= 8 else None,
    )


def render(result: JoinGroupResult, exchange: Exchange) -> bytes:
    """Return the reply frame in the version of the request, and set ``exchange.error``."""
    exchange.error = result.error
    # JoinGroupResponse: an empty name is null from v7 on, a null name is empty before.
    no_name = None if exchange.version >= 7 else ""
    return exchange.write(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name or no_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=result.members,
    )
