"""The members and topics that a rebalance waits for, as ``group describe`` shows them."""

from __future__ import annotations

from typing import NamedTuple


class AwaitedMember(NamedTuple):
    """A member that has not joined again or not synced. Without a client: a member id that was
    returned to a client and has not joined yet.
    """

    member_id: str
    client_id: str
    client_host: str


class Waiting(NamedTuple):
    """The state of a group's wait. Times are those of the wall clock. None: the group does not
    wait.
    """

    awaited: tuple[AwaitedMember, ...]
    since_ms: int | None
    until_ms: int | None
    topics: tuple[str, ...]
    """The topics that the members subscribe to, if their metadata can be read."""
