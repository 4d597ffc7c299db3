"""One message of a partition."""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """A message as the broker stored it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]
