"""The changes that the mirror has not written yet, and how old the oldest one is (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class _Change(NamedTuple):
    since_s: float
    """The time of the group's oldest change that no round of the mirror has taken."""
    data: bytes | None
    """The newest value of the group; None if the group was deleted."""


class MirrorBacklog:
    """The groups whose changes the mirror has not written yet, oldest change first.

    A *round* of the mirror takes the newest values, and then writes them. All times are from one
    clock.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Change] = {}
        """Maps a group to its newest value, if no round has taken the value yet."""
        self._unfinished: dict[str, float] = {}
        """The groups whose nodes on the server may be out of date, each with the time of its oldest
        change that is not written."""

    def __bool__(self) -> bool:
        return bool(self._waiting or self._unfinished)

    def changed(self, group_id: str, data: bytes | None, now_s: float) -> None:
        """Add the newest value of a group; None if the group was deleted."""
        earlier = self._waiting.get(group_id)
        since_s = now_s if earlier is None else earlier.since_s
        self._waiting[group_id] = _Change(since_s, data)

    def waiting(self) -> list[str]:
        """Return the groups with a value that no round has taken yet."""
        return [*self._waiting]

    def take(self, group_id: str) -> bytes | None:
        """Remove and return the newest value of a group; None if the group was deleted. The group
        is unfinished until ``written`` is called.
        """
        change = self._waiting.pop(group_id)
        self._unfinished.setdefault(group_id, change.since_s)
        return change.data

    def unfinished(self) -> list[str]:
        """Return the groups whose nodes on the server may be out of date."""
        return [*self._unfinished]

    def written(self, group_id: str) -> None:
        """Mark a group as finished: its nodes agree with the value that was taken last."""
        del self._unfinished[group_id]

    def lost(self, group_ids: Iterable[str], now_s: float) -> None:
        """Mark groups as unfinished, because their nodes disappeared with a session."""
        for group_id in group_ids:
            self._unfinished.setdefault(group_id, now_s)

    def clear(self) -> None:
        """Forget all groups."""
        self._waiting.clear()
        self._unfinished.clear()

    def lag_s(self, now_s: float) -> float:
        """Return the age in seconds of the oldest change that is not written; 0 if there is none.
        Changes are added in the order of time, so the first one is the oldest.
        """
        since_s = next(iter(self._unfinished.values()), now_s)
        for change in self._waiting.values():
            since_s = min(since_s, change.since_s)
            break
        return now_s - since_s
