"""A shard that is checked after each step: after requests, timers, new topics or configs, and at
the end of a load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from groupkeeper.coordinator.core.cluster.group_configs import GroupOverrides
from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.cluster.shard import ClusterShard
from groupkeeper.coordinator.core.groups.census import Census
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.records import Record
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.shard import Shard
from groupkeeper.coordinator.core.step import Step, Ticket
from groupkeeper.coordinator.core.work import Work, WorkOutcome
from groupkeeper.coordinator.runtime.shards import MakeShard
from groupkeeper.storage.base import CLUSTER_SHARD, LeaseEpoch, ShardId
from tests.helpers.core.invariants import (
    check,
    check_alarm,
    due_at,
    parked_tickets,
    spelled_out,
)
from tests.simulation.bounds import Headcount, Room
from tests.simulation.history import Durable
from tests.simulation.identities import Sent, check_identity
from tests.simulation.leftovers import Leftovers
from tests.simulation.patience import Patience
from tests.simulation.rest import check_rest
from tests.simulation.roll_call import RollCall, check_goes_on, check_left, check_waits
from tests.simulation.tickets import OpenTickets

EpochOf = Callable[[ShardId], LeaseEpoch]
"""Returns the current lease epoch of a shard."""


def _no_lease(_: ShardId) -> LeaseEpoch:
    return 0


class CheckedShard(Shard):
    """Works like its base, and notes every rule that does not hold afterwards."""

    def __init__(
        self,
        shard_id: int,
        limits: CoreLimits,
        image: TopicImage,
        durable: Durable,
        epoch_of: EpochOf = _no_lease,
        census: Census | None = None,
        headcount: Headcount | None = None,
    ) -> None:
        super().__init__(shard_id, limits, image, census)
        self._headcount = headcount or Headcount()
        self._durable = durable
        self._epoch_of = epoch_of
        self._tickets = OpenTickets()
        self._is_loaded = False
        self._patience = Patience(durable.asked)
        self._roll_call = RollCall()
        self._leftovers = Leftovers()
        self._sent = Sent()
        durable.ledger.begin(shard_id, epoch_of(shard_id))

    def handle(self, request: Request, ticket: Ticket, now: Now) -> Step:
        self._tickets.handed(ticket)
        before = due_at(self, request)
        room = Room(self, self._headcount, request)
        made = super().handle(request, ticket, now)
        step = spelled_out(made, ticket)
        with self._durable.noting():
            check_alarm(self, request, before, step)
        result = next((reply.result for reply in step.replies if reply.ticket is ticket), None)
        with self._durable.noting():
            room.check(self, result)
        with self._durable.noting():
            check_left(self, request, result)
        with self._durable.noting():
            check_goes_on(self, request, result)
        with self._durable.noting():
            check_identity(self, request, result)
        self._sent.joined(request, result)
        with self._durable.noting():
            self._patience.after_step(self, step, request, result)
        self._checked(step, now)
        return made

    def expire(self, now: Now) -> Step:
        self.check_leftovers(now)  # what was no leftover just now is none that was passed over
        step = self._after_step(super().expire(now), now)
        self.check_leftovers(now)
        return step

    def work_done(self, work: Work, outcome: WorkOutcome, now: Now) -> Step:
        return self._after_step(super().work_done(work, outcome, now), now)

    def topics_changed(self, image: TopicImage, now: Now) -> Step:
        return self._after_step(super().topics_changed(image, now), now)

    def configs_changed(self, settings: Mapping[str, GroupOverrides], now: Now) -> Step:
        return self._after_step(super().configs_changed(settings, now), now)

    def loaded(self, now: Now) -> Step:
        step = super().loaded(now)
        self._is_loaded = True  # what was read has become the live state only now
        self.check_rest()
        return self._after_step(step, now)

    def resumed(self, stopped_ms: int, now: Now) -> Step:
        step = super().resumed(stopped_ms, now)
        self._patience.resumed(self, stopped_ms)
        return self._after_step(step, now)

    def load_group(self, group_id: str, records: Sequence[Record], now: Now) -> Step:
        return self._after_step(super().load_group(group_id, records, now), now)

    def check_timers(self, now: Now) -> None:
        """Note what should have ended by now. Called even if no step has come."""
        with self._durable.noting():  # an error that was raised here would be one of the core
            self._patience.check(self, now.monotonic_ms)

    def check_leftovers(self, now: Now) -> None:
        """Note what should have been deleted by now."""
        if self._is_loaded:
            with self._durable.noting():
                self._leftovers.look(self, now)

    def check_rest(self) -> None:
        """Note each group at rest that differs from its records."""
        for group in self.groups.values():
            with self._durable.noting():
                check_rest(group)

    def _after_step(self, step: Step, now: Now) -> Step:
        if self._is_loaded:
            with self._durable.noting():
                self._patience.after_step(self, step)
        return self._checked(step, now)

    def _checked(self, step: Step, now: Now) -> Step:
        self._durable.ledger.life(self.shard_id, self._epoch_of(self.shard_id)).add(step)
        with self._durable.noting():
            self._tickets.after_step(step, parked_tickets(self))
        if self._is_loaded:
            self._headcount.after_step(self)
            self.check_timers(now)
            with self._durable.noting():
                check(self)
            with self._durable.noting():
                self._roll_call.after_step(self, step)
            with self._durable.noting():
                self._roll_call.number(self, step)
            with self._durable.noting():
                check_waits(step)
            with self._durable.noting():
                self._sent.check(step)
        return step


class CheckedCluster(ClusterShard):
    """The shard of topics and configs. Its steps are noted as well."""

    def __init__(self, limits: CoreLimits, durable: Durable, epoch_of: EpochOf) -> None:
        super().__init__(limits)
        self._durable = durable
        self._epoch_of = epoch_of
        durable.ledger.begin(CLUSTER_SHARD, epoch_of(CLUSTER_SHARD))

    def handle(self, request: Request, ticket: Ticket, now: Now) -> Step:
        step = super().handle(request, ticket, now)
        self._durable.ledger.life(CLUSTER_SHARD, self._epoch_of(CLUSTER_SHARD)).add(step)
        return step


def checked_makers(
    shards: int, durable: Durable, epoch_of: EpochOf, census: Census
) -> dict[int, MakeShard]:
    """Return the functions that make the shards of a process, including the shard of topics and
    configs.
    """
    make = partial(
        CheckedShard, durable=durable, epoch_of=epoch_of, census=census, headcount=Headcount()
    )
    makers: dict[int, MakeShard] = dict.fromkeys(range(shards), make)
    makers[CLUSTER_SHARD] = lambda _, limits, __: CheckedCluster(limits, durable, epoch_of)
    return makers
