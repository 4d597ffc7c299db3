"""The states of a group, under their names in the protocol, and which types of groups have them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from groupkeeper.coordinator.core.group_type import GroupType


class GroupState(StrEnum):
    """State of a group, spelled as on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    ASSIGNING = "Assigning"
    """A consumer group whose target assignment is of an earlier epoch than the group."""
    RECONCILING = "Reconciling"
    """A consumer group with members that have not reached the target assignment."""


STATES_OF: Final[Mapping[GroupType, tuple[GroupState, ...]]] = {
    GroupType.CLASSIC: (
        GroupState.EMPTY,
        GroupState.PREPARING_REBALANCE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.STABLE,
        GroupState.DEAD,
    ),
    GroupType.CONSUMER: (
        GroupState.EMPTY,
        GroupState.ASSIGNING,
        GroupState.RECONCILING,
        GroupState.STABLE,
        GroupState.DEAD,
    ),
}
"""The states that a group of each type can have."""
