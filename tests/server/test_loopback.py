"""The server on a real socket, the real coordinator behind it, on both event loops."""

from __future__ import annotations

import asyncio
import io
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.handlers.routes import Operation, Resource, Routes
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.handlers.session import Session
from groupkeeper.coordinator.handlers.table import APIS_SERVED
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.listener import Listener
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from tests.helpers.wire.connections import commit, heartbeat
from tests.helpers.wire.handling import decode
from tests.helpers.wire.raw_client import encode_request

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Client:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def call(self, api: str, version: int, **values: Any) -> dict[str, Any]:
        self.writer.write(encode_request(api, version, values, 7, "app"))
        return decode(api, version, await self.frame(), 7)

    async def frame(self) -> bytes:
        head = await self.reader.readexactly(4)
        return head + await self.reader.readexactly(struct.unpack(">i", head)[0])

    async def correlation_id(self) -> int:
        return int(struct.unpack_from(">i", await self.frame(), 4)[0])

    async def is_closed_by_peer(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


def a_socket() -> socket.socket:
    """A socket whose buffers in the kernel are soon full; what it accepts inherits them."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    return sock


class World:
    """A coordinator with two topics behind a port."""

    def __init__(self, server: KafkaServer, port: int) -> None:
        self.server = server
        self.port = port
        self.clients: list[Client] = []

    async def connect(self, port: int | None = None) -> Client:
        sock = a_socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port or self.port))
        client = Client(*await asyncio.open_connection(sock=sock))
        self.clients.append(client)
        return client


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until it is so; the test as a whole has a limit."""
    while not condition():  # noqa: ASYNC110 - what we wait for is the kernel's and the loop's
        await asyncio.sleep(0)


@asynccontextmanager
async def a_world(**limits: int) -> AsyncIterator[World]:
    topics = Topics([ConfiguredTopic("orders", 4)])
    config = CoordinatorConfig(shards=4)
    coordinator = GroupCoordinator(MemoryOffsetStorage(), config, topics)
    await coordinator.start()
    server = KafkaServer(Services(coordinator=coordinator, topics=topics), ServerLimits(**limits))
    sock = a_socket()
    sock.bind(("127.0.0.1", 0))
    await server.start(sock)
    world = World(server, sock.getsockname()[1])
    try:
        yield world
    finally:
        server.stop_accepting()
        await coordinator.stop()
        server.close_all()
        for client in world.clients:
            client.writer.close()
        await until(lambda: not server.connections)


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Runs a test on one of the loops that we support."""

    def run_on_loop(test: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await asyncio.wait_for(test(), 30)

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(main())

    return run_on_loop


Run = Callable[[Callable[[], Awaitable[None]]], None]

JOIN = {
    "group_id": "g",
    "session_timeout": 10_000,
    "rebalance_timeout": 10_000,
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"\0"}],
}


async def join_alone(client: Client) -> tuple[str, int]:
    """Become the only member of a Stable group."""
    first = await client.call("join_group", 9, **JOIN)
    assert first["error_code"] == 79
    member_id = first["member_id"]
    assert member_id.startswith("app-")
    joined = await client.call("join_group", 9, **{**JOIN, "member_id": member_id})
    assert joined["error_code"] == 0
    synced = await client.call(
        "sync_group",
        5,
        group_id="g",
        generation_id=joined["generation_id"],
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": member_id, "assignment": b"mine"}],
    )
    assert (synced["error_code"], synced["assignment"]) == (0, b"mine")
    return member_id, joined["generation_id"]


def test_a_member_lives_its_life(run: Run) -> None:
    async def test() -> None:
        async with a_world() as world:
            client = await world.connect()
            found = await client.call("find_coordinator", 4, coordinator_keys=["g"])
            assert found["coordinators"][0]["port"] == world.port
            member_id, generation = await join_alone(client)
            member = {"group_id": "g", "member_id": member_id}
            alive = await client.call("heartbeat", 4, generation_id=generation, **member)
            assert alive["error_code"] == 0
            partition = {"partition_index": 3, "committed_offset": 42, "committed_metadata": "x"}
            committed = await client.call(
                "offset_commit",
                9,
                generation_id_or_member_epoch=generation,
                topics=[{"name": "orders", "partitions": [partition]}],
                **member,
            )
            assert committed["topics"][0]["partitions"][0]["error_code"] == 0
            fetched = await client.call(
                "offset_fetch", 9, groups=[{"group_id": g, "topics": None} for g in ("g", "no")]
            )
            assert [len(g["topics"]) for g in fetched["groups"]] == [1, 0]
            stored = fetched["groups"][0]["topics"][0]["partitions"][0]
            assert (stored["committed_offset"], stored["metadata"]) == (42, "x")
            described = await client.call("describe_groups", 6, groups=["g", "no"])
            assert [g["group_state"] for g in described["groups"]] == ["Stable", "Dead"]
            assert described["groups"][0]["members"][0]["client_host"] == "/127.0.0.1"
            listed = await client.call("list_groups", 5, states_filter=["stable"])
            assert [g["group_id"] for g in listed["groups"]] == ["g"]
            wanted = {"partition_index": 3, "timestamp": -1}
            ends = await client.call(
                "list_offsets", 7, topics=[{"name": "orders", "partitions": [wanted]}]
            )
            assert ends["topics"][0]["partitions"][0]["offset"] == 42
            left = await client.call("leave_group", 5, members=[{"member_id": member_id}], **member)
            assert left["members"][0]["error_code"] == 0

    run(test)


def test_topics_are_created_grown_and_deleted(run: Run) -> None:
    async def test() -> None:
        async with a_world() as world:
            client = await world.connect()
            new = {"name": "new", "num_partitions": 2, "replication_factor": 1}
            created = await client.call("create_topics", 7, topics=[new, {**new, "name": "a b"}])
            assert [t["error_code"] for t in created["topics"]] == [0, 17]
            shown = (await client.call("metadata", 12, topics=None))["topics"]
            assert {t["name"]: len(t["partitions"]) for t in shown} == {"orders": 4, "new": 2}
            topic = {"name": "new", "count": 5, "assignments": None}
            grown = await client.call("create_partitions", 3, topics=[topic])
            assert grown["results"][0]["error_code"] == 0
            asked = [{"name": "new", "topic_id": None}]
            shown = (await client.call("metadata", 12, topics=asked))["topics"]
            assert len(shown[0]["partitions"]) == 5
            deleted = await client.call("delete_topics", 5, topic_names=["new"])
            assert deleted["responses"][0]["error_code"] == 0
            shown = (await client.call("metadata", 12, topics=asked))["topics"]
            assert shown[0]["error_code"] == 3

    run(test)


def test_pipelined_commits_are_answered_in_order(run: Run) -> None:
    async def test() -> None:
        async with a_world() as world:
            client = await world.connect()
            frames = [commit(i) if i % 3 else heartbeat(i) for i in range(500)]
            client.writer.write(b"".join(frames))
            assert [await client.correlation_id() for _ in frames] == list(range(500))

    run(test)


def test_a_join_that_waits_for_others_holds_its_own_connection_alone(run: Run) -> None:
    async def test() -> None:
        async with a_world() as world:
            leader, follower, other = [await world.connect() for _ in range(3)]
            member_id, generation = await join_alone(leader)
            first = await follower.call("join_group", 9, **JOIN)
            second = {**JOIN, "member_id": first["member_id"]}
            follower.writer.write(encode_request("join_group", 9, second, 1, "app"))
            follower.writer.write(heartbeat(2))
            await until(lambda: world.server.owed > 0)
            member = {"group_id": "g", "member_id": member_id}
            alive = await leader.call("heartbeat", 4, generation_id=generation, **member)
            assert alive["error_code"] == 27
            other.writer.write(heartbeat(3))
            assert await other.correlation_id() == 3
            joined = await leader.call("join_group", 9, **{**JOIN, "member_id": member_id})
            assert joined["error_code"] == 0
            assert [await follower.correlation_id() for _ in range(2)] == [1, 2]

    run(test)


def test_a_client_that_goes_while_its_join_is_parked_stays_a_member(run: Run) -> None:
    async def test() -> None:
        async with a_world() as world:
            leader, follower = await world.connect(), await world.connect()
            member_id, _ = await join_alone(leader)
            first = await follower.call("join_group", 9, **JOIN)
            second = {**JOIN, "member_id": first["member_id"]}
            follower.writer.write(encode_request("join_group", 9, second, 1, "app"))
            await follower.writer.drain()
            await until(lambda: world.server.owed > 0)
            follower.writer.close()
            await until(lambda: len(world.server.connections) == 1)
            joined = await leader.call("join_group", 9, **{**JOIN, "member_id": member_id})
            # Its session decides, not its connection (docs/spec/wire.md#disconnects).
            assert {m["member_id"] for m in joined["members"]} == {member_id, first["member_id"]}

    run(test)


def test_a_peer_that_reads_nothing_slows_down_itself_alone(run: Run) -> None:
    async def test() -> None:
        async with a_world(max_waiting_bytes=65_536) as world:
            greedy, other = await world.connect(), await world.connect()
            greedy.writer.transport.pause_reading()  # type: ignore[attr-defined]
            asked = encode_request("api_versions", 0, {}, 1, "app") * 100
            # More replies than all buffers of the kernel hold: the server must stop reading.
            sent = 0
            while greedy.writer.transport.get_write_buffer_size() < 100_000:  # type: ignore[attr-defined]
                greedy.writer.write(asked)
                sent += 100
                await asyncio.sleep(0)
                other.writer.write(heartbeat(sent))
                assert await other.correlation_id() == sent
            greedy.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for _ in range(sent):
                await greedy.frame()

    run(test)


def test_bad_input_closes_a_real_connection_and_no_other(run: Run) -> None:
    async def test() -> None:
        async with a_world() as world:
            good = await world.connect()
            for data in (b"GET / HTTP/1.0\r\n\r\n", bytes.fromhex("1603010200"), b"\xff" * 10):
                bad = await world.connect()
                bad.writer.write(data)
                assert await bad.is_closed_by_peer()
            assert (await good.call("api_versions", 0))["error_code"] == 0
            assert world.server.stats.closed["not_kafka_http"] == 1
            assert world.server.stats.closed["not_kafka_tls"] == 1
            assert world.server.stats.closed["negative_length"] == 1

    run(test)


def test_connections_beyond_the_limit_are_closed(run: Run) -> None:
    async def test() -> None:
        async with a_world(max_connections=1) as world:
            first = await world.connect()
            assert (await first.call("api_versions", 0))["error_code"] == 0
            second = await world.connect()
            assert await second.is_closed_by_peer()

    run(test)


def test_a_frame_of_the_largest_size_is_taken(run: Run) -> None:
    async def test() -> None:
        async with a_world(max_frame_bytes=1_000_000) as world:
            client = await world.connect()
            filler = io.BytesIO(heartbeat(5)).read()[4:] + bytes(1_000_000)
            client.writer.write(struct.pack(">i", 1_000_000) + filler[:1_000_000])
            assert await client.correlation_id() == 5

    run(test)


def test_each_listener_has_routes_of_its_own_and_all_end_together(run: Run) -> None:
    asked: list[tuple[str, str, Operation, Resource]] = []

    def authorize(session: Session, operation: Operation, resource: Resource) -> bool:
        asked.append((session.listener, session.principal, operation, resource))
        return False

    async def test() -> None:
        async with a_world() as world:
            sock = a_socket()
            sock.bind(("127.0.0.1", 0))
            outside = Listener("OUTSIDE", Routes(APIS_SERVED, authorize))
            await world.server.start(sock, outside)
            assert [listener.name for listener in world.server.listeners] == [
                "PLAINTEXT",
                "OUTSIDE",
            ]
            trusted, stranger = await world.connect(), await world.connect(sock.getsockname()[1])
            beat = {"group_id": "g", "member_id": "m", "generation_id": 1}
            assert (await stranger.call("heartbeat", 4, **beat))["error_code"] == 30
            assert asked == [("OUTSIDE", "User:ANONYMOUS", Operation.READ, Resource.GROUP)]
            assert (await trusted.call("heartbeat", 4, **beat))["error_code"] == 25
            assert len(asked) == 1
            assert world.server.stats.connections_open == 2
            world.server.stop_accepting()
            world.server.close_all()
            assert await trusted.is_closed_by_peer()
            assert await stranger.is_closed_by_peer()

    run(test)
