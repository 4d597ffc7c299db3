"""A slot as the alarm sees it: when its shard has something to expire, and who takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.requests import Now
    from groupkeeper.coordinator.runtime.slot import Slot


class ExpiresSlots(Protocol):
    """What carries an expiry out."""

    def expire(self, slot: Slot, now: Now) -> None:
        """Take one portion of what is due in a slot."""
        ...


class SlotExpiry:
    """Stands for whichever shard a slot has."""

    __slots__ = ("_owner", "_slot")

    def __init__(self, owner: ExpiresSlots, slot: Slot) -> None:
        """Watch one slot for an owner."""
        self._owner = owner
        self._slot = slot

    def next_deadline(self) -> int | None:
        """Tell when to call ``expire``; None: not at all for now."""
        shard = self._slot.shard
        return None if shard is None else shard.next_deadline()

    def expire(self, now: Now) -> None:
        """Take one portion of what is due."""
        self._owner.expire(self._slot, now)
