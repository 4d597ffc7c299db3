"""The members that a rebalance waits for, as ``group describe`` shows them."""

from __future__ import annotations

from typing import NamedTuple


class AwaitedMember(NamedTuple):
    """A member that a rebalance waits for: it has not joined again, or has not sent its SyncGroup.
    ``client_id`` and ``client_host`` are empty for a member id that was returned to a client and
    has not joined yet (KIP-394).
    """

    member_id: str
    client_id: str
    client_host: str


class Waiting(NamedTuple):
    """The members that a group waits for, since when and until when. Times are wall-clock
    milliseconds, or None if the group does not wait.
    """

    awaited: tuple[AwaitedMember, ...]
    since_ms: int | None
    until_ms: int | None
    topics: tuple[str, ...]
    """The topics that the members subscribe to, if their metadata can be read."""
