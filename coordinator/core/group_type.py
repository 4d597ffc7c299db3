"""The types of groups: classic groups, whose leader assigns, and consumer groups."""

from __future__ import annotations

from enum import StrEnum


class GroupType(StrEnum):
    """Type of a group: who assigns its partitions. Spelled as in the answer to ListGroups."""

    CLASSIC = "classic"
    """One member, the leader, assigns (JoinGroup, SyncGroup). A group that only has offsets is
    classic.
    """
    CONSUMER = "consumer"
    """The coordinator assigns (ConsumerGroupHeartbeat)."""
