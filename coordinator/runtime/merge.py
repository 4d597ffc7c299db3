"""Merges the refusals of a member before they are written as events
(docs/design.md#merged-refusals).

A member that was fenced may repeat its request hundreds of times a second. The first refusal is
written at once. Repeats within a window become one event with a count when the window ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from groupkeeper.coordinator.core.events import CommitRejected, Event, MemberFenced, text_length
from groupkeeper.storage.base import ShardId

_Refusal: TypeAlias = CommitRejected | MemberFenced
REFUSALS: Final[frozenset[type]] = frozenset({CommitRejected, MemberFenced})
"""The kinds of events that may be merged."""
_Key: TypeAlias = tuple[type, str, str, str | None, str]


MAX_KEPT_CHARS: Final = 512
"""A refusal with longer names is not merged. 10,000 such refusals in memory would need a gigabyte.
"""


class _Window:
    """Repeats of one refusal since the window began."""

    __slots__ = ("count", "ends_ms", "last", "shard")

    def __init__(self, shard: ShardId, event: _Refusal, ends_ms: int) -> None:
        self.shard = shard
        self.last = event
        self.ends_ms = ends_ms
        self.count = 0


class Merged(NamedTuple):
    """An event whose window ended, and the shard whose log it belongs to."""

    shard: ShardId
    event: Event


class RefusalMerger:
    """Merge repeats of one refusal into one event with a count.

    Each member and error has a window. All windows are equally long, so the oldest ends first.
    Beyond ``max_members`` windows, the oldest ends early.
    """

    def __init__(self, window_ms: int, max_members: int) -> None:
        self._window_ms = window_ms
        self._max_members = max_members
        self._windows: OrderedDict[_Key, _Window] = OrderedDict()

    def admit(self, shard: ShardId, events: Sequence[Event], now_ms: int) -> list[Event]:
        """Return the events to write now. Repeats of a refusal are only counted."""
        return [e for e in events if not self._is_repeat(shard, e, now_ms)]

    def due(self, now_ms: int) -> list[Merged]:
        """End the windows that are over, and the oldest ones beyond ``max_members``. Return their
        merged events. A window that had repeats begins anew when it is over, so that a continuing
        refusal makes one event per window."""
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
        if not isinstance(event, CommitRejected | MemberFenced):
            return False
        if text_length(event) > MAX_KEPT_CHARS:
            return False
        key = (type(event), event.group_id, event.member_id, event.group_instance_id, event.error)
        window = self._windows.get(key)
        if window is not None:
            window.count += event.count
            window.last = event
            return True
        self._windows[key] = _Window(shard, event, now_ms + self._window_ms)
        return False


def _merged(window: _Window) -> Merged:
    return Merged(window.shard, msgspec.structs.replace(window.last, count=window.count))
