"""Makes the event of a leader's assignment. The event has the partitions if the assignment is small
and can be decoded, otherwise only sizes.
"""

from __future__ import annotations

from groupkeeper.coordinator.core.classic.group import CONSUMER, ClassicGroup
from groupkeeper.coordinator.core.classic.member import encoded_bytes
from groupkeeper.coordinator.core.events import Assignment
from groupkeeper.protocol.consumer_protocol import ConsumerProtocolError, decode_assignment

MAX_DECODED_BYTES = 256 * 1024
"""Larger assignments are not decoded, because this would delay all other requests. The event has
only their size."""

DECODED_GROWTH = 6
"""How many times longer a decoded assignment can be (each control character becomes six bytes)."""


def assignment_event(group: ClassicGroup, max_step_bytes: int) -> Assignment:
    """Return the event of the assignment that the leader of this generation made.

    The group's record is in the same step. So the event may use only the part of
    ``max_step_bytes`` that the record does not need.
    """
    assigned = sum(len(m.assignment) for m in group.members.values())
    room = max_step_bytes - encoded_bytes(assigned) - 2 * group.size_bytes
    is_small = assigned <= min(MAX_DECODED_BYTES, room // DECODED_GROWTH)
    partitions: dict[str, dict[str, list[int]]] | None = None
    if group.protocol_type == CONSUMER and is_small:
        partitions = _decoded(group)
    opaque = None
    if partitions is None:
        opaque = {m.member_id: len(m.assignment) for m in group.members.values()}
    return Assignment(
        group_id=group.group_id,
        generation_id=group.generation_id,
        member_id=group.leader_id or "",
        protocol_type=group.protocol_type or "",
        protocol_name=group.protocol_name,
        partitions=partitions,
        opaque_bytes=opaque,
    )


def _decoded(group: ClassicGroup) -> dict[str, dict[str, list[int]]] | None:
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
