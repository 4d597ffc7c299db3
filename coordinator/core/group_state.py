"""The states of a group."""

from __future__ import annotations

from enum import StrEnum


class GroupState(StrEnum):
    """State of a classic group, spelled as on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
