"""The states of a group."""

from __future__ import annotations

from enum import StrEnum


class GroupState(StrEnum):
    """State of a group, spelled as on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    ASSIGNING = "Assigning"
    """A consumer group whose target assignment is older than its members."""
    RECONCILING = "Reconciling"
    """A consumer group with members that have not reached the target."""
