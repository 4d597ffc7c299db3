"""Reading the body of a request that is not on the hot path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from groupkeeper.protocol.codec import read_request
from groupkeeper.protocol.versions import ApiKey

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services


ELEMENT_WEIGHTS: Final[dict[int, int]] = {
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 2,
    ApiKey.DESCRIBE_CONFIGS: 10,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 10,
    ApiKey.DELETE_TOPICS: 2,
    ApiKey.LEAVE_GROUP: 2,
    ApiKey.OFFSET_DELETE: 2,
    ApiKey.METADATA: 2,
}
"""How many elements one element counts as, where it holds the loop for longer than the others do
(measured: 20 us a group to alter, 15 us a topic to create, 5 us a member that leaves, up to 8 us a
topic by id, up to 5 us anything else).
"""


def read(exchange: Exchange, services: Services) -> Any:
    """Read the body as kio's class of its version, and let the frame go: a parked join needs it no
    more.

    Raises ProtocolError.
    """
    entity = read_request(
        exchange.key,
        exchange.version,
        exchange.frame,
        exchange.offset,
        services.max_request_elements // ELEMENT_WEIGHTS.get(exchange.key, 1),
    )
    exchange.frame = b""
    return entity
