"""Checks that a group at rest (Stable or Empty) is what its record says, and knows what its members
consume. Otherwise a load would change it.
"""

from __future__ import annotations

from groupkeeper.coordinator.core.classic.group import CONSUMER, ClassicGroup
from groupkeeper.coordinator.core.classic.saved import to_record
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.records import GroupRecord
from groupkeeper.protocol.consumer_protocol import ConsumerProtocolError, subscribed_topics


def check_rest(group: ClassicGroup) -> None:
    """Raise AssertionError if the two differ."""
    saved = group.saved
    if saved is None or group.state not in (GroupState.EMPTY, GroupState.STABLE):
        return
    live = to_record(group)
    assert live == saved, f"{group.group_id}: at rest as {live}, its record is {saved}"
    if group.state is GroupState.STABLE:
        wanted, known = _consumed(saved), group.subscribed_topics
        assert known == wanted, f"{group.group_id}: consumes {wanted}, is taken to consume {known}"


def _consumed(saved: GroupRecord) -> set[str] | None:
    """Return the topics that all members subscribe to. None if that cannot be known."""
    if saved.protocol_type != CONSUMER:
        return None
    try:
        return {topic for m in saved.members for topic in subscribed_topics(m.subscription)}
    except ConsumerProtocolError:
        return None
