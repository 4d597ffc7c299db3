"""Deadlines as data: nothing to cancel, and moving one is an assignment (docs/design.md#deadlines).

Every deadline has at most one valid entry in a heap. Moving it later leaves the entry where it is:
when it comes up, it is put back at the right place. So a heartbeat costs the same whatever the
number of members.
"""

from __future__ import annotations

import heapq
from enum import Enum
from typing import TypeAlias

import msgspec

SubjectKey: TypeAlias = tuple[str, str]
"""(group id, member id or "")."""

NEXT_PORTION_MS = 1
"""When work goes on that was cut to the limits of a step: soon, but in a step of its own."""

_COMPACT_ABOVE = 1_024
"""Below this many entries a heap is not worth tidying."""


class DeadlineKind(Enum):
    """What happens when it is reached."""

    SESSION = "session"
    """A member, or an id handed out by MEMBER_ID_REQUIRED, was not heard of."""
    JOIN_PHASE = "join phase"
    SYNC_PHASE = "sync phase"
    RETENTION = "retention"
    SWEEP = "sweep"
    """The rest of a clean-up that was cut to the limits of a step."""


class Deadline(msgspec.Struct, eq=False, gc=False):
    """One thing that will happen, unless it is moved or cleared first. ``at`` is monotonic ms."""

    kind: DeadlineKind
    subject: SubjectKey
    at: int | None = None
    queued_at: int | None = None


class Deadlines:
    """All deadlines of a shard."""

    __slots__ = ("_compact_at", "_heap", "_order", "_session_grid_ms")

    def __init__(self, session_grid_ms: int = 0) -> None:
        """Start with none. Sessions are looked at only every ``session_grid_ms``, where that is not
        0; whatever else is due waits for nothing.
        """
        self._session_grid_ms = session_grid_ms
        self._heap: list[tuple[int, bool, int, Deadline]] = []
        self._order = 0
        self._compact_at = _COMPACT_ABOVE

    def arm(self, deadline: Deadline, at: int) -> bool:
        """Set or move a deadline. True: ``next_at`` may be earlier than it was."""
        deadline.at = at
        queued_at = deadline.queued_at
        if queued_at is not None and at >= queued_at:
            return False
        self._push(deadline, at)
        return True

    def clear(self, deadline: Deadline) -> None:
        """Let it not happen; its entry in the heap is dropped when it comes up."""
        deadline.at = None

    def next_at(self) -> int | None:
        """When to look again: never later than the earliest deadline, perhaps earlier. O(1)."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Deadline | None:
        """Take the earliest deadline that was reached, or None.

        Of several at one moment the time to sync comes last: Kafka starts it after the sessions, so
        a member whose session ends with it goes alone, and the others begin again.
        """
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            queued_at, _, _, deadline = heapq.heappop(heap)
            if deadline.queued_at != queued_at:
                continue  # armed earlier since: another entry stands for it
            deadline.queued_at = None
            if deadline.at is None:
                continue
            if deadline.at > now_ms:
                self._push(deadline, deadline.at)
                continue
            deadline.at = None
            return deadline
        return None

    def _push(self, deadline: Deadline, at: int) -> None:
        if self._session_grid_ms and deadline.kind is DeadlineKind.SESSION:
            at += -at % self._session_grid_ms
            if at == deadline.queued_at:
                return
        if len(self._heap) >= self._compact_at:
            self._compact()
        deadline.queued_at = at
        self._order += 1
        is_last = deadline.kind is DeadlineKind.SYNC_PHASE
        heapq.heappush(self._heap, (at, is_last, self._order, deadline))

    def _compact(self) -> None:
        """Drop the entries of cleared and re-armed deadlines, so that a storm of joins leaves no
        hoard.
        """
        live = []
        for entry in self._heap:
            queued_at, _, _, deadline = entry
            if deadline.queued_at != queued_at:
                continue
            if deadline.at is None:
                deadline.queued_at = None
                continue
            live.append(entry)
        heapq.heapify(live)
        self._heap = live
        self._compact_at = max(_COMPACT_ABOVE, 2 * len(live))
