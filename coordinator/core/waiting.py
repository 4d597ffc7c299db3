"""What a rebalance waits for, as ``group describe`` shows it."""

from __future__ import annotations

from typing import NamedTuple


class AwaitedMember(NamedTuple):
    """A member that has not come back to join, or to sync; without a client: an id that was handed
    out and has not joined yet.
    """

    member_id: str
    client_id: str
    client_host: str


class Waiting(NamedTuple):
    """What is awaited in a group. Times are those of the wall clock; None: nothing is awaited."""

    awaited: tuple[AwaitedMember, ...]
    since_ms: int | None
    until_ms: int | None
    topics: tuple[str, ...]
    """What the members subscribe to, as far as it can be read."""
