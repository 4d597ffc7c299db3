"""Deadlines as data (docs/design.md#deadlines). To move or clear a deadline, a field is set: there
is no timer to cancel.

Every deadline has at most one valid entry in a heap. If a deadline is moved to a later time, its
entry stays unchanged. When the time of the entry is reached, the entry is put back at the new time.
So a heartbeat costs the same for any number of members.
"""

from __future__ import annotations

import heapq
from enum import Enum
from typing import TypeAlias

import msgspec

SubjectKey: TypeAlias = tuple[str, str]
"""(group id, member id). The member id is "" for a deadline of the whole group. Both are "" for a
deadline of the shard.
"""

NEXT_PORTION_MS = 1
"""The delay in ms before the next portion of work that is divided into steps. Other requests are
handled between two portions.
"""

_COMPACT_ABOVE = 1_024
"""A heap with fewer entries is never compacted."""


class DeadlineKind(Enum):
    """The kinds of deadlines. The kind decides what happens when the deadline is reached."""

    SESSION = "session"
    """A member, or a pending id of MEMBER_ID_REQUIRED, was silent for its session timeout."""
    JOIN_PHASE = "join phase"
    SYNC_PHASE = "sync phase"
    MEMBER_REBALANCE = "member rebalance"
    """A member of a consumer group has not given up the partitions that it must give up."""
    MEMBER_JOIN = "member join"
    """A classic member of a consumer group has not joined again."""
    MEMBER_SYNC = "member sync"
    """A classic member of a consumer group has joined, and has not sent its SyncGroup."""
    RETENTION = "retention"
    SWEEP = "sweep"
    """The next portion of a sweep is due. A sweep deletes the offsets of deleted topics, and adds
    missing topic ids.
    """


class Deadline(msgspec.Struct, eq=False, gc=False):
    """Something that the shard has to do at the time ``at`` (monotonic ms). It can be moved, or
    cleared: then ``at`` is None."""

    kind: DeadlineKind
    subject: SubjectKey
    at: int | None = None
    queued_at: int | None = None
    """The time of the valid entry in the heap. None if there is none."""


class Deadlines:
    """The deadlines of a shard, in the order of their time."""

    def __init__(self, session_grid_ms: int = 0) -> None:
        """Start without deadlines.

        If ``session_grid_ms`` is not 0, sessions end only at multiples of this time. Other
        deadlines are not affected.
        """
        self._session_grid_ms = session_grid_ms
        self._heap: list[tuple[int, bool, int, Deadline]] = []
        self._order = 0
        self._compact_at = _COMPACT_ABOVE

    def arm(self, deadline: Deadline, at: int) -> bool:
        """Set or move a deadline. Return True if ``next_at`` may be earlier than before."""
        deadline.at = at
        queued_at = deadline.queued_at
        if queued_at is not None and at >= queued_at:
            return False
        self._push(deadline, at)
        return True

    def clear(self, deadline: Deadline) -> None:
        """Clear a deadline. Its entry stays in the heap until it reaches the top."""
        deadline.at = None

    def next_at(self) -> int | None:
        """Return the time of the next call of ``pop_due``: the earliest deadline, or a time before
        it. None if there are no deadlines. O(1).
        """
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Deadline | None:
        """Remove and return the earliest deadline that was reached; None if there is none.

        If several have the same time, the deadline of a sync phase is last, because Kafka starts
        that timer after the timers of the sessions. So a member whose session ends at the same time
        is evicted alone, and the other members rebalance.
        """
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            queued_at, _, _, deadline = heapq.heappop(heap)
            if deadline.queued_at != queued_at:
                continue  # armed again at an earlier time: another entry represents it
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
        """Drop the entries of cleared deadlines, and the old entries of deadlines that were moved
        to an earlier time. Without this, many joins would fill the heap.
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
