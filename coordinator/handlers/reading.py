"""Reading the body of a request that is not on the hot path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.codec import read_request

if TYPE_CHECKING:
    from coordinator.handlers.exchange import Exchange
    from coordinator.handlers.services import Services


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
        services.max_request_elements,
    )
    exchange.frame = b""
    return entity
