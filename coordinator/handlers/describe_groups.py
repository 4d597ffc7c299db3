"""DescribeGroups (15): classic groups and their members
(docs/spec/administration.md#describe-groups).

| version | change |
| --- | --- |
| 1 | throttle time |
| 3 | authorized operations |
| 4 | group instance id |
| 5 | flexible |
| 6 | an absent group is GROUP_ID_NOT_FOUND with a message; before, it is Dead without an error |

A group that is named twice is answered twice. As in Kafka, the message of a group without an error
is null. There is one exception: in an answer to our own command line, known by its client id, the
message says what the group waits for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.admin import DescribeGroup, DescribeGroupResult
from groupkeeper.coordinator.handlers.brokers import GROUP_OPERATIONS, NO_OPERATIONS
from groupkeeper.coordinator.handlers.gather import Gather
from groupkeeper.coordinator.handlers.waiting_text import shows_waiting, waiting_text
from groupkeeper.protocol.writer import Row, Written

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

FIRST_WITH_MESSAGE = 6


def handle(exchange: Exchange, services: Services) -> None:
    """Ask the coordinator for each group. The answers have the order of the request."""
    wire = exchange.read(services)
    version = exchange.version
    with_operations = version >= 3 and wire.include_authorized_operations

    def render_part(result: DescribeGroupResult, _index: int) -> bytes:
        exchange.error = exchange.error or _error_of(result, version)
        row = _row(result, version, with_operations=with_operations)
        return exchange.write_part("groups", [row])

    def render_all(parts: list[bytes]) -> bytes:
        return exchange.write(groups=Written(len(parts), parts))

    with_waiting = version >= FIRST_WITH_MESSAGE and shows_waiting(exchange, wire.groups)
    requests = [DescribeGroup(group_id, with_waiting) for group_id in wire.groups]
    Gather(exchange, services, requests, render_part, render_all).begin()


def _error_of(result: DescribeGroupResult, version: int) -> ErrorCode:
    """Return the error of a group's description. If the group does not exist, this is an error only
    from version 6 on.
    """
    absent = result.error is ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if absent and version < 6 else result.error


def _row(result: DescribeGroupResult, version: int, *, with_operations: bool) -> Row:
    error = _error_of(result, version)
    # Rows with an error have no operations. The Dead group of v5 has no error, so it has them.
    filled = with_operations and error is ErrorCode.NONE
    return Row(
        error_code=error,
        error_message=result.message if result.waiting is None else waiting_text(result.waiting),
        group_id=result.group_id,
        group_state=result.state if error in _WITH_STATE else "",
        protocol_type=result.protocol_type,
        protocol_data=result.protocol_name,
        members=result.members,
        authorized_operations=GROUP_OPERATIONS if filled else NO_OPERATIONS,
    )


_WITH_STATE = frozenset({ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND})
"""The errors with which a description has a state. For all others, such as
COORDINATOR_LOAD_IN_PROGRESS, the state is unknown and stays empty."""
