"""One life of one process of a world: the real coordinator, its store and its connections."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.runtime.clock import LoopClock
from groupkeeper.coordinator.runtime.slot import Slot
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.coordinator.server.watch import CallbackWatch
from groupkeeper.storage.base import CLUSTER_SHARD
from tests.helpers.runtime.virtual_loop import virtual_timer
from tests.simulation.checked_shard import CheckedShard, checked_makers
from tests.simulation.history import Durable
from tests.simulation.store import Misfortune, NamedSimStore, SimStore
from tests.simulation.tickets import WatchedCoordinator

if TYPE_CHECKING:
    from tests.simulation.network import Channel
    from tests.simulation.world import World

SHARDS = 4
PARTITIONS = 6
TOPIC = "orders"
"""The topic that all groups consume."""
EXTRAS = ("extra-1", "extra-2")
"""Topics that are created and deleted. Each member subscribes to one of them, too."""


class Node:
    """One life of one process."""

    def __init__(self, world: World, name: str, trouble: float, *, has_topics: bool = True) -> None:
        self._world = world
        self.name = name
        self.has_topics = has_topics
        self.is_dead = False
        self.is_ready = False
        self.is_lapsed = False
        """True if the process counted as dead for a moment while it started."""
        self.fate = Misfortune(world.random, lambda: world.kill(self), world.faults)
        self.fate.trouble = trouble
        backend = world.backend
        make_store: Callable[..., SimStore] = NamedSimStore if backend.by_name else SimStore
        self.store = make_store(
            backend.open_life(self.fate),
            self.fate,
            world.durable,
            one_lane=backend.one_lane,
        )
        self.clock = LoopClock(world.monotonic_ns, world.wall_ns)
        self.clock.start()
        topics = [ConfiguredTopic(TOPIC, PARTITIONS)]
        self.topics = Topics(topics, world.mint_topic_id)
        self.coordinator = WatchedCoordinator(
            self.store,
            world.config_of(name),
            self.topics if has_topics else None,
            clock=self.clock,
            timer=virtual_timer,
        )
        self.coordinator.problem = world.durable.problem
        self.coordinator.may_be_refused = backend.by_name
        self.coordinator.when_store_is_given_up(lambda: world.store_taken(self))
        census = self.coordinator._census
        makers = checked_makers(SHARDS, world.durable, self._epoch_of, census)
        if not has_topics:
            del makers[CLUSTER_SHARD]
        recovery = self.coordinator._owner.recovery
        recovery._makers = {**recovery._makers, **makers}
        services = Services(
            coordinator=self.coordinator,
            topics=self.topics,
            mint=lambda: uuid.UUID(int=world.random.getrandbits(128)),
            new_topic_id=world.mint_topic_id,
        )
        watch = CallbackWatch(read_s=asyncio.get_running_loop().time)
        self.server = KafkaServer(services, world.server_limits, watch=watch)
        self.channels: list[Channel] = []
        self.starting = asyncio.ensure_future(self._start())

    def _epoch_of(self, shard_id: int) -> int:
        lease = self.slot(shard_id).lease
        assert lease is not None, "a shard without a lease"
        return lease.epoch

    async def _start(self) -> None:
        while not self.is_dead:
            had_trouble = self._has_trouble()  # it may come and go while this takes
            self.is_lapsed = False
            try:
                await self.coordinator.start()
            except Exception:
                if self.is_dead:
                    return
                if not (had_trouble or self._has_trouble() or self.is_lapsed):
                    raise
                if self.fate.has_failed_sync:
                    self._world.kill(self)  # it ends, and a supervisor starts another one
                    return
                await asyncio.sleep(1)  # a supervisor starts it again
            else:
                self.is_ready = True
                return

    def _has_trouble(self) -> bool:
        return self.fate.trouble > 0 or self.fate.has_failed_sync or self._world.folds_fail()

    def check_leftovers(self) -> None:
        """Note what its shards should have deleted by now."""
        owner = self.coordinator._owner
        for slot in () if owner.recovery.is_stopping else owner.slots.values():
            if isinstance(slot.shard, CheckedShard):
                slot.shard.check_leftovers(self.clock.now())

    def check_alarm(self) -> None:
        """Check that its timer rings no later than the earliest deadline of each shard."""
        owner = self.coordinator._owner
        set_ms = owner.recovery.alarm._at_ms
        for slot in () if owner.recovery.is_stopping else owner.slots.values():
            due_ms = None if slot.shard is None else slot.shard.next_deadline()
            is_set = due_ms is None or set_ms <= slot.alarm_ms <= due_ms
            assert is_set, f"no alarm is set for {due_ms}, only for {slot.alarm_ms} and {set_ms}"

    def lost_lease_at(self, durable: Durable, group_id: str) -> int | None:
        """Return where its lease on the group's shard was lost. None if it is valid."""
        return self.lost_lease_of(self.slot(shard_of(group_id, SHARDS)), durable)

    def slot(self, shard_id: int) -> Slot:
        """Return one of its shards."""
        return self.coordinator._owner.slots[shard_id]

    def lost_lease_of(self, slot: Slot, durable: Durable) -> int | None:
        """Return where the lease on a shard was lost. None if it is valid."""
        if slot.lease is None:
            return 0
        return durable.void_at.get((slot.shard_id, slot.lease.epoch))
