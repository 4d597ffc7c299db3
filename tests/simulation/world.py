"""A world from one seed: processes, their store, their connections, time, and the faults of all
these.

After every step of a shard its invariants are checked. Each answer must be the only one, durable,
and in time. At every request, and for all groups after each fault, the live state must equal a
replay of the log. ``checker`` checks what needs the whole history.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Literal

from msgspec import structs

from groupkeeper.coordinator.core.cluster.shard import ClusterShard
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import Event, MemberEvicted, OffsetExpired
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.core.shard import Shard
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.runtime.slot import Slot
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.storage.base import CLUSTER_SHARD
from tests.helpers.core.shard_driver import saved_groups
from tests.helpers.runtime.virtual_loop import START_WALL_MS, VirtualLoop
from tests.simulation.backends import Backend, MemoryBackend, SqliteBackend
from tests.simulation.call import Call
from tests.simulation.checked_shard import CheckedShard
from tests.simulation.checker import check_acknowledged, check_expired, check_log
from tests.simulation.client_codec import MIDDLE, NEW, OLD
from tests.simulation.failing_disk import FailingDiskBackend
from tests.simulation.history import Durable, Op
from tests.simulation.journal_backend import JournalBackend
from tests.simulation.network import Channel, Direct, Wire
from tests.simulation.node import PARTITIONS, SHARDS, Node

KINDS = ("memory", "owners", "sqlite", "lanes", "owners", "memory")
"""The stores of worlds: memory in one lane, the same with two processes under leases, SQLite, and
memory with a lane for each shard.
"""
StoreKind = Literal["", "shared memory", "journal", "journal that is not folded", "failing disk"]
"""The store in place of the usual one: "" (the usual one), memory that several processes share
(only in worlds over memory), a journal, a journal whose folds fail for most of the time, or SQLite
on a disk that fails to sync and loses its power.
"""
FOLDS_WORK_S, FOLDS_FAIL_S = 20, 40
"""In worlds with a journal whose folds fail, folds work for the first time, then fail for the
second, and so on."""
ODD = 8
TOPICS_COME_LATER = 1
BY_NAME = 4
HEARTBEATS_WHILE_PARKED = 7
SMALL_GROUPS = (2, 4)
FEW_GROUPS = 6
"""Some worlds differ from the others, by their seed modulo ``ODD``, so that the others stay the
same: a first life without topics; a store that reads groups by name; new members that heartbeat
while their join is parked; a small bound on the size of a group; a small bound on the number of
groups.
"""

SMALL_GROUP_BYTES = 12_000
"""A bound on the size of a group that three members and some offsets reach."""
LONG_NOTE_CHARS = 2_000
"""The length of the metadata of some commits in worlds with this bound."""
MOST_GROUPS = 4
"""A bound on the number of groups: those with members, and one more."""

SESSION_MS = 6_000
REBALANCE_MS = (5_000, 9_000)
"""Shorter and longer than a session: so a session that is restarted by mistake shows within a long
phase.
"""
SLOW_READER_S = 3.0
MOVED_S = 6.0
"""A store that was moved is put back after this time. The move is noticed within a second."""
FAR = 1_000_000
"""Offsets come from both ends, so some are below those that they replace."""
COMMIT_RETENTION_MS = 20_000
"""The retention of some commits (OffsetCommit v2-4). The retention of groups is longer."""
SLACK_MS = 1_000
"""For turns of the loop, latencies of the network and ticks of the clock."""


class World:
    """The parts of the world of one seed."""

    def __init__(self, seed: int, store: StoreKind = "") -> None:
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
        """Acknowledged partitions of the one topic that all groups consume."""
        self.wall_jump_ms = 0
        self.latest_wall_ms = 0
        self.nodes: dict[str, Node] = {}
        self.stalls = 0
        self._stalled_s = 0.0
        self._last_heartbeats: dict[tuple[str, str], tuple[float, int]] = {}
        self._last_offset = 0
        self._minted = 0
        self._ending: list[asyncio.Future[Any]] = []
        self._oddity = seed % ODD
        self.has_small_groups = self.is_odd(*SMALL_GROUPS)
        self.has_few_groups = self.is_odd(FEW_GROUPS)
        kind = "by name" if self.is_odd(BY_NAME) else KINDS[seed % len(KINDS)]
        self.kind = kind
        self.has_failing_disk = store == "failing disk"
        self._has_bad_folds = store == "journal that is not folded"
        self.shards = SHARDS
        self.backend = self._backend(kind, store)
        has_two = kind == "owners" and store in ("", "shared memory")
        self.names = ("a", "b") if has_two else ("a",)
        self.share_of_wire = random.choice((0.0, 0.5, 1.0))
        self.retention_ms = random.choice((15_000, 60_000, 600_000))
        self.append_timeout_ms = random.choice((500, 2_000))
        self.rebalance_ms = random.choice(REBALANCE_MS)
        self.initial_delay_ms = random.choice((0, 300, 3_000))
        self.server_limits = ServerLimits(
            max_waiting_requests=random.choice((2, 1_000)),
            max_waiting_bytes=random.choice((256, 1_048_576)),
        )

    def _backend(self, kind: str, store: StoreKind) -> Backend:
        if store.startswith("journal"):
            return JournalBackend(self, folds_fail=self._has_bad_folds)
        if store == "failing disk":
            return FailingDiskBackend(self)
        if kind == "sqlite":
            return SqliteBackend(self)
        backend = MemoryBackend(self, one_lane=kind != "lanes", by_name=kind == "by name")
        is_shared = store == "shared memory"
        backend.inner.limits = structs.replace(backend.inner.limits, shared=is_shared)
        return backend

    def is_odd(self, *oddities: int) -> bool:
        """Return whether the world differs in one of these ways."""
        return self._oddity in oddities

    def folds_fail(self) -> bool:
        """Return whether no fold of a journal succeeds now."""
        since_s = self.age_s() % (FOLDS_WORK_S + FOLDS_FAIL_S)
        return self._has_bad_folds and not self.is_at_peace and since_s >= FOLDS_WORK_S

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
        """Let time pass while nothing runs, like a stopped process or a paused machine."""
        self.faults["stall"] += 1
        self.stalls += 1
        self._stalled_s += seconds
        self.loop.advance(seconds)

    def running_ms(self) -> float:
        """Return the time without stalls."""
        return (self.loop.time() - self._stalled_s) * 1000

    def age_s(self) -> float:
        """Return the age of the world in virtual seconds, including the stalls."""
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
        """Begin a life of a process."""
        assert name not in self.nodes
        node = self.nodes[name] = Node(self, name, trouble, has_topics=has_topics)
        return node

    def kill(self, node: Node) -> None:
        """Kill a process at any point, and start the next one some time later."""
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
        """Run something in a task."""
        self._ending.append(asyncio.ensure_future(work))

    def cut_power(self) -> None:
        """Kill every process, and leave what is on the disk."""
        assert isinstance(self.backend, FailingDiskBackend)
        self.faults["power cut"] += 1
        for node in list(self.nodes.values()):
            self.kill(node)
        self.backend.cut_power()

    async def restart(self, node: Node) -> None:
        """Stop a process cleanly, and start the next one."""
        self.faults["restart"] += 1
        await node.coordinator.stop()
        if not node.is_dead:  # it may have been killed meanwhile
            self.kill(node)

    def store_taken(self, node: Node) -> None:
        """Handle another process that writes to the store, or a disk that fails to sync: the daemon
        ends, and a supervisor restarts it.
        """
        self.faults["store given up" if node.fate.has_failed_sync else "store taken"] += 1
        self.spawn(self.restart(node))

    def move_store(self, node: Node) -> None:
        """Move the files of a store away. Somebody puts them back and restarts the process."""
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
        """End the world with a clean stop, which answers every request."""
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
        """Find a process, and connect to it."""
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
        """Send a request. The future gets its result, or Disconnected."""
        (future,) = self.send_together(channel, client, [request])
        return future

    def send_together(
        self, channel: Channel, client: Client, requests: Sequence[Request]
    ) -> list[asyncio.Future[Any]]:
        """Send several requests, in one frame if the connection can do that: an OffsetFetch of
        several groups.
        """
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
            self.check_node(channel.node, request.group_id or "")
        return [call.future for call in calls]

    def _call(self, channel: Channel, client: Client, request: Request) -> Call:
        op = Op(client.client_id, request, self.running_ms(), self.durable.position)
        op.allowed_ms = self._allowed_ms(request) + SLACK_MS
        if isinstance(channel, Wire):  # what is not taken holds up what comes behind it
            op.allowed_ms += SLOW_READER_S * 1000
        op.has_epochs, op.has_retention = channel.has_epochs, channel.has_retention
        return Call(self, channel.node, op)

    def _allowed_ms(self, request: Request) -> float:
        """Return how long an answer may take: two appends (one in flight, one gathering), the
        phases of a rebalance, and the read of a group if groups are read by name.

        A member that is closed leaves over the connection on which its join or sync is parked, and
        is answered after that.
        """
        storing_ms = (3.0 if self.is_odd(BY_NAME) else 2.0) * self.append_timeout_ms
        if isinstance(request, JoinGroup | LeaveGroup):
            return storing_ms + self.rebalance_ms + self.initial_delay_ms
        return storing_ms + (self.rebalance_ms if isinstance(request, SyncGroup) else 0)

    def next_commit(self, partition: int) -> tuple[int, int, int, str]:
        """Return what to commit for a partition: an offset that was never used, so that it
        identifies its commit, with some leader epoch and metadata.
        """
        self._last_offset += 1
        offset = self.random.choice((self._last_offset, FAR - self._last_offset))
        metadata = self.random.choice(("", "note", "é", f"at {self._last_offset}"))
        if metadata == "note" and self.has_small_groups:
            metadata = "\u00fc" * LONG_NOTE_CHARS
        return partition, offset, self.random.choice((-1, 0, 7)), metadata

    def entries(self, partitions: Sequence[int]) -> list[list[int]]:
        """Return the entries in which a request names a topic, each with its partitions. Sometimes
        a partition is named twice, in one entry or in two.
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
        group_id = request.group_id or ""
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
            self._last_heartbeats[group_id, request.member_id] = (op.invoked_ms, self.stalls)

    def on_event(self, event: Event) -> None:
        """Check an event that became durable."""
        if isinstance(event, MemberEvicted):
            self.faults[f"evicted: {event.reason}"] += 1
            heard_ms, stalls = self._last_heartbeats.get(
                (event.group_id, event.member_id), (-1e9, 0)
            )
            if event.reason == "session_timeout":
                # The clock of the process may count one second of each stall.
                silent_ms = self.running_ms() - heard_ms + 1_000 * (self.stalls - stalls)
                assert silent_ms >= SESSION_MS - 2, f"{event}: silent for {silent_ms} ms"
        elif isinstance(event, OffsetExpired):
            self.faults["offsets expired"] += 1
            check_expired(self.durable, event, self.latest_wall_ms, self.retention_ms)

    def check_node(self, node: Node, group_id: str) -> None:
        """Check that the live state of a group's shard and of the cluster shard equals a replay,
        and that nothing in them should have ended by now.
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
        """Check that what the shard holds is durable, and that no other owner has written since."""
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
        """Check every group that was ever named. Stop at the first failure."""
        named = {op.request.group_id or "" for op in self.history}
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
        """Check that a load returns what the log says, and that the log is complete."""
        (node,) = self.nodes.values()
        loaded, cluster = await self._load(node)
        self._check_cluster(cluster)
        for shard_id, again in loaded.items():
            self._check_ends(shard_id, again)
            for group in saved_groups(again).values():
                wanted = self.durable.saved.get(group.group_id)
                assert group == wanted, f"loaded {group}, stored {wanted}"
        for group_id, stored in self.durable.saved.items():
            again = loaded[shard_of(group_id, SHARDS)]
            assert again.saved(group_id) == stored, f"not loaded: {stored}"
        check_log(self.backend.events(), self.durable.events)

    async def _load(self, node: Node) -> tuple[dict[int, Shard], ClusterShard]:
        """Load every shard as the runtime does, with nothing in flight. Offsets expire and sessions
        end even without requests. Their records gather until the load has ended.
        """
        limits = self.config_of("again")
        cluster = ClusterShard(limits)
        loaded = {n: Shard(n, limits, node.topics.image) for n in range(SHARDS)}
        lanes = node.coordinator._owner.lanes
        for lane in lanes:
            await lane.pause()
        position = self.durable.position
        async for shard_id, records in node.store.inner.load([*range(CLUSTER_SHARD, SHARDS)]):
            for record in records:
                (cluster if shard_id == CLUSTER_SHARD else loaded[shard_id]).apply(record)
        assert self.durable.position == position, "written while it was read"
        for lane in lanes:
            lane.end_pause()
        return loaded, cluster


async def _end(node: Node) -> None:
    with suppress(Exception):
        await node.coordinator.stop(10)
    node.clock.stop()
