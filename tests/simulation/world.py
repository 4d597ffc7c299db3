"""A world from one seed: processes, the store they share, the ways to them, time and its faults.

After every step of a shard its invariants are checked; at every answer: it is the only one, what it
acknowledges is durable, and it came in time; at every request that was sent, and of all groups
after each fault: the live state is what a replay of the log comes to. What needs the whole history
is left to ``checker``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from groupkeeper.coordinator.core.cluster.shard import ClusterShard
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import Event, MemberEvicted, OffsetExpired
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.requests import (
    Client,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Request,
    SyncGroup,
)
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.core.shard import Shard
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.runtime.slot import Slot
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.storage.base import CLUSTER_SHARD
from tests.helpers.runtime.virtual_loop import START_WALL_MS, VirtualLoop
from tests.simulation.backends import Backend, MemoryBackend, SqliteBackend
from tests.simulation.call import Call
from tests.simulation.checked_shard import CheckedShard
from tests.simulation.checker import check_acknowledged, check_expired, check_log
from tests.simulation.client_codec import MIDDLE, NEW, OLD
from tests.simulation.history import Durable, Op
from tests.simulation.network import Channel, Direct, Wire
from tests.simulation.node import PARTITIONS, SHARDS, Node

KINDS = ("memory", "owners", "sqlite", "lanes", "owners", "memory")
"""What worlds are lived over: memory in one lane; the same with two processes under leases; SQLite;
memory in a lane a shard.
"""
ODD = 8
TOPICS_COME_LATER = 1
BY_NAME = 4
HEARD_WHILE_PARKED = 7
SMALL_GROUPS = (2, 4)
FEW_GROUPS = 6
"""What is odd about some worlds, by their seed modulo ``ODD``, so that others stay as they are
known: a first life without topics; a store that reads groups by name; new members that heartbeat
while their join is parked; a small bound of what a group may take; a small bound of how many groups
there may be.
"""

SMALL_GROUP_BYTES = 12_000
"""A bound of what a group may take that three members and some offsets reach."""
LONG_NOTE_CHARS = 2_000
"""Metadata of some commits, where groups have such a bound."""
MOST_GROUPS = 4
"""A bound of the number of groups: those with members, and one more."""

SESSION_MS = 6_000
REBALANCE_MS = (5_000, 9_000)
"""Shorter than a session, and longer: what begins one again shows within a long phase."""
SLOW_READER_S = 3.0
MOVED_S = 6.0
"""After so long a store that was moved is put back; it is noticed within a second."""
FAR = 1_000_000
"""Offsets come from both ends: some are below the ones that they replace."""
COMMIT_RETENTION_MS = 20_000
"""What some commits bring along (OffsetCommit v2-4); groups set a minute."""
SLACK_MS = 1_000
"""Turns of the loop, latencies of the network, ticks of the clock."""


class World:
    """Everything that one seed makes."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self._began_s = loop.time()
        self.durable = Durable(on_event=self.on_event)
        self.history: list[Op] = []
        self.answers: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.is_over = False
        self.is_at_peace = False
        self.partitions = PARTITIONS
        """Of the one topic that all groups consume, as far as was acknowledged."""
        self.wall_jump_ms = 0
        self.latest_wall_ms = 0
        self.nodes: dict[str, Node] = {}
        self.stalls = 0
        self._stalled_s = 0.0
        self._heard: dict[tuple[str, str], tuple[float, int]] = {}
        self._last_offset = 0
        self._minted = 0
        self._ending: list[asyncio.Future[Any]] = []
        self._oddity = seed % ODD
        self.has_small_groups = self.is_odd(*SMALL_GROUPS)
        self.has_few_groups = self.is_odd(FEW_GROUPS)
        kind = "by name" if self.is_odd(BY_NAME) else KINDS[seed % len(KINDS)]
        self.kind = kind
        self.shards = SHARDS
        self.backend: Backend = (
            SqliteBackend(self)
            if kind == "sqlite"
            else MemoryBackend(self, one_lane=kind != "lanes", by_name=kind == "by name")
        )
        self.names = ("a", "b") if kind == "owners" else ("a",)
        self.share_of_wire = random.choice((0.0, 0.5, 1.0))
        self.retention_ms = random.choice((15_000, 60_000, 600_000))
        self.append_timeout_ms = random.choice((500, 2_000))
        self.rebalance_ms = random.choice(REBALANCE_MS)
        self.initial_delay_ms = random.choice((0, 300, 3_000))
        self.server_limits = ServerLimits(
            max_waiting_requests=random.choice((2, 1_000)),
            max_waiting_bytes=random.choice((256, 1_048_576)),
        )

    def is_odd(self, *oddities: int) -> bool:
        """Whether one of these is what is odd about this world."""
        return self._oddity in oddities

    # --- Time -------------------------------------------------------------------------------------

    def monotonic_ns(self) -> int:
        return round(self.loop.time() * 1e9)

    def wall_ms(self) -> int:
        now_ms = START_WALL_MS + round(self.loop.time() * 1000) + self.wall_jump_ms
        self.latest_wall_ms = max(self.latest_wall_ms, now_ms)
        return now_ms

    def wall_ns(self) -> int:
        return self.wall_ms() * 1_000_000

    def stall(self, seconds: float) -> None:
        """Nothing runs for so long: a process that was stopped, a machine that was paused."""
        self.faults["stall"] += 1
        self.stalls += 1
        self._stalled_s += seconds
        self.loop.advance(seconds)

    def running_ms(self) -> float:
        """Time without stalls."""
        return (self.loop.time() - self._stalled_s) * 1000

    def lived_s(self) -> float:
        """How long the world has gone on, by its own time."""
        return self.loop.time() - self._began_s

    # --- Processes --------------------------------------------------------------------------------

    def config_of(self, owner: str) -> CoordinatorConfig:
        usual = CoreLimits()
        return CoordinatorConfig(
            initial_rebalance_delay_ms=self.initial_delay_ms,
            shards=SHARDS,
            append_timeout_ms=self.append_timeout_ms,
            owner=owner,
            offsets_retention_ms=self.retention_ms,
            retention_check_interval_ms=7_000,
            drain_timeout_ms=2_000,
            max_groups=MOST_GROUPS if self.has_few_groups else usual.max_groups,
            max_group_bytes=SMALL_GROUP_BYTES if self.has_small_groups else usual.max_group_bytes,
        )

    def start(self, name: str, trouble: float = 0.0, *, has_topics: bool = True) -> Node:
        """Begin a life."""
        assert name not in self.nodes
        node = self.nodes[name] = Node(self, name, trouble, has_topics=has_topics)
        return node

    def kill(self, node: Node) -> None:
        """End a life with whatever was under way, and begin the next one some time later."""
        if node.is_dead:
            return
        self.faults["kill"] += 1
        node.is_dead = node.fate.is_dead = True
        del self.nodes[node.name]
        self.backend.killed(node.name)
        for channel in node.channels:
            channel.cut()
        # Nothing of it can do harm any more; this only ends its tasks.
        node.starting.cancel()
        self._ending.append(asyncio.ensure_future(_end(node)))
        self.loop.call_later(self.random.uniform(0.05, 5), self._start_again, node.name)

    def _start_again(self, name: str) -> None:
        if self.is_over or name in self.nodes or (self.is_at_peace and name != self.names[0]):
            return
        self.start(name, 0.0 if self.is_at_peace else self.random.choice((0.0, 0.1)))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the rest."""
        self._ending.append(asyncio.ensure_future(work))

    async def restart(self, node: Node) -> None:
        """A clean stop, and a new life."""
        self.faults["restart"] += 1
        await node.coordinator.stop()
        if not node.is_dead:  # it may have been killed meanwhile
            self.kill(node)

    def store_taken(self, node: Node) -> None:
        """Somebody else writes to its store: the daemon ends, and a supervisor starts it again."""
        self.faults["store taken"] += 1
        self.spawn(self.restart(node))

    def move_store(self, node: Node) -> None:
        """Take the files of a store away; somebody puts them back and starts the process again."""
        if node.is_ready and not node.store.is_moved:
            self.faults["moved store"] += 1
            node.store.is_moved = True
            self.spawn(self._put_back(node))

    async def _put_back(self, node: Node) -> None:
        await asyncio.sleep(MOVED_S)
        await asyncio.sleep(0.1)  # the process may have been stopped, and have just gone on
        if not node.is_dead:
            if node.coordinator.is_ready:
                self.durable.problem("ready over a store that was moved")
            await self.restart(node)

    async def stop(self) -> None:
        """End the world: a clean stop answers everything."""
        self.is_over = True
        for node in list(self.nodes.values()):
            await node.coordinator.stop()
            node.clock.stop()
        await asyncio.gather(*self._ending)
        for op in self.history:
            if op.answered_at is None and not op.is_cut:
                self.durable.problem(f"never answered: {op.request}")

    # --- What clients do --------------------------------------------------------------------------

    async def connect(self, *, is_static: bool = False, in_process: bool = False) -> Channel:
        """Find a process, and open a way to it."""
        while not self.nodes:  # noqa: ASYNC110 - one comes when its time comes
            await asyncio.sleep(0.05)
        node = self.random.choice(list(self.nodes.values()))
        channel: Channel
        if not in_process and self.random.random() < self.share_of_wire:
            versions = NEW if is_static else self.random.choice((NEW, NEW, MIDDLE, OLD))
            channel = Wire(self, node, versions)
        else:
            channel = Direct(node)
        node.channels = [other for other in node.channels if other.is_open]
        node.channels.append(channel)
        return channel

    def send(self, channel: Channel, client: Client, request: Request) -> asyncio.Future[Any]:
        """Send a request; the future has its result, or Disconnected."""
        (future,) = self.send_together(channel, client, [request])
        return future

    def send_together(
        self, channel: Channel, client: Client, requests: Sequence[Request]
    ) -> list[asyncio.Future[Any]]:
        """Send requests that go in one where the way has such: several groups of an OffsetFetch."""
        calls = [self._call(channel, client, request) for request in requests]
        if not channel.is_open:
            for call in calls:
                call.cut()
            return [call.future for call in calls]
        self.history += [call.op for call in calls]
        if len(calls) > 1:  # a group may be answered for before the whole is, by an older lease
            for call in calls:
                group_id = call.op.request.group_id
                call.op.void_at = channel.node.lost_lease_at(self.durable, group_id)
        channel.send(calls)
        for request in requests:
            self.check_node(channel.node, getattr(request, "group_id", ""))
        return [call.future for call in calls]

    def _call(self, channel: Channel, client: Client, request: Request) -> Call:
        op = Op(client.client_id, request, self.running_ms(), self.durable.position)
        op.allowed_ms = self._allowed_ms(request) + SLACK_MS
        if isinstance(channel, Wire):  # what is not taken holds up what comes behind it
            op.allowed_ms += SLOW_READER_S * 1000
        op.has_epochs, op.has_retention = channel.has_epochs, channel.has_retention
        return Call(self, channel.node, op)

    def _allowed_ms(self, request: Request) -> float:
        """How long the coordinator may keep somebody waiting: two appends, the one in flight and
        the one that gathers, before them the read of a group, where groups are read by name, and
        the phases of a rebalance. A member that is closed
        leaves over the connection on which its join or sync is parked, and is answered behind it.
        """
        storing_ms = (3.0 if self.is_odd(BY_NAME) else 2.0) * self.append_timeout_ms
        if isinstance(request, JoinGroup | LeaveGroup):
            return storing_ms + self.rebalance_ms + self.initial_delay_ms
        return storing_ms + (self.rebalance_ms if isinstance(request, SyncGroup) else 0)

    def next_commit(self, partition: int) -> tuple[int, int, int, str]:
        """What to commit of a partition: an offset that nobody has used, so that it names the one
        commit that wrote it, with some leader epoch and metadata.
        """
        self._last_offset += 1
        offset = self.random.choice((self._last_offset, FAR - self._last_offset))
        metadata = self.random.choice(("", "note", "é", f"at {self._last_offset}"))
        if metadata == "note" and self.has_small_groups:
            metadata = "\u00fc" * LONG_NOTE_CHARS
        return partition, offset, self.random.choice((-1, 0, 7)), metadata

    def entries(self, partitions: Sequence[int]) -> list[list[int]]:
        """The entries in which a request names a topic, and the partitions of each: now and then
        some are named twice, in one entry or in two.
        """
        luck = self.random.random()
        if luck < 0.8:
            return [[*partitions]]
        again = self.random.sample(partitions, self.random.randrange(1, len(partitions) + 1))
        return [[*partitions, *again]] if luck < 0.9 else [[*partitions], again]

    def mint(self, prefix: str) -> str:
        """Return a new id."""
        self._minted += 1
        return f"{prefix}-{self._minted}"

    def mint_topic_id(self) -> str:
        return self.mint("topic").ljust(22, "A")

    # --- What must hold ---------------------------------------------------------------------------

    def answered(self, node: Node, op: Op, result: Any) -> None:
        """Check an answer at the moment it is given."""
        request = op.request
        op.answered_ms, op.answered_at, op.result = (
            self.running_ms(),
            self.durable.position,
            result,
        )
        group_id = getattr(request, "group_id", "")
        if op.void_at is None:
            op.void_at = node.lost_lease_at(self.durable, group_id)
        code = result if isinstance(result, ErrorCode) else result.error
        self.answers[f"{type(request).__name__} {code.name}"] += 1
        with self.durable.noting():
            is_refused = code is ErrorCode.UNKNOWN_SERVER_ERROR
            assert not is_refused or node.coordinator.may_be_refused, request
            took_ms = op.answered_ms - op.invoked_ms
            assert took_ms <= op.allowed_ms, f"{took_ms} ms for {request}"
            check_acknowledged(self.durable, op)
        if isinstance(request, Heartbeat) and code is ErrorCode.NONE and op.void_at is None:
            self._heard[group_id, request.member_id] = (op.invoked_ms, self.stalls)

    def on_event(self, event: Event) -> None:
        """Check an event that became durable."""
        if isinstance(event, MemberEvicted):
            self.faults[f"evicted: {event.reason}"] += 1
            heard_ms, stalls = self._heard.get((event.group_id, event.member_id), (-1e9, 0))
            if event.reason == "session_timeout":
                # The clock of the process may count one second of each stall.
                silent_ms = self.running_ms() - heard_ms + 1_000 * (self.stalls - stalls)
                assert silent_ms >= SESSION_MS - 2, f"{event}: silent for {silent_ms} ms"
        elif isinstance(event, OffsetExpired):
            self.faults["offsets expired"] += 1
            check_expired(self.durable, event, self.latest_wall_ms, self.retention_ms)

    def check_node(self, node: Node, group_id: str) -> None:
        """Check that a group's shard is what a replay would be, and so the shard of topics and
        configs; and that nothing in it should have ended by now.
        """
        slot = node.slot(shard_of(group_id, SHARDS))
        shard = slot.shard
        if node.is_dead:
            return
        if isinstance(shard, CheckedShard) and not node.coordinator._owner.recovery.is_stopping:
            shard.check_timers(node.clock.now())  # no step may have come to tell
        with self.durable.noting():
            node.check_alarm()
        with self.durable.noting():
            for one in node.coordinator._owner.slots.values():
                is_over = one.shard is not None and one.lease in node.store.told_lost
                assert not is_over, f"shard {one.shard_id} goes on with a lease that is lost"
            if isinstance(shard, Shard) and self._is_settled(node, slot):
                live, replayed = shard.saved(group_id), self.durable.saved.get(group_id)
                is_read = live is not None or not self.backend.by_name
                assert live == replayed or not is_read, (
                    f"{group_id}: live {live}, replayed {replayed}"
                )
                self._check_ends(slot.shard_id, shard)
                self._check_stored(slot)
            if not node.has_topics:
                return
            cluster = node.slot(CLUSTER_SHARD)
            if isinstance(cluster.shard, ClusterShard) and self._is_settled(node, cluster):
                self._check_cluster(cluster.shard)
                self._check_stored(cluster)

    def _check_stored(self, slot: Slot) -> None:
        if slot.lane.is_idle and slot.lease is not None:
            self.durable.ledger.check_all_stored(slot.shard_id, slot.lease.epoch)

    def _is_settled(self, node: Node, slot: Slot) -> bool:
        """What the shard has is durable, and nobody else's is newer."""
        return slot.unfinished is None and node.lost_lease_of(slot, self.durable) is None

    def _check_ends(self, shard_id: int, shard: Shard) -> None:
        live, replayed = shard.saved_ends, self.durable.ends[shard_id]
        assert live == replayed, f"ends of {shard_id}: live {live}, replayed {replayed}"
        known, largest = shard.image.by_id, self.durable.largest[shard_id]
        ends = {key: end for key, end in shard.ends().items() if key[0] in known}
        wanted = {key: end for key, end in largest.items() if key[0] in known}
        if self.backend.by_name and isinstance(shard, CheckedShard):  # of what was read so far
            wanted = {key: min(end, ends[key]) for key, end in wanted.items() if key in ends}
        assert ends == wanted, f"ends of {shard_id}: {ends}, the largest committed: {wanted}"

    def _check_cluster(self, shard: ClusterShard) -> None:
        topics, configs = self.durable.standing_topics(), self.durable.standing_configs()
        assert shard.topics == topics, f"topics: live {shard.topics}, replayed {topics}"
        assert shard.configs == configs, f"configs: live {shard.configs}, replayed {configs}"

    def check_all(self) -> None:
        """Check every group that was ever named, and stop at the first thing that did not hold."""
        named = {getattr(op.request, "group_id", "") for op in self.history}
        for node in self.nodes.values():
            for group_id in sorted(named):
                self.check_node(node, group_id)
            for slot in node.coordinator._owner.slots.values():
                if (
                    isinstance(slot.shard, CheckedShard)
                    and not node.coordinator._owner.recovery.is_stopping
                ):
                    slot.shard.check_leftovers(node.clock.now())
                    slot.shard.check_rest()
        for problem in self.durable.problems:
            raise AssertionError(problem)

    async def check_stored(self) -> None:
        """A load yields what the log comes to, and the log is whole."""
        (node,) = self.nodes.values()
        loaded, cluster = await self._load(node)
        self._check_cluster(cluster)
        for shard_id, again in loaded.items():
            self._check_ends(shard_id, again)
            for group in again.saved_groups():
                wanted = self.durable.saved.get(group.group_id)
                assert group == wanted, f"loaded {group}, stored {wanted}"
        for group_id, stored in self.durable.saved.items():
            again = loaded[shard_of(group_id, SHARDS)]
            assert again.saved(group_id) == stored, f"not loaded: {stored}"
        check_log(self.backend.events(), self.durable.events)

    async def _load(self, node: Node) -> tuple[dict[int, Shard], ClusterShard]:
        """Load every shard, as the runtime does: with nothing in flight, for a store goes on from
        where it was loaded. Offsets expire and sessions end even if nobody asks for anything; what
        comes of that gathers meanwhile.
        """
        limits = self.config_of("again")
        cluster = ClusterShard(limits)
        loaded = {n: Shard(n, limits, node.topics.image) for n in range(SHARDS)}
        lanes = node.coordinator._owner.lanes
        for lane in lanes:
            await lane.hold()
        position = self.durable.position
        async for shard_id, records in node.store.inner.load([*range(CLUSTER_SHARD, SHARDS)]):
            for record in records:
                (cluster if shard_id == CLUSTER_SHARD else loaded[shard_id]).apply(record)
        assert self.durable.position == position, "written while it was read"
        for lane in lanes:
            lane.end_hold()
        return loaded, cluster


async def _end(node: Node) -> None:
    with suppress(Exception):
        await node.coordinator.stop(10)
    node.clock.stop()
