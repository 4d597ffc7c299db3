"""Writing a reply: whole, or in parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from groupkeeper.protocol.codec import response_writer, write_elements

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange

NO_OPERATIONS = -(2**31)
"""Kafka's "authorized operations were not asked for"."""


def write(exchange: Exchange, **values: Any) -> bytes:
    """Return the reply to an exchange from the values of its fields, for the version asked.

    Fields that the version lacks are left out.
    """
    values["throttle_time"] = exchange.throttle_time_ms
    return response_writer(exchange.key, exchange.version)(exchange.correlation_id, values)


def write_part(exchange: Exchange, path: str, items: Iterable[Any]) -> bytes:
    """Return elements of an array of the reply, such as ``topics.partitions``."""
    return write_elements(exchange.key, exchange.version, path, items)
