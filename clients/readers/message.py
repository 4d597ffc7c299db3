"""A message that a reader returns: position, key, value, time and headers."""

from __future__ import annotations

from typing import Final, NamedTuple

MOST_OFFSET: Final = 2**63 - 1
"""Kafka's offsets have 64 bits with a sign."""


class Message(NamedTuple):
    """A message as the broker stored it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]
