"""Merges refusals of members, and failures of groups, before they are written as events
(docs/design.md#merged-refusals).

A member that was fenced may repeat its request hundreds of times a second. The first refusal is
written at once, and opens a window: a span of time of a fixed length. Repeats within the window
become one event with a count when the window ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias, get_args

import msgspec

from groupkeeper.coordinator.core.events import (
    AssignmentFailed,
    CommitRejected,
    Event,
    MemberFenced,
    PatternRefused,
)
from groupkeeper.coordinator.runtime.stats import names_length
from groupkeeper.storage.base import ShardId

_OfMember: TypeAlias = CommitRejected | MemberFenced
_OfGroup: TypeAlias = AssignmentFailed | PatternRefused
_Refusal: TypeAlias = _OfMember | _OfGroup
REFUSALS: Final[frozenset[type]] = frozenset(get_args(_Refusal))
"""The kinds of events that may be merged."""
_Key: TypeAlias = tuple[type, str, str, str | None, str]


MAX_KEPT_CHARS: Final = 512
"""A refusal with longer names is not merged. Otherwise 10,000 such refusals would need a gigabyte
of memory."""


class _Window:
    """Counts the repeats of one refusal since it was written. The repeats become one event when the
    window ends.
    """

    __slots__ = ("count", "ends_ms", "last", "shard")

    def __init__(self, shard: ShardId, event: _Refusal, ends_ms: int) -> None:
        self.shard = shard
        self.last = event
        self.ends_ms = ends_ms
        self.count = 0


class Merged(NamedTuple):
    """A merged event, and the shard that writes it."""

    shard: ShardId
    event: Event


class RefusalMerger:
    """Merges repeats of one refusal into one event with a count.

    The first refusal opens a window. Within this window, repeats of the refusal are only counted.
    For a member, a repeat is a refusal with the same error. For a group, it is a refusal of the
    same kind. All windows are equally long, so the oldest one ends first. If there are more than
    ``max_members`` windows, the oldest one ends early.
    """

    def __init__(self, window_ms: int, max_members: int) -> None:
        self._window_ms = window_ms
        self._max_members = max_members
        self._windows: OrderedDict[_Key, _Window] = OrderedDict()

    def admit(self, shard: ShardId, events: Sequence[Event], now_ms: int) -> list[Event]:
        """Return the events to write now. Repeats of a refusal are only counted."""
        return [e for e in events if not self._is_repeat(shard, e, now_ms)]

    def due(self, now_ms: int) -> list[Merged]:
        """End the windows whose time is over. If there are more than ``max_members`` windows, end
        the oldest ones early. Return the merged events of all ended windows.

        A window with repeats begins again if its time is over. So a refusal that continues makes
        one event in each window.
        """
        merged = []
        while self._windows:
            key, window = next(iter(self._windows.items()))
            if window.ends_ms > now_ms and len(self._windows) <= self._max_members:
                break
            del self._windows[key]
            if window.count == 0:
                continue
            merged.append(_merged(window))
            if window.ends_ms <= now_ms:
                self._windows[key] = _Window(window.shard, window.last, now_ms + self._window_ms)
        return merged

    def end_all(self) -> list[Merged]:
        """End every window and return the merged events. Called when the process stops."""
        merged = [_merged(window) for window in self._windows.values() if window.count]
        self._windows.clear()
        return merged

    def _is_repeat(self, shard: ShardId, event: Event, now_ms: int) -> bool:
        if not isinstance(event, _Refusal):
            return False
        if names_length(event) > MAX_KEPT_CHARS:
            return False
        key = _key(event)
        window = self._windows.get(key)
        if window is not None:
            window.count += event.count
            window.last = event
            return True
        self._windows[key] = _Window(shard, event, now_ms + self._window_ms)
        return False


def _key(event: _Refusal) -> _Key:
    """Return the key of a refusal. Two refusals with one key are repeats. All patterns of a
    group count as one: its clients could send a new pattern with each request.
    """
    if isinstance(event, _OfGroup):
        return type(event), event.group_id, "", None, ""
    return type(event), event.group_id, event.member_id, event.group_instance_id, event.error


def _merged(window: _Window) -> Merged:
    return Merged(window.shard, msgspec.structs.replace(window.last, count=window.count))
