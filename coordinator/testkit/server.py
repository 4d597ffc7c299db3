"""A coordinator for other people's tests: in their process, in memory, on a free loopback port.

Real clients speak the real protocol to it. It has no HTTP port and no file, and starts no process,
except for large assignments. The first generation of a group begins at once, while a broker waits
three seconds for more members. It imports nothing of the command line or of HTTP.

    async with GroupkeeperServer(topics={"orders": 12}) as server:
        consumer = AIOKafkaConsumer("orders", bootstrap_servers=server.bootstrap, group_id="g")

    with SyncGroupkeeperServer(topics={"orders": 12}) as server:
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g"})

Both can inject faults: ``advance``, ``evict``, ``fail_storage``, ``delay``.

This file is long because it is the whole API of the test server, with and without a loop.
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
from groupkeeper.coordinator.core.requests.membership import EndSession
from groupkeeper.coordinator.core.requests.topics import ChangeTopics, NewTopic, TopicChange
from groupkeeper.coordinator.core.wire_values import int32, int64, text, whole_number
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
from groupkeeper.coordinator.testkit.heartbeats import heartbeats as all_heartbeats
from groupkeeper.coordinator.testkit.loop_thread import LoopThread
from groupkeeper.coordinator.testkit.options import ServerOptions
from groupkeeper.coordinator.testkit.refusals import (
    CLIENT,
    Offsets,
    TestingError,
    check,
    checked_offsets,
    member_id_of,
    refusals,
)
from groupkeeper.coordinator.testkit.turns import LifeTurns
from groupkeeper.storage.segment_lines import EventDict

__all__ = [
    "GroupkeeperServer",
    "Offsets",
    "ServerOptions",
    "SyncGroupkeeperServer",
    "TestingError",
]

DRAIN_MS: Final = 1_000
"""How long a stop may take. A memory storage needs almost no time."""

MAX_STEPS: Final = 1_000
"""One ``advance`` with heartbeats has at most about this many steps."""

LOADED_STEP_S: Final = 0.005
"""The interval at which a call that needs every shard checks whether all are loaded."""

REPLIES_S: Final = 0.2
"""How long a stop waits for replies that are not sent yet."""

_NOT_RUNNING: Final = "the server is not running: it was not started, or it was stopped"


class GroupkeeperServer:
    """The coordinator on a loopback port, in the running loop."""

    def __init__(self, topics: Mapping[str, int] | None = None, **options: Any) -> None:
        """Check the options, which are those of ``ServerOptions``. ``start`` opens the port."""
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
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        """The port, which a ``restart`` keeps. Raises RuntimeError before the first start."""
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
        """The coordinator itself, for calls without the network.

        Raises RuntimeError if the server is not running.
        """
        if self._coordinator is not None:
            return self._coordinator
        raise RuntimeError(_NOT_RUNNING)

    # --- Start and stop ---------------------------------------------------------------------------

    # Starts and stops run one after another, in the order of their calls.

    async def start(self) -> None:
        """Start the server; on return it answers requests.

        Raises OSError if the port is in use, and RuntimeError if the server already runs. If the
        call is cancelled, the server is stopped.
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
        """Stop the server, close the connections, and undo every fault.

        Requests that wait, such as a JoinGroup, are answered NOT_COORDINATOR. The clock stays ahead
        by the time that a test has moved it, also after a ``restart``. If the call is cancelled,
        the stop continues, and another ``stop`` waits for its end.
        """
        await asyncio.shield(self._turns.take(self._end))

    async def restart(self) -> None:
        """Stop, and start again on the same port with everything that was acknowledged.

        If the call is cancelled, the restart continues.
        """
        await asyncio.shield(self._turns.take(self._begin_again))

    async def _begin(self) -> None:
        if self._coordinator is not None:
            raise RuntimeError("the server is already running: it was started twice")
        options = self.options
        topics = Topics(ConfiguredTopic(name, count) for name, count in options.topics.items())
        config = options.coordinator_config()
        coordinator = GroupCoordinator(self._storage, config, topics, clock=self._clock)
        services = Services(
            coordinator=coordinator.router,
            topics=topics,
            node_id=options.node_id,
            cluster_id=options.cluster_id,
            auto_create_topics=options.auto_create_topics,
            num_partitions=options.num_partitions,
            serves_consumer_groups=True,
            consumer_assignors=config.consumer_assignors,
            pattern_error=coordinator.workshop.patterns.error,
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
        _ = self.coordinator  # raises if it is not running
        await self._end()
        await self._begin()

    # --- Topics, offsets and events ---------------------------------------------------------------

    async def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic. If it exists, raise its number of partitions to this number."""
        name, partitions = text("name", name), whole_number("partitions", partitions, least=1)
        coordinator = await self._loaded()
        topics = coordinator.topics
        assert topics is not None
        if name in topics.image.by_name:
            request = ChangeTopics(CLIENT, grow=((name, partitions),))
        else:
            request = ChangeTopics(CLIENT, create=(NewTopic(name, partitions, mint_topic_id()),))
        result = await coordinator.ask(request)
        check(result.error, name)
        change: TopicChange
        for change in (*result.created, *result.grown):
            check(change.error, change.message or name)

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Commit offsets as an administrator, for a group without members."""
        by_topic: dict[str, dict[int, OffsetCommitData]] = {}
        for (topic, partition), offset in checked_offsets(offsets).items():
            data = OffsetCommitData(int64(f"the offset of {topic} {partition}", offset))
            by_topic.setdefault(topic, {})[int32("partition", partition)] = data
        request = OffsetCommitRequest(group_id=group, offsets=by_topic, client_id=CLIENT.client_id)
        coordinator = await self._loaded()
        response = await coordinator.commit_offsets(request)
        for name, answered in response.errors.items():
            for partition, error in answered.items():
                check(error, f"{group}: {name} {partition}")

    async def committed(self, group: str) -> Offsets:
        """Return every committed offset of a group; empty if the group is unknown."""
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
        """Return the events of a group, oldest first (docs/reference/events.md)."""
        group = text("group", group)
        self._check_runs()
        return [event for event in self._storage.events() if event["group"] == group]

    # --- Faults -----------------------------------------------------------------------------------

    async def advance(self, ms: int, *, heartbeats: bool = False) -> None:
        """Move the clock ahead by ``ms``, at most ten years, and run everything that becomes due.

        Sessions and rebalances end and offsets expire, each at its own moment. On return all this
        is in ``events``, and durable except for evictions (see ``evict``). Requests that clients
        send during the call wait until it returns.

        With ``heartbeats=True`` all members heartbeat during the whole time. Otherwise no member
        heartbeats, so every session with a timeout of at most ``ms`` ends.

        If the storage fails, the call raises TestingError at once. The clock stays at that moment,
        and the work that was due then did not happen.
        """
        ms = whole_number("ms", ms, least=0, most=MAX_MS)
        if not isinstance(heartbeats, bool):
            raise TypeError(f"heartbeats must be a bool, not {heartbeats!r}")
        coordinator = await self._loaded()
        failures = self._storage.failures
        # While the real time stands, only the steps below decide when work is due.
        with self._clock.standing(), self._gate.closed():
            left_ms, at_ms = ms, self._next_ms(coordinator)
            while left_ms > 0 or at_ms <= NEXT_PORTION_MS:
                living = await all_heartbeats(coordinator) if heartbeats else []
                step_ms = max(0, at_ms)
                # when all of ``ms`` has passed, only the rest of work in portions may remain
                if left_ms > 0:
                    # With heartbeats the next deadline is always near. A least length limits the
                    # number of steps.
                    least_ms = ms // MAX_STEPS if heartbeats else 0
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
        """End the session of one member now, as if it had been silent for too long.

        ``member`` is its member id, its ``group.instance.id``, or a ``client.id`` that no other
        member of the group has. On return the eviction is in ``events``, and the other members
        rebalance. The eviction becomes durable when their rebalance ends. As in Kafka, a restart or
        a storage failure before that brings the member back.

        Raises TestingError if not exactly one member matches, or if the storage fails. In both
        cases nobody is evicted.
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
        """Make every write fail, including writes of events, until the fault is undone or
        ``appends`` writes have failed.

        Clients get NOT_COORDINATOR, and then COORDINATOR_LOAD_IN_PROGRESS for some milliseconds. A
        commit gets only COORDINATOR_LOAD_IN_PROGRESS. No member is evicted.

            with server.fail_storage():
                ...
        """
        self._check_runs()
        return self._storage.fail(appends)

    def delay(self, api: str, ms: int) -> Fault:
        """Delay every answer of one API by ``ms`` of real time.

        ``api`` is Kafka's name, such as ``"OffsetCommit"``. The request itself takes effect at
        once. When the fault is undone, delayed answers are sent at once.
        """
        self._check_runs()
        return self._delays.add(api, ms)

    async def _loaded(self) -> GroupCoordinator:
        """Wait for all earlier starts and stops, and until every shard is loaded. Return the
        coordinator.

        After a storage failure the load takes some milliseconds. Raises RuntimeError if the server
        is not running.
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
    """``GroupkeeperServer`` for tests without an event loop; it has its own loop and thread."""

    def __init__(self, topics: Mapping[str, int] | None = None, **options: Any) -> None:
        self._server = GroupkeeperServer(topics, **options)
        self._thread = LoopThread("groupkeeper", _NOT_RUNNING, self._server.stop)
        self._turning = threading.RLock()
        """Held during a start, stop or restart, so that another one waits for its end."""

    def __enter__(self) -> SyncGroupkeeperServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port, which a ``restart`` keeps. Raises RuntimeError before the first start."""
        return self._server.port

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for a client's ``bootstrap.servers``."""
        return self._server.bootstrap

    def start(self) -> None:
        """Start the server; on return it answers requests. Raises RuntimeError if it already
        runs.
        """
        with self._turning:
            if self._thread.runs:
                raise RuntimeError("the server is already running: it was started twice")
            try:
                self._thread.start()
                self._thread.do(self._server.start())
            except BaseException:
                self._thread.end()
                raise

    def stop(self) -> None:
        """Stop the server and its thread. Calls that wait in other threads raise RuntimeError."""
        with self._turning:
            self._thread.end()

    def restart(self) -> None:
        """Stop, and start again on the same port with everything that was acknowledged."""
        with self._turning:
            self._thread.do(self._server.restart())

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic. If it exists, raise its number of partitions to this number."""
        self._thread.do(self._server.create_topic(name, partitions))

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commit offsets as an administrator, for a group without members."""
        self._thread.do(self._server.commit(group, offsets))

    def committed(self, group: str) -> Offsets:
        """Return every committed offset of a group; empty if the group is unknown."""
        return self._thread.do(self._server.committed(group))

    def events(self, group: str) -> list[EventDict]:
        """Return the events of a group, oldest first (docs/reference/events.md)."""
        return self._thread.call(lambda: self._server.events(group))

    def advance(self, ms: int, *, heartbeats: bool = False) -> None:
        """Move the clock ahead; see ``GroupkeeperServer.advance``."""
        self._thread.do(self._server.advance(ms, heartbeats=heartbeats))

    def evict(self, group: str, member: str) -> None:
        """End the session of one member now; see ``GroupkeeperServer.evict``."""
        self._thread.do(self._server.evict(group, member))

    def fail_storage(self, appends: int | None = None) -> Fault:
        """Make writes fail; see ``GroupkeeperServer.fail_storage``."""
        return self._fault(lambda: self._server.fail_storage(appends))

    def delay(self, api: str, ms: int) -> Fault:
        """Delay the answers of one API; see ``GroupkeeperServer.delay``."""
        return self._fault(lambda: self._server.delay(api, ms))

    def _fault(self, begin: Callable[[], Fault]) -> Fault:
        inner = self._thread.call(begin)

        def undo() -> None:
            with suppress(RuntimeError):  # the server has stopped, which undid every fault
                self._thread.call(inner.undo)

        return Fault(undo)
