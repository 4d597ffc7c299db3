"""Measure hot requests in the runtime, and through the Kafka port without a socket.

    python -m bench.hot_bench

There are 16 groups of one member, with four connections a group. In a round of commits every
connection sends one request, and these share their appends. The cost of a socket is not included.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvloop

from bench.core_bench import CLIENT, fetch_of
from bench.figures import Figure, cpu_us, show
from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.requests.membership import Heartbeat
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.server.connection import Connection
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import OffsetStorage
from tests.helpers.wire.connections import FakeTransport
from tests.helpers.wire.handling import decode
from tests.helpers.wire.raw_client import encode_request

GROUPS = 16
CONNECTIONS = 64
PARTITIONS = 10
CONSUMER = "consumer_group_heartbeat"
NOTHING_NEW: dict[str, Any] = {
    "rebalance_timeout": -1,
    "subscribed_topic_names": None,
    "topic_partitions": None,
}


class Ticket:
    """Counts the answers."""

    def __init__(self) -> None:
        self.answers = 0

    def resolve(self, result: Any) -> None:
        """Count the answer."""
        self.answers += 1


class Wire:
    """One connection, and the frames of its member."""

    def __init__(self, server: KafkaServer, group_id: str) -> None:
        self.group_id = group_id
        self.consumer: dict[str, Any] = {}
        self.owned: list[dict[str, Any]] = []
        self.transport = FakeTransport("127.0.0.1")
        self.connection = Connection(server.shared)
        self.connection.connection_made(cast("Any", self.transport))

    async def call(self, api: str, version: int, **values: Any) -> dict[str, Any]:
        """Send one request, and return the reply."""
        self.transport.writes.clear()
        self.connection.data_received(encode_request(api, version, values, 7, "bench"))
        while not self.transport.writes:  # noqa: ASYNC110 - a fake transport has no event to wait for
            await asyncio.sleep(0)
        return decode(api, version, self.transport.writes.pop(), 7)

    async def join(self) -> dict[str, Any]:
        """Become the only member of a Stable group. Return the member's id and generation."""
        joining: dict[str, Any] = {
            "group_id": self.group_id,
            "session_timeout": 30_000,
            "rebalance_timeout": 30_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        member_id = (await self.call("join_group", 9, member_id="", **joining))["member_id"]
        joined = await self.call("join_group", 9, member_id=member_id, **joining)
        member = {"member_id": member_id, "generation_id": joined["generation_id"]}
        await self.call(
            "sync_group",
            5,
            group_id=self.group_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
            **member,
        )
        return member

    async def join_consumer_group(self, name: str) -> None:
        """Become a member of a consumer group."""
        self.consumer = {"group_id": f"consumer-{self.group_id}", "member_id": name}
        await self.beat(
            member_epoch=0,
            rebalance_timeout=30_000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        )

    async def beat(self, **values: Any) -> bool:
        """Send a heartbeat of the consumer group, and follow the answer. Return True if the epoch
        or the assignment is new.
        """
        answer = await self.call(CONSUMER, 1, **NOTHING_NEW | self.consumer | values)
        is_new = answer["assignment"] is not None
        if is_new:
            self.owned = [
                {**topic, "topic_id": uuid.UUID(topic["topic_id"])}
                for topic in answer["assignment"]["topic_partitions"]
            ]
        is_new = is_new or answer["member_epoch"] != self.consumer.get("member_epoch")
        self.consumer["member_epoch"] = answer["member_epoch"]
        return is_new

    def unchanged_heartbeat(self) -> bytes:
        """Encode a heartbeat of the consumer group that says nothing new."""
        return encode_request(CONSUMER, 1, NOTHING_NEW | self.consumer, 7, "bench")

    def prepare(self, member: dict[str, Any]) -> None:
        """Encode the measured requests."""
        rows = [
            {
                "partition_index": n,
                "committed_offset": 1_000_000 + n,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            for n in range(PARTITIONS)
        ]
        group = {"group_id": self.group_id}
        commit = {
            "generation_id_or_member_epoch": member["generation_id"],
            "member_id": member["member_id"],
            "topics": [{"name": "orders", "partitions": rows}],
        }
        topics = [{"name": "orders", "partition_indexes": range(PARTITIONS)}]
        self.heartbeat = encode_request("heartbeat", 4, group | member, 7, "bench")
        self.commit = encode_request("offset_commit", 8, group | commit, 7, "bench")
        self.fetch = encode_request("offset_fetch", 7, group | {"topics": topics}, 7, "bench")


class Bench:
    """A coordinator and its port."""

    def __init__(self, storage: OffsetStorage) -> None:
        topics = Topics([ConfiguredTopic("orders", 12)])
        config = CoordinatorConfig(
            rebalance_protocols=("classic", "consumer"), consumer_assignment_interval_ms=0
        )
        self.coordinator = GroupCoordinator(storage, config, topics)
        services = Services(
            coordinator=self.coordinator.router, topics=topics, serves_consumer_groups=True
        )
        server = KafkaServer(services, ServerLimits())
        self.wires = [Wire(server, f"orders-{n % GROUPS}") for n in range(CONNECTIONS)]

    async def start(self) -> None:
        """Start the coordinator, join all members, and commit once."""
        await self.coordinator.start()
        for wire in self.wires[:GROUPS]:
            member = await wire.join()
            for same in self.wires:
                if same.group_id == wire.group_id:
                    same.prepare(member)
        await self.commits()

    async def unchanged_heartbeats(self) -> list[bytes]:
        """Let the connections join consumer groups of four until nothing changes any more. Return
        the next heartbeat of each.
        """
        for number, wire in enumerate(self.wires):
            await wire.join_consumer_group(f"member-{number:02}-of-a-consumer-group")
        while any([await wire.beat(topic_partitions=wire.owned) for wire in self.wires]):
            pass
        return [wire.unchanged_heartbeat() for wire in self.wires]

    async def commits(self) -> None:
        """Send one commit on every connection."""
        await self.answered([wire.commit for wire in self.wires])

    async def answered(self, frames: list[bytes]) -> None:
        """Send one request on every connection, and wait for the replies.

        The requests of the next call come in another turn of the loop, as real requests do. The
        work of all connections in one turn is limited.
        """
        for wire, frame in zip(self.wires, frames, strict=True):
            wire.connection.data_received(frame)
        for wire in self.wires:
            while not wire.transport.writes:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0)
            wire.transport.writes.clear()
        await asyncio.sleep(0)


async def _of_rounds(work: Any, rounds: int = 100) -> float:
    """Return the CPU time of a request in microseconds, from the best round. ``work`` is a round:
    it sends ``CONNECTIONS`` requests.
    """
    took = []
    for _ in range(rounds):
        begin = time.process_time()
        await work()
        took.append(time.process_time() - begin)
    return min(took) / CONNECTIONS * 1e6


async def figures(directory: Path) -> AsyncIterator[Figure]:
    """Measure the runtime (``GroupCoordinator.submit``), then requests from bytes to bytes."""
    bench = Bench(MemoryOffsetStorage())
    await bench.start()
    ticket = Ticket()
    submit = bench.coordinator.submit
    heartbeat = Heartbeat("orders", 1, "", None, CLIENT)
    yield Figure("runtime", "Heartbeat of a stranger", cpu_us(lambda: submit(heartbeat, ticket)))
    fetch = fetch_of(PARTITIONS)
    yield Figure("runtime", "OffsetFetch x10", cpu_us(lambda: submit(fetch, ticket)))
    heartbeats = [wire.heartbeat for wire in bench.wires]
    fetches = [wire.fetch for wire in bench.wires]
    for what, frames in (("Heartbeat v4", heartbeats), ("OffsetFetch v7 x10", fetches)):
        round_us = await _of_rounds(partial(bench.answered, frames), 400)
        yield Figure("server", what, round_us)
    what = "OffsetCommit v8 x10, memory"
    yield Figure("server", what, await _of_rounds(bench.commits))
    await bench.coordinator.stop()
    bench = Bench(SqliteOffsetStorage(directory / "hot.db"))
    await bench.start()
    what = "OffsetCommit v8 x10, sqlite"
    yield Figure("server", what, await _of_rounds(bench.commits), "its writer's thread included")
    await bench.coordinator.stop()


async def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as name:
        show([figure async for figure in figures(Path(name))])


if __name__ == "__main__":
    uvloop.run(main())
