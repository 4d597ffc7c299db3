"""A member of a classic group, and the sizes that it adds to records."""

from __future__ import annotations

from groupkeeper.coordinator.core.groups.group import Member
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.membership import JoinProtocol
from groupkeeper.coordinator.core.step import Ticket

MEMBER_OVERHEAD_BYTES = 512
"""An upper bound of the size that a member adds to a record, without its strings and bytes."""


class ClassicMember(Member):
    """A member of a classic group: the fields of its join, and its parked join or sync."""

    __slots__ = (
        "assignment",
        "is_new",
        "join_time_ms",
        "metadata_bytes",
        "parked_join",
        "parked_sync",
        "protocols",
        "rebalance_timeout_ms",
        "size_bytes",
    )

    def __init__(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        client: Client,
    ) -> None:
        super().__init__(group_id, member_id, group_instance_id, client)
        self.rebalance_timeout_ms = 0
        self.offer(())
        self.assignment = b""
        self.parked_join: Ticket | None = None
        self.parked_sync: Ticket | None = None
        self.is_new = False
        """True until the end of the member's first join phase. Until then its session may end
        although its join is parked.
        """
        self.join_time_ms: int | None = None
        """When this member id was created (wall clock); None after a load."""

    def offer(self, protocols: tuple[JoinProtocol, ...]) -> None:
        """Replace the protocols that the member offers."""
        self.protocols = protocols
        self.metadata_bytes = metadata_bytes(protocols)
        self.size_bytes = member_bytes(
            self.member_id, self.group_instance_id, self.client.client_id, protocols
        )
        """An upper bound of the size that this member adds to a record, without its assignment."""

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for one protocol; empty if the member does not offer it."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""


def member_bytes(
    member_id: str,
    group_instance_id: str | None,
    client_id: str,
    protocols: tuple[JoinProtocol, ...],
) -> int:
    """Return an upper bound of the size that a member adds to a record or to its join event.

    The record has the metadata of one protocol; the event has the names of all.
    """
    largest = max([len(p.metadata) for p in protocols], default=0)
    text = len(member_id) + len(group_instance_id or "") + len(client_id)
    text += sum([len(p.name) for p in protocols])
    return MEMBER_OVERHEAD_BYTES + 6 * text + encoded_bytes(largest)


def encoded_bytes(length: int) -> int:
    """Return an upper bound of the size of ``length`` bytes in an encoded record (base64)."""
    return length * 4 // 3 + 4


def metadata_bytes(protocols: tuple[JoinProtocol, ...]) -> int:
    """Return the size of a member's metadata for all protocols that it offers."""
    return sum([len(protocol.metadata) for protocol in protocols])
