"""Leases by lives: when a process counts as dead, and how long it may answer reads (pure).

Each start of a process is a *life* with a random id. The setting ``cluster.lease_ttl_ms`` is its
*time to live* (TTL). A process raises the counter of its life in the store, four times within each
time to live. One such raise is a *beat*. Other processes watch the counter; one read of it is a
*look*. If the counter stands still for a whole time to live, by the clock of the observer, the
observer ends the life. It does this in one transaction, which compares the counter. From then on
the store refuses every write of this life, whatever any clock says.

So clocks never decide about writes. They decide only how long a process answers reads without
asking the store (``ReadTime``). See docs/decisions/0034-leases-by-lives.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

DEFAULT_LEASE_TTL_MS: Final = 2_000
"""The default time to live of a lease. After ``kill -9``, the next start waits for this time. With
a shorter time, a short problem of the network would end a life."""

BEATS_IN_TTL: Final = 4
"""The number of beats within a time to live. So two beats in a row may be lost."""

LATE_LOOK_MS: Final = 100
"""The interval between looks at the store while a beat of another process is late."""

MIN_LOOKS: Final = 3
"""A life is ended only if at least this number of looks found the same counter."""

READ_SHARE: Final = 0.9
"""Reads are answered for this share of the time to live after a beat. The rest is a reserve for
clocks that run at different speeds."""


class NodeLife(NamedTuple):
    """One start of a process (a life), as it is recorded in the store."""

    node_id: int
    """The setting ``kafka.node_id`` of the process."""
    life_id: str
    """Random, and different for each start of a process."""
    name: str
    """The host and the process id, for messages."""
    counter: int
    """A number that each beat raises."""


@dataclass(slots=True)
class _Stand:
    """For how long, and in how many looks, the counter of one life has not changed."""

    counter: int
    looks: int
    since_ms: int
    """The time of our clock up to which ``still_ms`` counts."""
    still_ms: int = 0


class LifeWatch:
    """Watches the counters of other processes, and finds the lives to end.

    A counter that two looks find unchanged has stood still for the time between them. Of this time,
    at most the interval of one beat counts. So if this process or the whole machine was suspended,
    the other processes have time to beat again.
    """

    def __init__(self, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._beat_ms = beat_interval_ms(ttl_ms)
        self._stands: dict[str, _Stand] = {}

    def look(self, lives: Iterable[NodeLife], sent_ms: int, answered_ms: int) -> list[NodeLife]:
        """Process the result of one look. Return the lives to end.

        The two times are those of our clock at which the look was sent and answered. The store read
        the counters between them.
        """
        found = {life.life_id: life for life in lives}
        self._stands = {key: stand for key, stand in self._stands.items() if key in found}
        return [life for life in found.values() if self._is_dead(life, sent_ms, answered_ms)]

    def _is_dead(self, life: NodeLife, sent_ms: int, answered_ms: int) -> bool:
        stand = self._stands.get(life.life_id)
        if stand is None or stand.counter != life.counter:
            self._stands[life.life_id] = _Stand(life.counter, looks=1, since_ms=answered_ms)
            return False
        stand.looks += 1
        stand.still_ms += min(max(sent_ms - stand.since_ms, 0), self._beat_ms)
        stand.since_ms = max(sent_ms, stand.since_ms)
        return stand.looks >= MIN_LOOKS and stand.still_ms >= self._ttl_ms

    def next_look_ms(self) -> int:
        """Return the milliseconds until the next look: the interval of a beat, or less while a beat
        of another process is late.
        """
        is_late = any(stand.still_ms >= self._beat_ms for stand in self._stands.values())
        return min(LATE_LOOK_MS, self._beat_ms) if is_late else self._beat_ms


class ReadTime:
    """The time until which a process may answer reads without asking the store.

    No observer ends the life within this time, because an observer first has to see the same
    counter for a whole time to live after the last beat.
    """

    def __init__(self, ttl_ms: int) -> None:
        self._share_ms = int(ttl_ms * READ_SHARE)
        self._until_ms: int | None = None

    def beat_succeeded(self, sent_ms: int) -> None:
        """Extend the time after a beat. The new time begins when the beat was sent."""
        until_ms = sent_ms + self._share_ms
        self._until_ms = until_ms if self._until_ms is None else max(self._until_ms, until_ms)

    def life_ended(self) -> None:
        """Forbid reads until the first beat of the next life."""
        self._until_ms = None

    def left_ms(self, now_ms: int) -> int:
        """Return for how many milliseconds reads may still be answered; 0 if they are forbidden."""
        return 0 if self._until_ms is None else max(self._until_ms - now_ms, 0)


def beat_interval_ms(ttl_ms: int) -> int:
    """Return the time between two beats of a life."""
    return max(ttl_ms // BEATS_IN_TTL, 1)
