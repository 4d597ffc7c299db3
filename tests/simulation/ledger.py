"""Checks that the batches of each life of a shard become durable in the order in which they were
made, and none is lost. An answer that waits is sent only after all earlier batches are durable.

A life is the time of a shard from one load to the next. The next load begins under a new lease. It
may keep the lease if no append of the shard can be in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from groupkeeper.coordinator.core.events import (
    CommitRejected,
    EndOffset,
    Event,
    LogStarted,
    MemberFenced,
    ShardLoaded,
)
from groupkeeper.coordinator.core.records import Record
from groupkeeper.coordinator.core.step import Step
from groupkeeper.storage.base import Batch, LeaseEpoch, ShardId
from tests.simulation.tickets import WatchedTicket

_OF_THE_RUNTIME = (CommitRejected, MemberFenced, ShardLoaded, EndOffset, LogStarted)
"""Events that the runtime merges or makes by itself, and the one that the storage makes."""


class Made(NamedTuple):
    """The records and events of a step, for the store."""

    records: Sequence[Record]
    events: Sequence[Event]


class Life:
    """One shard since its load."""

    def __init__(self) -> None:
        self.made: deque[Made] = deque()
        """The batches that are not durable yet, in order."""
        self._made = 0
        self._stored = 0
        self._last_records = 0
        """The number of batches at the end of the last step with records."""
        self._said = 0
        """The number of answers that wait for earlier batches."""
        self._last_out = 0
        """The number of the last of these answers that was sent."""

    def add(self, step: Step) -> None:
        """Add a step."""
        events = _reported(step.events)
        if step.records or events:
            self.made.append(Made(list(step.records), events))
            self._made += 1
        if step.records:
            self._last_records = self._made
        for reply in step.replies:
            if not isinstance(reply.ticket, WatchedTicket):
                continue
            if reply.waits:
                self._said += 1
                check_sent = partial(self.check_sent, self._said, self._last_records)
                reply.ticket.answered_by_shard(reply.result, check_sent)
            else:
                reply.ticket.answered_by_shard(reply.result)

    def stored(self, batch: Batch) -> None:
        """Remove a batch that became durable. Raises AssertionError if it is not the next one that
        was made.
        """
        found = Made(list(batch.records), _reported(batch.events))
        if not found.records and not found.events:
            return
        wanted = self.made.popleft() if self.made else None
        self._stored += 1
        assert found == wanted, f"stored {found}, made was {wanted}"

    def check_sent(self, number: int, made: int) -> None:
        """Check an answer that is sent. Raises AssertionError if it depends on a batch that is not
        durable, or if a later answer was sent before it.
        """
        assert self._stored >= made, "ahead of what it rests on"
        assert self._last_out < number, "behind one that was given later"
        self._last_out = number


def _reported(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if not isinstance(event, _OF_THE_RUNTIME)]


class Ledger:
    """Every life of every shard of a world."""

    def __init__(self) -> None:
        self._lives: dict[tuple[ShardId, LeaseEpoch], Life] = {}

    def begin(self, shard: ShardId, epoch: LeaseEpoch) -> None:
        """Begin a life before a shard is loaded. Batches of the last life that are not stored are
        lost.
        """
        self._lives[shard, epoch] = Life()

    def life(self, shard: ShardId, epoch: LeaseEpoch) -> Life:
        """Return the life of a shard under this lease."""
        return self._lives.setdefault((shard, epoch), Life())

    def stored(self, shard: ShardId, epoch: LeaseEpoch, batches: Sequence[Batch]) -> None:
        """Check batches that became durable. Raises AssertionError if they are not the next ones of
        a life. Shards that are not watched are skipped.
        """
        life = self._lives.get((shard, epoch))
        for batch in batches if life else ():
            life.stored(batch)

    def check_all_stored(self, shard: ShardId, epoch: LeaseEpoch) -> None:
        """Raise AssertionError if a batch is not durable. Called when no append is in flight."""
        life = self._lives.get((shard, epoch))
        assert not life or not life.made, f"shard {shard}: made and never stored: {life.made[0]}"
