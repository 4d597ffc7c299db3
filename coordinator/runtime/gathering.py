"""The append that gathers: requests add their records to it while the last append is in flight
(docs/design.md#group-commit).

A slot holds one shard in this process. A lane is a queue of appends, with the slots whose records
they write. A step is the result of one request or timer: replies, records and events.

Every commit passes through this module, so it is compiled. ``runtime.lane`` calls the store.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from groupkeeper.coordinator.core.compiling import mypyc_attr
from groupkeeper.coordinator.runtime.slot import Slot, Write
from groupkeeper.coordinator.runtime.stats import names_length
from groupkeeper.storage.base import Batch

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.events import Event
    from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
    from groupkeeper.coordinator.runtime.stats import Stats

CHARS_AN_EVENT: Final = 100
"""An event counts as 1 towards ``max_riding_events``, and as 1 more for each ``CHARS_AN_EVENT``
characters of the names in it. Clients choose the names, and JSON may make them six times as long.
"""


class Append:
    """One call of ``storage.append``. First it gathers records, then it is in flight."""

    def __init__(self) -> None:
        self.writes: dict[Slot, Write] = {}
        """For each slot: its records and events in this append, and the replies that wait for
        them."""
        self.requests = 0
        """The number of requests and timers whose records are in this append."""
        self.events = 0
        """The number of events that came without a record. An event with long names counts as
        several."""
        self.bytes = 0
        self.started_ms = 0
        """The time when the append began (monotonic). If the append has to wait for a paused lane,
        the time when this wait began. 0 before that.
        """
        self.started_s = 0.0
        """The time when the append began, from a precise timer. ``started_ms`` counts only
        milliseconds, and an append may be shorter."""
        self.abandoned = False
        """True if the append timed out, or if it did not end before the end of a stop. Its result
        is then ignored."""
        self.time_limit: asyncio.TimerHandle | None = None
        """The timer that abandons the append after ``append_timeout_ms``. None before the append
        begins."""
        self.done: asyncio.Future[None] | None = None
        """A future that is resolved when the append ends, even if it failed. None if nobody waits
        for the end. A fold (an append that writes only the present state of groups) has this future
        before it begins."""

    def end_time_limit(self) -> None:
        """Cancel the timer that would abandon the append. Called when the store has answered or
        failed.
        """
        if self.time_limit is not None:
            self.time_limit.cancel()

    def end(self) -> None:
        """Resolve ``done``, so that the callers that wait for the end of the append continue."""
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def write_of(self, slot: Slot) -> Write:
        """Return the ``Write`` of a slot in this append. The first call for a slot creates it."""
        write = self.writes.get(slot)
        if write is None:
            write = self.writes[slot] = Write(slot.shard_id)
        return write


@mypyc_attr(allow_interpreted_subclasses=True)
class Gathering:
    """The base class of a lane. It adds steps and events to the next append. ``runtime.lane.Lane``
    writes the appends.
    """

    def __init__(self, config: CoordinatorConfig, stats: Stats) -> None:
        self.is_full = False
        """True if too many requests or bytes have gathered for the next append. Until that append
        begins, requests that write are refused."""
        self.max_waiting = config.max_gathered_requests
        self._max_bytes = config.max_gathered_bytes
        self._config = config
        self._stats = stats
        self._events_timer: asyncio.TimerHandle | None = None
        self._gathering: Append | None = None
        self._task: asyncio.Task[None] | None = None

    def gather(self, slot: Slot, batch: Batch, record_bytes: int) -> Write:
        """Add a step with records to the next append. Return the slot's ``Write`` in that append.
        The caller adds the replies that wait for it.

        If no append is in flight, the next one starts in the next iteration of the event loop. So
        all requests of the present iteration share one append.
        """
        append = self._gathering
        if append is None:
            append = self._gathering = Append()
        write = append.write_of(slot)
        write.batches.append(batch)
        slot.unfinished = write
        append.requests += 1
        append.bytes += record_bytes
        if append.requests >= self.max_waiting or append.bytes >= self._max_bytes:
            self.is_full = True
        if self._task is None:
            self._start()
        return write

    def add_events(self, slot: Slot, events: list[Event]) -> None:
        """Add events without a record to the next append.

        If no append comes within ``events_delay_ms``, the events get their own append. If too many
        events wait, the new ones are dropped.
        """
        append = self._gathering
        if append is None:
            append = self._gathering = Append()
        charge = sum([1 + names_length(event) // CHARS_AN_EVENT for event in events])
        if append.events + charge > self._config.max_riding_events:
            self._stats.events_dropped += len(events)
            return
        append.events += charge
        append.write_of(slot).batches.append(Batch((), events))
        if self._task is None and self._events_timer is None:
            loop = asyncio.get_running_loop()
            self._events_timer = loop.call_later(self._config.events_delay_ms / 1000, self._start)

    def _start(self) -> None:
        """Start the gathered append in the next iteration of the event loop. ``Lane`` implements
        this.
        """
        raise NotImplementedError
