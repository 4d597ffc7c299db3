"""A world of consumer groups from one seed: one process at a time, its store, its members, and the
computations that it asks for.

After every step of a shard its invariants are checked. No partition is held by two clients, as they
see it themselves. What is stored is what was live.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.consumer.assignment_work import AssignmentWork, compute
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import Event, MemberEvicted, MemberLeave
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.records import SavedGroup
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.consumer import ConsumerGroupHeartbeat
from groupkeeper.coordinator.core.requests.membership import Heartbeat
from groupkeeper.coordinator.core.requests.topics import ChangeTopics, NewTopic
from groupkeeper.coordinator.core.shard import Shard
from groupkeeper.coordinator.core.step import Step
from groupkeeper.coordinator.core.work import Work, WorkFailed, WorkFailure, WorkOutcome
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.runtime.workshop import Workshop
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.base import ShardAppend, ShardId, StorageError, StoreIdentity
from tests.helpers.core.invariants import check, spelled_out
from tests.helpers.runtime.virtual_loop import VirtualClock, virtual_timer
from tests.simulation.classic_clients import ClassicClient
from tests.simulation.client_codec import can_encode
from tests.simulation.consumer_clients import ConsumerClient, Disconnected
from tests.simulation.gate import Gate

SHARDS = 2
ADMINISTRATOR = Client("admin", "/10.0.0.2")
WAITS_MS = 120_000
"""The longest that a heartbeat may wait: for appends, a load, and a computation."""
COMPUTATION_S = (0.0, 0.05, 1.0, 10.0, 70.0)
"""How long computations take at most. A daemon ends them earlier; a session and the time to give up
partitions are shorter than the last one."""

Partition = tuple[str, int]


class FlakyMemory(MemoryOffsetStorage):
    """Memory that outlives the processes, and fails at random."""

    def __init__(self, world: ConsumerWorld) -> None:
        super().__init__()
        self._world = world
        self.is_dead = False
        """True while no process runs: the last one reaches nothing any more."""

    async def open(self, identity: StoreIdentity) -> None:
        self._is_open = False
        self._owners.clear()
        await super().open(identity)

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        world = self._world
        await asyncio.sleep(world.random.choice((0.0, 0.0005, 0.01, 0.01 + 3 * world.trouble)))
        self._fail("before")
        fenced = await super().append(items)
        for item in items:
            if item.shard not in fenced:
                for batch in item.batches:
                    world.durable(batch.events)
        self._fail("after")
        return fenced

    def _fail(self, when: str) -> None:
        if self.is_dead or self._world.random.random() < self._world.trouble:
            self._world.seen[f"append fails {when}"] += 1
            raise StorageError("the disk is gone")


class CheckedConsumerShard(Shard):
    """Works like its base. Raises AssertionError for every rule that does not hold afterwards,
    which the runtime counts as a bug.
    """

    def __init__(
        self, shard_id: int, limits: CoreLimits, image: TopicImage, world: ConsumerWorld
    ) -> None:
        super().__init__(shard_id, limits, image, world.coordinator._census)
        self.world = world
        self._is_loaded = False
        self._epochs: dict[str, tuple[ConsumerGroup, tuple[int, int]]] = {}
        """Group -> its epoch, and that of its target, after the last step."""

    def handle(self, request: Any, ticket: Any, now: Now) -> Step:
        step = self._checked(super().handle(request, ticket, now))
        for reply in spelled_out(step, ticket).replies:
            if not reply.waits:
                self._check_hurried(request, reply.result)
        return step

    def expire(self, now: Now) -> Step:
        return self._checked(super().expire(now))

    def work_done(self, work: Work, outcome: WorkOutcome, now: Now) -> Step:
        return self._checked(super().work_done(work, outcome, now))

    def topics_changed(self, image: TopicImage, now: Now) -> Step:
        return self._checked(super().topics_changed(image, now))

    def loaded(self, now: Now) -> Step:
        step = super().loaded(now)
        self._is_loaded = True
        return self._checked(step)

    def resumed(self, stopped_ms: int, now: Now) -> Step:
        return self._checked(super().resumed(stopped_ms, now))

    def _checked(self, step: Step) -> Step:
        if not self._is_loaded:
            return step
        try:
            check(self)
            self._check_epochs()
        except AssertionError as error:
            self.world.problems.append(_where(error))
        return step

    def _check_epochs(self) -> None:
        """Check that no epoch goes back."""
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                now = group.epochs.group, group.epochs.target
                known, was = self._epochs.get(group.group_id, (group, now))
                if known is group:  # and not another one, of the same name
                    goes_on = was[0] <= now[0] and was[1] <= now[1]
                    assert goes_on, f"{group.group_id}: from epochs {was} back to {now}"
                self._epochs[group.group_id] = group, now

    def _check_hurried(self, request: Any, result: Any) -> None:
        """Check that an answer that does not wait for the store tells the client nothing new."""
        if isinstance(request, Heartbeat):
            is_told_later = result in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
            if is_told_later:
                return
        is_old = (
            isinstance(request, ConsumerGroupHeartbeat)
            and result.error is ErrorCode.NONE
            and result.member_epoch == request.member_epoch
            and result.assignment is None
        )
        if not is_old:
            self.world.problems.append(f"does not wait for its records: {result}")


class MoodyWorkers:
    """Computes late, or not at all."""

    def __init__(self, world: ConsumerWorld, workshop: Workshop) -> None:
        self._world = world
        self._workshop = workshop

    def begin(self, work: Work, done: Callable[[WorkOutcome], None]) -> None:
        if not isinstance(work, AssignmentWork):
            self._workshop.begin(work, done)
            return
        random, world = self._world.random, self._world
        world.seen["computations elsewhere"] += 1
        outcome: WorkOutcome = compute(work.assignor, work.spec, work.names)
        if world.is_unlucky(0.3):
            failure = random.choice([WorkFailure.DIED, WorkFailure.TIMED_OUT, WorkFailure.REFUSED])
            outcome = WorkFailed(failure, "as it happens")
            world.seen[f"computation {failure.value}"] += 1
        delay_s = random.choice(COMPUTATION_S[: 3 if world.is_at_peace else None]) * random.random()
        asyncio.get_running_loop().call_later(delay_s, done, outcome)


class Call:
    """A request on its way, and its one answer."""

    def __init__(self, world: ConsumerWorld, request: Any) -> None:
        self.request = request
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._world = world
        self._life = world.life
        self._is_answered = False

    def resolve(self, result: Any) -> None:
        if self._life != self._world.life:
            return  # said by a process that is dead
        if self._is_answered:
            self._world.problems.append(f"answered twice: {self.request}")
        self._is_answered = True
        error = result if isinstance(result, ErrorCode) else result.error
        self._world.seen[f"{type(self.request).__name__} {error.name}"] += 1
        if not self.future.done():  # its client may be gone
            self.future.set_result(result)


class ConsumerWorld:
    """Everything that one seed makes."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.problems: list[str] = []
        self.seen: Counter[str] = Counter()
        self.trouble = 0.0
        """How likely an append fails, before or after it is stored."""
        self.is_at_peace = False
        self.life = 0
        """The number of the process. Even while there is none."""
        self.clients: list[ConsumerClient | ClassicClient] = []
        self.partitions = {"orders": 6, "extra": 3}
        self.is_mixed = seed % 2 == 1
        """Clients of both protocols are in the same groups."""
        self.computes_elsewhere = random.random() < 0.5
        self.follows_later = seed % 4 < 2
        """Each target counts as large."""
        self.is_wired = seed % 3 > 0
        """Requests and answers pass a connection as bytes."""
        self.assignment_interval_ms = random.choice((0, 1_000))
        self.storage = FlakyMemory(self)
        self.coordinator: GroupCoordinator
        self.gate: Gate
        self.topics: Topics
        self._holders: dict[tuple[str, Partition], ConsumerClient | ClassicClient] = {}
        self._pending: list[Call] = []
        self._minted = 0

    # --- the process ---

    async def start(self) -> None:
        """Begin the life of a process."""
        self.storage.is_dead = False
        self.life += 1
        config = CoordinatorConfig(
            shards=SHARDS,
            append_timeout_ms=2_000,
            retry_min_ms=50,
            retry_max_ms=500,
            consumer_assignment_interval_ms=self.assignment_interval_ms,
            rebalance_protocols=("classic", "consumer"),
        )
        topics = self.topics = Topics(
            [ConfiguredTopic(name, count) for name, count in self.partitions.items()],
            lambda: self.mint("topic").ljust(22, "A"),
        )
        coordinator = self.coordinator = GroupCoordinator(
            self.storage, config, topics, clock=VirtualClock(), timer=virtual_timer
        )
        make = partial(CheckedConsumerShard, world=self)
        recovery = coordinator._owner.recovery
        recovery._makers = {**recovery._makers, **dict.fromkeys(range(SHARDS), make)}
        recovery.workers = MoodyWorkers(self, coordinator.workshop)
        self.gate = Gate(coordinator, topics, self.random)
        await coordinator.start()

    async def kill(self) -> None:
        """Kill the process at any point. Nothing that it says is heard any more."""
        self.seen["kill"] += 1
        self.storage.is_dead = True
        self.life += 1
        for call in self._pending:
            if not call.future.done():
                call.future.set_exception(Disconnected())
                call.future.exception()
        self._pending = []
        await self.coordinator.stop(0)

    async def ask(self, request: Any) -> Any:
        """Send a request. Raises Disconnected if the process dies."""
        if self.life % 2 == 0:
            raise Disconnected
        call = Call(self, request)
        self._pending = [*[each for each in self._pending if not each.future.done()], call]
        if self.is_wired and can_encode(request):
            self.gate.send(request, call)
        else:
            self.coordinator.submit(request, call)
        try:
            async with asyncio.timeout(WAITS_MS / 1000):
                return await call.future
        except TimeoutError:
            self.problems.append(f"no answer to {request}")
            raise Disconnected from None

    async def change_topics(self, **changes: Any) -> None:
        """Create, grow or delete topics."""
        if self.life % 2 == 1:
            request = ChangeTopics(ADMINISTRATOR, **{"create": (), **changes})
            try:
                result = await self.ask(request)
            except Disconnected:
                return
            if result.error is ErrorCode.NONE:
                self.seen["topics changed"] += 1

    # --- what clients tell ---

    def took(
        self, client: ConsumerClient | ClassicClient, partitions: Collection[Partition]
    ) -> None:
        """Note that a client begins to consume. Nobody else may do so."""
        for partition in partitions:
            holder = self._holders.setdefault((client.group_id, partition), client)
            if holder is not client:
                self.problems.append(
                    f"{partition} is held by {holder.member_id} and {client.member_id}"
                )

    def released(
        self, client: ConsumerClient | ClassicClient, partitions: Collection[Partition]
    ) -> None:
        """Note that a client has stopped to consume."""
        for partition in partitions:
            if self._holders.get((client.group_id, partition)) is client:
                del self._holders[client.group_id, partition]

    def durable(self, events: Sequence[Event]) -> None:
        """Learn who was removed: it holds nothing any more, whether it knows that or not."""
        for event in events:
            if isinstance(event, MemberEvicted | MemberLeave):
                self.seen[type(event).__name__] += 1
                for client in self.clients:
                    if client.member_id == event.member_id:
                        client.removed()

    def mint(self, prefix: str) -> str:
        """Return a new id."""
        self._minted += 1
        return f"{prefix}-{self._minted}"

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def is_unlucky(self, likelihood: float) -> bool:
        return not self.is_at_peace and self.random.random() < likelihood

    def user_takes_s(self) -> float:
        """Return how long a user needs to give up partitions. Sometimes it is too long."""
        if self.is_unlucky(0.1):
            return self.random.uniform(20, 60)
        return self.random.choice((0.0, 0.0, 1.0, 8.0))

    # --- what must hold ---

    def groups(self) -> list[ClassicGroup | ConsumerGroup]:
        """Return the live groups."""
        return [g for groups in self.coordinator.live_groups() for g in groups.values()]  # type: ignore[misc]

    def topics_by_name(self) -> Mapping[str, TopicInfo]:
        """Return the topics that exist. Clients learn them from Metadata."""
        return self.topics.image.by_name

    def check(self) -> None:
        """Raise AssertionError if something did not hold so far."""
        assert not self.problems, self.problems[:3]
        for client in self.clients:
            failure = client.failure()
            if failure is not None:
                raise failure
        assert self.coordinator.stats.bugs == 0
        assert self.coordinator.stats.tickets_failed == 0

    def check_peace(self) -> None:
        """Check that each group is Stable, and that its clients hold every partition once."""
        image = self.coordinator._owner.slots[0].shard.image  # type: ignore[union-attr]
        for group in self.groups():
            clients = [c for c in self.clients if c.group_id == group.group_id]
            assert {c.member_id for c in clients} == set(group.members), group.group_id
            if isinstance(group, ConsumerGroup):
                for client in clients:
                    member = group.members[client.member_id]
                    has = {(t, n) for t, parts in member.current.assigned.items() for n, _ in parts}
                    assert client.held == has, f"{client.member_id} holds {client.held}, has {has}"
            infos = [i for i in image.by_name.values() if any(c.reads(i.name) for c in clients)]
            wanted = {(info.topic_id, n) for info in infos for n in range(info.partitions)}
            held = [partition for client in clients for partition in client.held]
            assert len(held) == len(set(held))
            assert not clients or set(held) == wanted, f"{group.group_id}: {held}"
            assert group.state.value in ("Stable", "Empty"), f"{group.group_id}: {group.state}"

    async def check_stored(self) -> None:
        """End the process cleanly. Check that a load returns what was live."""
        for lane in self.coordinator._owner.lanes:
            await lane.flush()
        live: dict[str, SavedGroup | None] = {}
        for slot in self.coordinator._owner.slots.values():
            shard = slot.shard
            if isinstance(shard, Shard):
                live |= {group_id: shard.saved(group_id) for group_id in shard.groups}
        await self.coordinator.stop()
        await self.storage.open(StoreIdentity("groupkeeper", SHARDS))
        loaded: dict[str, SavedGroup | None] = {}
        for shard_id in range(SHARDS):
            shard = Shard(shard_id, CoreLimits(), TopicImage.of())
            async for _, records in self.storage.load([shard_id]):
                for record in records:
                    shard.apply(record)
            loaded |= {group_id: shard.saved(group_id) for group_id in shard.groups}
        assert _comparable(loaded) == _comparable(live)


def _where(error: AssertionError) -> str:
    """Return what an invariant says, and the line that says it."""
    return f"{error}: {traceback.extract_tb(error.__traceback__)[-1].line}"


def _comparable(groups: dict[str, SavedGroup | None]) -> dict[str, Any]:
    """Return groups in a form that does not depend on the order of members."""
    found: dict[str, Any] = {}
    for group_id, saved in groups.items():
        metadata: Any = saved.metadata if saved is not None else None
        if metadata is not None and hasattr(metadata, "patterns"):
            members = {
                m.fields.member_id: (m.fields, metadata.subscriptions[m.subscription], m.current)
                for m in metadata.members
            }
            targets = {m.fields.member_id: m.target for m in metadata.members}
            epochs = metadata.epoch, metadata.metadata_hash, metadata.target_epoch
            metadata = members, targets, epochs, metadata.patterns
        found[group_id] = metadata
    return found


def new_topic(world: ConsumerWorld, name: str, partitions: int) -> NewTopic:
    """Return a topic to create."""
    return NewTopic(name, partitions, world.mint("topic").ljust(22, "A"))
