"""Requests about the adoption of a group from the upstream (gateway mode)."""

# A class attribute that overrides a declaration is never assigned again.
# mypy: disable-error-code="mutable-override"
from __future__ import annotations

from groupkeeper.coordinator.core.declarations import AnyResult, GroupRead, GroupWrite
from groupkeeper.coordinator.core.errors import ErrorCode


class ReadAdoptionResult(AnyResult, frozen=True):
    """The answer to a ReadAdoption."""

    exists: bool = False
    """True if this shard has the group. A group with the state ``ADOPTION_BEGUN`` may lack some
    offsets.
    """
    state: str = ""
    """``records.ADOPTION_BEGUN``, ``records.GROUP_REMOVED``, or "" if the group has no mark."""


class ReadAdoption(GroupRead, frozen=True):
    """Read whether the shard has a group, and the state of the group's adoption mark."""

    result = ReadAdoptionResult


class MarkAdoption(GroupWrite, frozen=True):
    """Record that the adoption of a group begins (``begins`` is True), or that all its offsets are
    copied.
    """

    begins: bool
    result = ErrorCode
