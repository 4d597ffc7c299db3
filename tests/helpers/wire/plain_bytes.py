"""The generated readers alone, without the safe reader behind them."""

from __future__ import annotations

from typing import Any

from groupkeeper.protocol.plain_reader import NOT_PLAIN, plain_reader


def read_plain(entity_type: Any, data: bytes, offset: int, max_elements: int) -> Any:
    """Return the entity, or None if the safe reader has to read it."""
    try:
        return plain_reader(entity_type)(data, offset, max_elements)
    except NOT_PLAIN:
        return None
