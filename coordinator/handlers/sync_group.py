"""SyncGroup (14): fetch a member's assignment. The leader sends the assignments of all members
(docs/spec/membership.md#sync-group).

| version | change |
| --- | --- |
| 1 | throttle time |
| 3 | group instance id |
| 4 | flexible |
| 5 | protocol type and name, both ways; mandatory in the request, though they may be null |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.membership import SyncGroup, SyncGroupResult

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

REPEATED_AT_ONCE: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR)
"""The errors for assignments that are too large. On any error of SyncGroup, librdkafka joins again
without a pause: a leader whose assignments were refused sent 8,000 requests a second."""
REFUSED_AFTER_S: Final = 1.0
"""The delay of an answer with an error of ``REPEATED_AT_ONCE``. So librdkafka repeats a refused
SyncGroup no more often than a refused JoinGroup."""


def handle(exchange: Exchange, services: Services) -> None:
    """Submit the sync. The sync of a follower waits until the leader has sent the assignments."""
    wire = exchange.read(services)
    exchange.render = render
    if exchange.version >= 5 and (wire.protocol_type is None or wire.protocol_name is None):
        # Before any other check, authorization included (KafkaApis.handleSyncGroupRequest).
        exchange.resolve(SyncGroupResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    services.coordinator.submit(parse(wire, exchange.version, exchange.client), exchange)


def parse(wire: Any, version: int, client: Client) -> SyncGroup:
    """Convert a request of any version to a ``SyncGroup``, which has no version."""
    return SyncGroup(
        group_id=wire.group_id,
        generation_id=wire.generation_id,
        member_id=wire.member_id,
        group_instance_id=wire.group_instance_id if version >= 3 else None,
        protocol_type=wire.protocol_type if version >= 5 else None,
        protocol_name=wire.protocol_name if version >= 5 else None,
        assignments=tuple([(a.member_id, a.assignment) for a in wire.assignments]),
        client=client,
    )


def render(result: SyncGroupResult, exchange: Exchange) -> bytes | None:
    """Return the reply frame in the version of the request. If clients would repeat the request at
    once, return None and send the frame later.
    """
    exchange.error = result.error
    reply = exchange.write(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
    if result.error not in REPEATED_AT_ONCE:
        return reply

    def send() -> None:
        exchange.on_closed = None
        exchange.send(reply)

    exchange.on_closed = exchange.channel.later(REFUSED_AFTER_S, send)
    return None
