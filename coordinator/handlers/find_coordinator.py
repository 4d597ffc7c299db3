"""FindCoordinator (10): we are the coordinator of every group
(docs/spec/cluster.md#find-coordinator).

| version | change |
| --- | --- |
| 1 | key type, throttle time, error message: "NONE" on success (1-3) |
| 3 | flexible |
| 4 | many keys, one entry each in request order; message "" on success |
| 6 | key type 2, share |

There are no transaction or share coordinators here. Requests for them are answered with
COORDINATOR_NOT_AVAILABLE, which clients retry, and never with our own address. From version 4 on
Kafka sends a message only for an unknown key type (KafkaApis.getCoordinator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.handlers.brokers import endpoint
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Endpoint, Services

GROUP, TRANSACTION, SHARE = 0, 1, 2


def handle(exchange: Exchange, services: Services) -> None:
    """Answer at once. This server is the coordinator of every group, even of the group ""."""
    request = exchange.read(services)
    version = exchange.version
    key_type = request.key_type if version >= 1 else GROUP
    here = endpoint(exchange, services)
    if version >= 4:
        known_type = key_type in (GROUP, TRANSACTION, SHARE)
        rows = []
        for key in request.coordinator_keys:
            error = check_key(key_type, key, version, services.denied)
            exchange.error = exchange.error or error
            message = "" if known_type else error.name
            rows.append(_row(key, error, message, services.node_id, here))
        exchange.send(exchange.write(coordinators=rows))
        return
    error = exchange.error = check_key(key_type, request.key, version, services.denied)
    row = _row(request.key, error, error.name, services.node_id, here)
    exchange.send(exchange.write(**vars(row)))


def _row(key: str, error: ErrorCode, message: str, node_id: int, here: Endpoint) -> Row:
    found = error is ErrorCode.NONE
    return Row(
        key=key,
        error_code=error,
        error_message=message,
        node_id=node_id if found else -1,
        host=here.host if found else "",
        port=here.port if found else -1,
    )


def check_key(key_type: int, key: str, version: int, denied: ErrorCode) -> ErrorCode:
    """Return NONE for a group that the client may use. Return an error for any other key."""
    if key_type == GROUP:
        return denied
    if key_type == TRANSACTION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if key_type == SHARE and version >= 6:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.INVALID_REQUEST
