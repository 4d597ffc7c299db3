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
from typing import Any, Final, TypeAlias

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.consumer.assignment_work import AssignmentWork, compute
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    Event,
    GroupConverted,
    MemberEvicted,
    MemberJoin,
    MemberLeave,
)
from groupkeeper.coordinator.core.group_type import GroupType
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
"""The longest times of computations. A daemon ends a computation earlier. The last of these times
is longer than a session and than the time to give up partitions."""

POLICIES: Final = {3: "upgrade", 7: "downgrade", 11: "disabled"}
"""Seed modulo 16 -> the migration policy of its world. All other worlds allow both conversions."""

UPGRADES: Final = ("bidirectional", "upgrade")
DOWNGRADES: Final = ("bidirectional", "downgrade")
"""The policies that allow a downgrade. ``UPGRADES`` has those that allow an upgrade."""

Partition = tuple[str, int]
AnyClient: TypeAlias = ConsumerClient | ClassicClient


class FlakyMemory(MemoryOffsetStorage):
    """Memory that outlives the processes, and fails at random."""

    def __init__(self, world: ConsumerWorld) -> None:
        super().__init__()
        self._world = world
        self.is_dead = False
        """True while no process runs. Calls of the killed process then have no effect."""

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
            self._check_protocols()
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

    def _check_protocols(self) -> None:
        """Check that each consumer group has members of the protocols that its policy allows."""
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup) and group.members:
                policy = self.world.policy
                is_mixed = any(m.fields.classic is not None for m in group.members.values())
                assert policy != "disabled" or not is_mixed, f"{group.group_id} is mixed"
                assert policy not in DOWNGRADES or not _is_left_alone(group), (
                    f"{group.group_id} has only classic members, and was not converted"
                )

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
    """A request, and its one answer."""

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
    """The parts of the world of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.problems: list[str] = []
        self.seen: Counter[str] = Counter()
        self.trouble = 0.0
        """The probability that an append fails, before or after it is stored."""
        self.is_at_peace = False
        self.life = 0
        """The number of starts and ends of processes so far. It is even while no process runs."""
        self.clients: list[AnyClient] = []
        self.partitions = {"orders": 6, "extra": 3}
        self.is_mixed = seed % 2 == 1
        """Clients of both protocols are in the same groups."""
        self.is_uniform = False
        """All clients subscribe to the same topics, whose partitions do not change. Then no group
        has an excuse for a partition that nobody reads."""
        self.policy = POLICIES.get(seed % 16, "bidirectional")
        """The migration policy of each process."""
        self.replaces_last = seed % 8 == 5 or seed % 16 in POLICIES
        """A classic client comes in the place of the last member of the consumer protocol."""
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
        self._holders: dict[tuple[str, Partition], AnyClient] = {}
        self._replacements: dict[str, int] = {}
        """Static member that came in the place of another one -> the generation or epoch then."""
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
            consumer_migration_policy=self.policy,
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
        """Kill the process at any point. Its later answers are ignored."""
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

    def took(self, client: AnyClient, partitions: Collection[Partition]) -> None:
        """Note that a client begins to consume. Nobody else may do so."""
        for partition in partitions:
            holder = self._holders.setdefault((client.group_id, partition), client)
            if holder is not client:
                self.problems.append(
                    f"{partition} is held by {holder.member_id} and {client.member_id}"
                )

    def released(self, client: AnyClient, partitions: Collection[Partition]) -> None:
        """Note that a client has stopped to consume."""
        for partition in partitions:
            if self._holders.get((client.group_id, partition)) is client:
                del self._holders[client.group_id, partition]

    def durable(self, events: Sequence[Event]) -> None:
        """Note from the events which members were removed or replaced, and which groups were
        converted. A removed member holds no partitions from now on, even before it learns of its
        removal.
        """
        for event in events:
            if isinstance(event, MemberEvicted | MemberLeave):
                self.seen[type(event).__name__] += 1
                for client in self.clients:
                    if client.member_id == event.member_id:
                        client.removed()
            elif isinstance(event, MemberJoin) and event.replaces is not None:
                self._replacements[event.member_id] = event.generation_id
            elif isinstance(event, GroupConverted):
                self._converted(event, events)

    def _converted(self, event: GroupConverted, events: Sequence[Event]) -> None:
        """Check that the policy allows a conversion. ``events`` are those of the same step."""
        how = " empty" if not event.members else ""
        if any(isinstance(each, MemberJoin) and each.replaces is not None for each in events):
            how = " by replacement"
        self.seen[f"converted to {event.to_type}{how}"] += 1
        allowed = UPGRADES if event.to_type == GroupType.CONSUMER.value else DOWNGRADES
        if event.members and self.policy not in allowed:
            self.problems.append(f"converted under the policy {self.policy}: {event}")

    def refused(self, client: AnyClient) -> None:
        """Note that a client may not join a group of the other type. Only a policy forbids it."""
        self.seen[f"{type(client).__name__} refused"] += 1
        if not self._may_be_refused(client):
            self.problems.append(f"{client.member_id} is refused under the policy {self.policy}")

    def _may_be_refused(self, client: AnyClient) -> bool:
        """Return True if the policy keeps the client out of groups of the other type."""
        if isinstance(client, ConsumerClient):
            return self.policy not in UPGRADES
        return self.policy == "disabled"

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
        """Raise AssertionError if a check has failed so far."""
        assert not self.problems, self.problems[:3]
        for client in self.clients:
            failure = client.failure()
            if failure is not None:
                raise failure
        assert self.coordinator.stats.bugs == 0
        assert self.coordinator.stats.tickets_failed == 0

    def check_peace(self) -> None:
        """Check that each group is Stable or Empty, and that its clients hold every partition once.
        (Partitions may be unassigned while the policy forbids a downgrade.)
        """
        for group in self.groups():
            everyone = [c for c in self.clients if c.group_id == group.group_id]
            clients = [c for c in everyone if c.member_id in group.members]
            assert {c.member_id for c in clients} == set(group.members), group.group_id
            for client in everyone:
                if client not in clients:
                    self._check_kept_out(group, client)
            if isinstance(group, ConsumerGroup):
                for client in clients:
                    member = group.members[client.member_id]
                    has = {(t, n) for t, parts in member.current.assigned.items() for n, _ in parts}
                    assert client.held == has, f"{client.member_id} holds {client.held}, has {has}"
            held = [partition for client in clients for partition in client.held]
            assert len(held) == len(set(held))
            if not _is_left_alone(group):
                self._check_all_held(group, clients, set(held))
                assert group.state.value in ("Stable", "Empty"), f"{group.group_id}: {group.state}"

    def _check_kept_out(self, group: ClassicGroup | ConsumerGroup, client: AnyClient) -> None:
        """Check why a client is not a member: the group must have the other type, and the policy
        must forbid the conversion.
        """
        has_own_type = isinstance(group, ConsumerGroup) == isinstance(client, ConsumerClient)
        is_kept_out = not has_own_type and len(group.members) > 0 and self._may_be_refused(client)
        assert is_kept_out, f"{client.member_id} is no member of {group.group_id}"
        assert not client.held, f"{client.member_id} is no member, and holds {client.held}"

    def _check_all_held(
        self,
        group: ClassicGroup | ConsumerGroup,
        clients: Sequence[AnyClient],
        held: set[Partition],
    ) -> None:
        """Check that the clients hold what they subscribe to.

        In a Stable classic group, a client that comes in the place of a static member begins no
        rebalance, even if it subscribes to other topics (docs/spec/edge-cases.md#edge-55). So until
        the next rebalance the group has the assignment of the former subscriptions. And if the
        leader was replaced, or does not know that it leads, nobody sees that topics have changed.
        """
        image = self.coordinator._owner.slots[0].shard.image  # type: ignore[union-attr]
        wanted = _partitions(image, clients)
        if held == wanted or not clients:
            return
        is_excused = isinstance(group, ClassicGroup) and not self.is_uniform
        assert is_excused, f"{group.group_id}: {held}, not {wanted}"
        newcomers = [
            client
            for client in clients
            if self._replacements.get(client.member_id) == group.generation_id
        ]
        others = [client for client in clients if client not in newcomers]
        if any(isinstance(each, ClassicClient) and each.leads for each in others):
            topics = {topic for topic, _ in _partitions(image, others)}
            odd = {(topic, n) for topic, n in held ^ wanted if topic in topics or not newcomers}
            assert not odd, f"{group.group_id}: {held}, not {wanted}"

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


def _is_left_alone(group: ClassicGroup | ConsumerGroup) -> bool:
    """Return True if a consumer group has only classic members, because the policy forbids the
    downgrade. Only a join gives it a new target (docs/spec/migration.md#downgrade).
    """
    members = [*group.members.values()]
    return (
        isinstance(group, ConsumerGroup)
        and len(members) > 0
        and all(m.fields.classic is not None for m in members)
    )


def _partitions(image: TopicImage, clients: Sequence[AnyClient]) -> set[Partition]:
    """Return the partitions of all topics that the clients subscribe to."""
    read = [i for i in image.by_name.values() if any(c.reads(i.name) for c in clients)]
    return {(info.topic_id, number) for info in read for number in range(info.partitions)}


def _where(error: AssertionError) -> str:
    """Return the message of a failed invariant, and the line of its assertion."""
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
