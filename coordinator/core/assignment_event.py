"""The ``assignment`` event: what each member of a new generation holds, readable where it can be
read.
"""

from __future__ import annotations

from coordinator.core.events import Assignment
from coordinator.core.group import CONSUMER, Group
from protocol.consumer_protocol import ConsumerProtocolError, decode_assignment

MAX_DECODED_BYTES = 256 * 1024
"""Above this an assignment is only measured: reading it would hold up everyone else's requests."""


def assignment_event(group: Group) -> Assignment:
    """Describe the assignment that the leader of this generation has made."""
    partitions: dict[str, dict[str, list[int]]] | None = None
    if group.protocol_type == CONSUMER:
        partitions = _decoded(group)
    opaque = None
    if partitions is None:
        opaque = {m.member_id: len(m.assignment) for m in group.members.values()}
    return Assignment(
        group=group.group_id,
        generation=group.generation_id,
        member_id=group.leader_id or "",
        protocol_type=group.protocol_type or "",
        protocol_name=group.protocol_name,
        partitions=partitions,
        opaque_bytes=opaque,
    )


def _decoded(group: Group) -> dict[str, dict[str, list[int]]] | None:
    if sum(len(m.assignment) for m in group.members.values()) > MAX_DECODED_BYTES:
        return None
    decoded: dict[str, dict[str, list[int]]] = {}
    for member in group.members.values():
        if not member.assignment:
            decoded[member.member_id] = {}
            continue
        try:
            decoded[member.member_id] = decode_assignment(member.assignment).partitions
        except ConsumerProtocolError:
            return None
    return decoded
