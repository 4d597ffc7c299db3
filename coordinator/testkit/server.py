"""A coordinator for other people's tests: in their process, in memory, on a free loopback port.

Real clients speak the real protocol to it; what is not here is a process, an HTTP port, a file and
the three seconds for which a broker waits before the first generation of a group. Nothing of the
command line or of HTTP is imported.

    async with GroupkeeperServer(topics={"orders": 12}) as server:
        consumer = AIOKafkaConsumer("orders", bootstrap_servers=server.bootstrap, group_id="g")

    with SyncGroupkeeperServer(topics={"orders": 12}) as server:
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g"})

Both can be made to suffer: ``advance``, ``evict``, ``fail_storage``, ``delay``.

Long because it is the whole API of the test server, with and without a loop.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics, mint_topic_id
from groupkeeper.coordinator.core.deadlines import NEXT_PORTION_MS
from groupkeeper.coordinator.core.requests import (
    ChangeTopics,
    Client,
    EndSession,
    Heartbeat,
    NewTopic,
    TopicChange,
)
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.embed.messages import (
    OffsetCommitData,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.coordinator.testkit.faults import (
    MAX_MS,
    Delays,
    FailingStorage,
    Fault,
    FaultGate,
    FaultyConnection,
    MovableClock,
    Nobody,
)
from groupkeeper.coordinator.testkit.loop_thread import LoopThread
from groupkeeper.coordinator.testkit.options import ServerOptions
from groupkeeper.coordinator.testkit.refusals import (
    Offsets,
    TestingError,
    check,
    checked_offsets,
    member_id_of,
    refusals,
)
from groupkeeper.coordinator.testkit.turns import LifeTurns
from groupkeeper.storage.host_values import int32, int64, text, whole_number
from groupkeeper.storage.segment_lines import EventDict

__all__ = [
    "GroupkeeperServer",
    "Offsets",
    "ServerOptions",
    "SyncGroupkeeperServer",
    "TestingError",
]

DRAIN_MS: Final = 1_000
"""What a stop may take; memory needs none of it."""

MAX_STEPS: Final = 1_000
"""In which time advances for members that heartbeat all the while."""

LOADED_STEP_S: Final = 0.005
"""How often a call that needs every shard looks whether they are loaded."""

REPLIES_S: Final = 0.2
"""For replies that are on their way when a server stops."""

_NOT_RUNNING: Final = "the server does not run: it was not started, or it was stopped"
_CLIENT: Final = Client("groupkeeper-testing", "127.0.0.1", "User:ANONYMOUS")


class GroupkeeperServer:
    """The coordinator on a loopback port, in the running loop."""

    def __init__(self, topics: Mapping[str, int] | None = None, **options: Any) -> None:
        """Prepare; ``options`` are those of ``ServerOptions``. Nothing runs before ``start``."""
        self.options = ServerOptions(topics={} if topics is None else topics, **options)
        self._clock = MovableClock()
        self._storage = FailingStorage(self._clock.wall_ms)
        self._delays = Delays()
        self._gate = FaultGate()
        self._port = self.options.port
        self._coordinator: GroupCoordinator | None = None
        self._kafka: KafkaServer | None = None
        self._turns = LifeTurns(lambda: self._coordinator is not None)

    async def __aenter__(self) -> GroupkeeperServer:
        """Start it."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop it."""
        await self.stop()

    @property
    def port(self) -> int:
        """The port; kept over ``restart``."""
        if not self._port:
            raise RuntimeError(_NOT_RUNNING)
        return self._port

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for a client's ``bootstrap.servers``."""
        host = self.options.host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def coordinator(self) -> GroupCoordinator:
        """The coordinator itself, for what a test wants to ask without a wire; RuntimeError where
        the server does not run.
        """
        if self._coordinator is not None:
            return self._coordinator
        raise RuntimeError(_NOT_RUNNING)

    # --- Life -------------------------------------------------------------------------------------

    # Starts and stops happen one after another, in the order in which they were called.

    async def start(self) -> None:
        """Serve; on return the first request is answered. OSError where its port is taken. Who
        cancels it is left with a server that does not run.
        """
        starting = self._turns.take(self._begin)
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            if starting.cancel():
                await asyncio.wait([starting])
            elif not starting.cancelled() and starting.exception() is None:
                await self.stop()
            raise

    async def stop(self) -> None:
        """End it: what is parked is answered NOT_COORDINATOR, connections are closed, and every
        fault is undone. Time that has passed stays passed, over a ``restart`` too. Where it is
        cancelled it goes on by itself, and another ``stop`` waits for its end.
        """
        await asyncio.shield(self._turns.take(self._end))

    async def restart(self) -> None:
        """Stop and start on the same port, with everything that was acknowledged. Where it is
        cancelled it goes on by itself.
        """
        await asyncio.shield(self._turns.take(self._begin_again))

    async def _begin(self) -> None:
        if self._coordinator is not None:
            raise RuntimeError("the server runs already: it was started twice")
        options = self.options
        topics = Topics(ConfiguredTopic(name, count) for name, count in options.topics.items())
        coordinator = GroupCoordinator(
            self._storage, options.coordinator_config(), topics, clock=self._clock
        )
        services = Services(
            coordinator=coordinator,
            topics=topics,
            node_id=options.node_id,
            cluster_id=options.cluster_id,
            auto_create_topics=options.auto_create_topics,
            num_partitions=options.num_partitions,
        )
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        sock = socket.create_server((options.host, self._port), family=family)
        sock.setblocking(False)
        self._port = sock.getsockname()[1]
        self._coordinator = coordinator
        self._clock.start()
        try:
            await coordinator.start()
            self._kafka = KafkaServer(
                services,
                ServerLimits(),
                make_connection=partial(FaultyConnection, delays=self._delays, gate=self._gate),
            )
            await self._kafka.start(sock)
        except BaseException:
            sock.close()
            await self._end()
            raise

    async def _end(self) -> None:
        self._storage.heal()
        self._delays.end()
        kafka, coordinator = self._kafka, self._coordinator
        self._kafka = self._coordinator = None
        if kafka is not None:
            kafka.stop_accepting()
        try:
            if coordinator is not None:
                await coordinator.stop(DRAIN_MS)
            if kafka is not None:
                await kafka.wait_answered(REPLIES_S)
        finally:
            if kafka is not None:
                kafka.close_all()
            self._clock.stop()

    async def _begin_again(self) -> None:
        _ = self.coordinator  # it runs
        await self._end()
        await self._begin()

    # --- What a test sets up and looks at ---------------------------------------------------------

    async def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic, or let one grow to that many partitions."""
        name, partitions = text("name", name), whole_number("partitions", partitions, least=1)
        coordinator = await self._loaded()
        topics = coordinator.topics
        assert topics is not None
        if name in topics.image.by_name:
            request = ChangeTopics(_CLIENT, grow=((name, partitions),))
        else:
            request = ChangeTopics(_CLIENT, create=(NewTopic(name, partitions, mint_topic_id()),))
        result = await coordinator.ask(request)
        check(result.error, name)
        change: TopicChange
        for change in (*result.created, *result.grown):
            check(change.error, change.message or name)

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Commit as an administrator does, to groups without members: a test begins in mid-life."""
        by_topic: dict[str, dict[int, OffsetCommitData]] = {}
        for (topic, partition), offset in checked_offsets(offsets).items():
            data = OffsetCommitData(int64(f"the offset of {topic} {partition}", offset))
            by_topic.setdefault(topic, {})[int32("partition", partition)] = data
        request = OffsetCommitRequest(group_id=group, offsets=by_topic, client_id=_CLIENT.client_id)
        coordinator = await self._loaded()
        response = await coordinator.commit_offsets(request)
        for name, answered in response.errors.items():
            for partition, error in answered.items():
                check(error, f"{group}: {name} {partition}")

    async def committed(self, group: str) -> Offsets:
        """Return every committed offset of a group; empty for one that is not known."""
        request = OffsetFetchRequest(group_id=text("group", group))
        coordinator = await self._loaded()
        with refusals(group):
            fetched = await coordinator.fetch_offsets(request)
        return {
            (name, partition): each.offset
            for name, partitions in fetched.offsets.items()
            for partition, each in partitions.items()
        }

    def events(self, group: str) -> list[EventDict]:
        """Return what happened to a group, oldest first (docs/reference/events.md)."""
        group = text("group", group)
        self._check_runs()
        return [event for event in self._storage.events() if event["group"] == group]

    # --- Faults -----------------------------------------------------------------------------------

    async def advance(self, ms: int, *, heartbeats: bool = False) -> None:
        """Let time pass at once: sessions and rebalances end, offsets expire, each at its moment.

        What clients send meanwhile waits for the return. Nobody heartbeats, so sessions shorter
        than ``ms`` end, the living ones' too; ``heartbeats=True`` lets all members heartbeat all
        the while. At most ten years. On return everything that was due has happened and is in
        ``events``; it is durable, but for evictions: see ``evict``.

        Raises TestingError, at once, where the storage fails: what was due then did not happen.
        """
        ms = whole_number("ms", ms, least=0, most=MAX_MS)
        if not isinstance(heartbeats, bool):
            raise TypeError(f"heartbeats must be a bool, not {heartbeats!r}")
        coordinator = await self._loaded()
        failures = self._storage.failures
        with self._clock.standing(), self._gate.closed():  # what is due together stays together
            left_ms, at_ms = ms, self._next_ms(coordinator)
            while left_ms > 0 or at_ms <= NEXT_PORTION_MS:
                living = await _members(coordinator) if heartbeats else []
                step_ms = max(0, at_ms)
                if left_ms > 0:  # the rest of a long work takes a little longer
                    least_ms = ms // MAX_STEPS if heartbeats else 0  # a session is always due
                    step_ms = min(left_ms, max(step_ms, least_ms))
                    left_ms -= step_ms
                self._clock.move(step_ms)
                for heartbeat in living:
                    coordinator.submit(heartbeat, Nobody())
                await coordinator.clock_moved()
                self._check_stored(failures, f"advance({ms})")
                self._check_same(coordinator, f"advance({ms})")
                at_ms = self._next_ms(coordinator)

    async def evict(self, group: str, member: str) -> None:
        """End the session of one member now, as if it had been silent for too long; the others
        rebalance. ``member`` is its member id, its ``group.instance.id``, or a ``client.id`` that
        no other member of the group has. On return it has happened and is in ``events``. It is
        durable once the others have rebalanced: as in Kafka, a restart or a failure of the storage
        before that brings the member back.

        Raises TestingError where there is no such member, or more than one, and where the storage
        fails: then it did not happen.
        """
        group, member = text("group", group), text("member", member)
        coordinator = await self._loaded()
        with refusals(group):
            found = await coordinator.get_group(group)
        member_id = member_id_of(group, found, member)
        failures = self._storage.failures
        error = await coordinator.ask(EndSession(group, member_id))
        check(error, f"{group}: {member}")
        await coordinator.clock_moved()
        self._check_stored(failures, f"evict({group}, {member})")

    def fail_storage(self, appends: int | None = None) -> Fault:
        """Let the storage fail: nothing, not even an event, can be written until the fault is
        undone, or until that many writes have failed. Clients see NOT_COORDINATOR, then
        COORDINATOR_LOAD_IN_PROGRESS for some milliseconds; nobody is evicted.

            with server.fail_storage():
                ...
        """
        self._check_runs()
        return self._storage.fail(appends)

    def delay(self, api: str, ms: int) -> Fault:
        """Hold back every answer of one API, by Kafka's name (``"OffsetCommit"``), for so long of
        real time. What the request does is done at once. What is held back when the fault is undone
        goes out then.
        """
        self._check_runs()
        return self._delays.add(api, ms)

    async def _loaded(self) -> GroupCoordinator:
        """Wait for starts and stops that were called before, and until every shard answers: after a
        failure of the storage, some milliseconds.
        """
        self._turns.check_loop()
        await self._turns.ended()
        while True:
            if self.coordinator.is_ready:
                return self.coordinator
            await asyncio.sleep(LOADED_STEP_S)

    def _check_runs(self) -> None:
        self._turns.check_loop()
        _ = self.coordinator

    def _check_stored(self, failures: int, what: str) -> None:
        if self._storage.failures > failures:
            raise TestingError(f"NOT_COORDINATOR: the storage failed in {what}")

    def _check_same(self, coordinator: GroupCoordinator, what: str) -> None:
        if coordinator is not self._coordinator:
            raise TestingError(f"NOT_COORDINATOR: the server was stopped in {what}")

    def _next_ms(self, coordinator: GroupCoordinator) -> int:
        at_ms = coordinator.next_deadline()
        return MAX_MS if at_ms is None else at_ms - self._clock.now().monotonic_ms


