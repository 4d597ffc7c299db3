"""What each life of a shard made, and how much of that became durable: the two are the same, batch
for batch, and an answer that waits goes out once all that was made before it is durable.

A life is a shard from one load to the next, which goes on from what was stored: under a new lease,
or under the same where nothing of it can be under way.
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
"""Events that it merges or makes by itself, and the one that the storage makes."""


class Made(NamedTuple):
    """What a step has for the store."""

    records: Sequence[Record]
    events: Sequence[Event]


class Life:
    """One shard since it was loaded."""

    def __init__(self) -> None:
        self.made: deque[Made] = deque()
        """What is not durable yet, in its order."""
        self._made = 0
        self._stored = 0
        self._last_records = 0
        """How much was made when the last step with records was over."""
        self._said = 0
        """Answers that wait for what was made before them."""
        self._last_out = 0
        """The number of the last of them that went out."""

    def take(self, step: Step) -> None:
        """A step was made."""
        events = _told(step.events)
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
                let_out = partial(self.let_out, self._said, self._last_records)
                reply.ticket.is_told(reply.result, let_out)
            else:
                reply.ticket.is_told(reply.result)

    def stored(self, batch: Batch) -> None:
        """A batch became durable; raises AssertionError where it is not the next that was made."""
        found = Made(list(batch.records), _told(batch.events))
        if not found.records and not found.events:
            return
        wanted = self.made.popleft() if self.made else None
        self._stored += 1
        assert found == wanted, f"stored {found}, made was {wanted}"

    def let_out(self, number: int, made: int) -> None:
        """An answer goes out; raises AssertionError where not so much of what was made is durable,
        or one that was given later is out.
        """
        assert self._stored >= made, "ahead of what it rests on"
        assert self._last_out < number, "behind one that was given later"
        self._last_out = number


def _told(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if not isinstance(event, _OF_THE_RUNTIME)]


class Ledger:
    """Every life of every shard in a world."""

    def __init__(self) -> None:
        self._lives: dict[tuple[ShardId, LeaseEpoch], Life] = {}

    def begin(self, shard: ShardId, epoch: LeaseEpoch) -> None:
        """A shard is about to be loaded: what it had made and not stored was given up."""
        self._lives[shard, epoch] = Life()

    def life(self, shard: ShardId, epoch: LeaseEpoch) -> Life:
        """The life of a shard under this lease."""
        return self._lives.setdefault((shard, epoch), Life())

    def stored(self, shard: ShardId, epoch: LeaseEpoch, batches: Sequence[Batch]) -> None:
        """Batches became durable; raises AssertionError where they are not the next of a life. Of a
        shard that is not watched nothing is known.
        """
        life = self._lives.get((shard, epoch))
        for batch in batches if life else ():
            life.stored(batch)

    def check_all_stored(self, shard: ShardId, epoch: LeaseEpoch) -> None:
        """Raise AssertionError where something was made that is not durable: nothing is under way
        that could make it so.
        """
        life = self._lives.get((shard, epoch))
        assert not life or not life.made, f"shard {shard}: made and never stored: {life.made[0]}"
