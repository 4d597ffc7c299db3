"""FindCoordinator (10): we are the coordinator of every group (spec 4.4).

| version | change |
| --- | --- |
| 1 | key type, throttle time, error message: "NONE" on success (1-3) |
| 3 | flexible |
| 4 | many keys, one entry each in request order; message "" on success |
| 6 | key type 2, share |

Transaction and share coordinators do not exist here: COORDINATOR_NOT_AVAILABLE, which clients
retry, rather than an answer that names us. From 4 on Kafka has words only for a type of keys that
it does not know (KafkaApis.getCoordinator).
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from coordinator.core.errors import ErrorCode
from coordinator.core.java_text import parse_int, trim
from coordinator.handlers.brokers import endpoint
from coordinator.handlers.packing import begin, finish, wire_count, wire_string
from coordinator.handlers.reading import read
from protocol.codec import respond

if TYPE_CHECKING:
    from coordinator.handlers.exchange import Exchange
    from coordinator.handlers.services import Endpoint, Services

GROUP, TRANSACTION, SHARE = 0, 1, 2

_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}(==)?")
_ID = struct.Struct(">i")
_PORT_AND_ERROR = struct.Struct(">ih")
_THROTTLE = bytes(4)


def handle(exchange: Exchange, services: Services) -> None:
    """Answer at once: every group is ours, "" too."""
    request = read(exchange, services)
    version = exchange.version
    key_type = request.key_type if version >= 1 else GROUP
    here = endpoint(exchange, services)
    if version >= 4:
        exchange.send(
            _render_many(exchange, services.node_id, here, key_type, request.coordinator_keys)
        )
        return
    error = exchange.error = check_key(key_type, request.key, version)
    found = error is ErrorCode.NONE
    exchange.send(
        respond(
            exchange.key,
            version,
            exchange.correlation_id,
            error_code=error,
            error_message=error.name,
            node_id=services.node_id if found else -1,
            host=here.host if found else "",
            port=here.port if found else -1,
        )
    )


def check_key(key_type: int, key: str, version: int) -> ErrorCode:
    """Say whether we coordinate what the key names."""
    if key_type == GROUP:
        return ErrorCode.NONE
    if key_type == TRANSACTION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if key_type == SHARE and version >= 6 and _is_share_key(key):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.INVALID_REQUEST


def _is_share_key(key: str) -> bool:
    """Check ``group:topic id:partition``; a group may have colons (SharePartitionKey.validate)."""
    *group, topic_id, partition = ["", "", *key.rstrip(":").split(":")]
    return (
        trim(":".join(group[2:])) != ""
        and _TOPIC_ID.fullmatch(topic_id) is not None
        and parse_int(partition) is not None
    )


def _render_many(
    exchange: Exchange, node_id: int, here: Endpoint, key_type: int, keys: tuple[str, ...]
) -> bytes:
    out = begin(exchange.correlation_id, flexible_header=True)
    out += _THROTTLE
    out += wire_count(len(keys), True)
    tails = {
        (error, message): (
            _ID.pack(node_id if error is ErrorCode.NONE else -1)
            + wire_string(here.host if error is ErrorCode.NONE else "", True)
            + _PORT_AND_ERROR.pack(here.port if error is ErrorCode.NONE else -1, error)
            + wire_string(message, True)
            + b"\0"
        )
        for error, message in (
            (ErrorCode.NONE, ""),
            (ErrorCode.COORDINATOR_NOT_AVAILABLE, ""),
            (ErrorCode.INVALID_REQUEST, "INVALID_REQUEST"),
            (ErrorCode.INVALID_REQUEST, ""),
        )
    }
    known_type = key_type in (GROUP, TRANSACTION, SHARE)
    for key in keys:
        out += wire_string(key, True)
        error = check_key(key_type, key, exchange.version)
        exchange.error = exchange.error or error
        out += tails[error, "" if known_type else error.name]
    out += b"\0"
    return finish(out)