class SyncGroupkeeperServer:
    """The same for tests without a loop: it runs in a thread and a loop of its own."""

    def __init__(self, topics: Mapping[str, int] | None = None, **options: Any) -> None:
        """Prepare; ``options`` are those of ``ServerOptions``."""
        self._server = GroupkeeperServer(topics, **options)
        self._thread = LoopThread("groupkeeper", _NOT_RUNNING, self._server.stop)
        self._turning = threading.RLock()
        """Held by who starts or stops: a stop beside a stop waits for it."""

    def __enter__(self) -> SyncGroupkeeperServer:
        """Start it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()

    @property
    def port(self) -> int:
        """The port; kept over ``restart``."""
        return self._server.port

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for a client's ``bootstrap.servers``."""
        return self._server.bootstrap

    def start(self) -> None:
        """Serve; on return the first request is answered."""
        with self._turning:
            if self._thread.runs:
                raise RuntimeError("the server runs already: it was started twice")
            try:
                self._thread.start()
                self._thread.do(self._server.start())
            except BaseException:
                self._thread.end()
                raise

    def stop(self) -> None:
        """End it, and its thread. Who waits for something in another thread gets a RuntimeError."""
        with self._turning:
            self._thread.end()

    def restart(self) -> None:
        """Stop and start on the same port, with everything that was acknowledged."""
        with self._turning:
            self._thread.do(self._server.restart())

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic, or let one grow to that many partitions."""
        self._thread.do(self._server.create_topic(name, partitions))

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commit as an administrator does, to groups without members: a test begins in mid-life."""
        self._thread.do(self._server.commit(group, offsets))

    def committed(self, group: str) -> Offsets:
        """Return every committed offset of a group; empty for one that is not known."""
        return self._thread.do(self._server.committed(group))

    def events(self, group: str) -> list[EventDict]:
        """Return what happened to a group, oldest first (docs/reference/events.md)."""
        return self._thread.call(lambda: self._server.events(group))

    def advance(self, ms: int, *, heartbeats: bool = False) -> None:
        """Let time pass at once; see ``GroupkeeperServer.advance``."""
        self._thread.do(self._server.advance(ms, heartbeats=heartbeats))

    def evict(self, group: str, member: str) -> None:
        """End the session of one member now; see ``GroupkeeperServer.evict``."""
        self._thread.do(self._server.evict(group, member))

    def fail_storage(self, appends: int | None = None) -> Fault:
        """Let the storage fail; see ``GroupkeeperServer.fail_storage``."""
        return self._fault(lambda: self._server.fail_storage(appends))

    def delay(self, api: str, ms: int) -> Fault:
        """Hold back the answers of one API; see ``GroupkeeperServer.delay``."""
        return self._fault(lambda: self._server.delay(api, ms))

    def _fault(self, begin: Callable[[], Fault]) -> Fault:
        inner = self._thread.call(begin)

        def undo() -> None:
            with suppress(RuntimeError):  # the server has stopped, and every fault is undone then
                self._thread.call(inner.undo)

        return Fault(undo)


async def _members(coordinator: GroupCoordinator) -> list[Heartbeat]:
    """A heartbeat for each member of each group."""
    with refusals("a heartbeat for all members"):
        groups = await coordinator.list_groups()
    return [
        Heartbeat(
            group.group_id, group.generation_id, each.member_id, each.group_instance_id, _CLIENT
        )
        for group in groups
        for each in group.members.values()
    ]
