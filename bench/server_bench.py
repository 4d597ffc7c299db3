"""Measure how long the largest allowed frames keep the event loop busy.

    python -m bench.server_bench

It measures the CPU time of the thread, so that other load on the machine does not count. The
coordinator is the real one, on memory storage.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

import uvloop

from bench.core_bench import CLIENT
from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.membership import (
    JoinGroup,
    JoinGroupResult,
    JoinProtocol,
    SyncGroup,
)
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit
from groupkeeper.coordinator.core.requests.topics import ChangeTopics
from groupkeeper.coordinator.daemon.process import calm_collector
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.handlers.exchange import ELEMENT_WEIGHTS
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.server.connection import Connection
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.protocol.versions import ApiKey
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from tests.helpers.wire.connections import FakeTransport
from tests.helpers.wire.handling import decode
from tests.helpers.wire.raw_client import encode_request

T = TypeVar("T")
ELEMENTS = 19_900
"""Just below the default of kafka.max_request_elements."""


class Bench:
    """One connection to a server that never listens."""

    def __init__(self, server: KafkaServer, coordinator: GroupCoordinator) -> None:
        self.server = server
        self.coordinator = coordinator
        self.connect()

    def connect(self) -> None:
        """Open a new connection, as after a refusal."""
        self.transport = FakeTransport("127.0.0.1")
        self.connection = Connection(self.server.shared)
        self.connection.connection_made(cast("Any", self.transport))

    async def call(self, api: str, version: int, **values: Any) -> dict[str, Any]:
        """Send one request, and return the reply."""
        self.transport.writes.clear()
        self.connection.data_received(encode_request(api, version, values, 7, "bench"))
        await self.answer()
        return decode(api, version, self.transport.writes[-1], 7)

    async def answer(self) -> float:
        """Wait for the answer. Return the longest turn of the loop, in seconds of CPU time."""
        longest = 0.0
        while not self.transport.writes and not self.transport.is_closed:
            begin = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - begin)
        return longest

    async def hold(self, name: str, api: str, version: int, **values: Any) -> None:
        """Print how long one large frame keeps the loop busy."""
        self.connect()
        frame = encode_request(api, version, values, 7, "bench")
        begin = time.thread_time()
        self.connection.data_received(frame)
        longest = max(time.thread_time() - begin, await self.answer())
        reply = sum(len(data) for data in self.transport.writes)
        print(f"{name:48} {longest * 1e3:8.1f} ms   {len(frame):9,} bytes in, {reply:11,} out")
        self.connection.connection_lost(None)

    async def longest_turn(self, name: str, work: Awaitable[T]) -> T:
        """Print the longest turn of the loop (CPU time) during some work and a second after it."""
        task = asyncio.ensure_future(work)
        longest = 0.0
        end = time.monotonic() + 1
        while not task.done() or time.monotonic() < end:
            begin = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - begin)
        print(f"{name:48} {longest * 1e3:8.1f} ms")
        return task.result()


async def join(bench: Bench) -> None:
    """Become the only member of a Stable group."""
    values: dict[str, Any] = {
        "group_id": "g",
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    values["member_id"] = (await bench.call("join_group", 9, **values))["member_id"]
    joined = await bench.call("join_group", 9, **values)
    member = {key: values[key] for key in ("group_id", "member_id", "protocol_type")}
    member |= {"generation_id": joined["generation_id"], "protocol_name": "range"}
    await bench.call("sync_group", 5, assignments=[], **member)
    await asyncio.sleep(0.1)


def commit_of(topics: dict[str, int]) -> dict[str, Any]:
    """Return a simple consumer's commit."""
    offset = {"committed_offset": 5, "committed_metadata": ""}
    return {
        "group_id": "g2",
        "generation_id_or_member_epoch": -1,
        "topics": [
            {"name": name, "partitions": [{"partition_index": i, **offset} for i in range(count)]}
            for name, count in topics.items()
        ],
    }


async def large(bench: Bench) -> None:
    """Measure the largest allowed frames, by the work that they cause."""
    many = range(ELEMENTS)
    half = [f"n{i}" for i in range(ELEMENTS // 2)]
    await bench.hold(
        "OffsetCommit, one topic", "offset_commit", 9, **commit_of({"orders": ELEMENTS - 1})
    )
    await bench.hold(
        "OffsetCommit, unknown topics", "offset_commit", 9, **commit_of(dict.fromkeys(half, 1))
    )
    groups = [{"group_id": f"g{i}", "topics": None} for i in many]
    await bench.hold("OffsetFetch, many groups", "offset_fetch", 9, groups=groups)
    same = [{"group_id": "g2", "topics": None}] * 1_000
    await bench.hold("OffsetFetch, a large group often", "offset_fetch", 9, groups=same)
    ids = [{"name": None, "topic_id": uuid.UUID(int=i + 1)} for i in many[::2]]
    await bench.hold("Metadata by id", "metadata", 12, topics=ids)
    names = [{"name": f"n{i}", "topic_id": None} for i in many[::2]]
    await bench.hold("Metadata by name", "metadata", 12, topics=names)
    partition = {"fetch_offset": 0, "partition_max_bytes": 1}
    topics = [{"topic": n, "partitions": [{"partition": 0, **partition}]} for n in half]
    await bench.hold("Fetch, many topics", "fetch", 12, session_epoch=-1, topics=topics)
    wanted = [{"partition_index": i, "timestamp": -1} for i in many[1:]]
    topics = [{"name": "orders", "partitions": wanted}]
    await bench.hold("ListOffsets", "list_offsets", 7, topics=topics)
    await bench.hold("DescribeGroups", "describe_groups", 6, groups=[f"g{i}" for i in many])
    members = [{"member_id": f"m{i}"} for i in range(ELEMENTS // 2)]
    await bench.hold("LeaveGroup", "leave_group", 5, group_id="g", members=members)
    new = [
        {"name": f"t{i}", "num_partitions": 1, "replication_factor": 1}
        for i in range(ELEMENTS // 5)
    ]
    await bench.hold("CreateTopics", "create_topics", 7, topics=new)
    await bench.hold("Metadata of all topics", "metadata", 12, topics=None)


async def administration(bench: Bench) -> None:
    """Measure the largest allowed administrative frames."""
    alterable = ELEMENTS // ELEMENT_WEIGHTS[ApiKey.INCREMENTAL_ALTER_CONFIGS]
    describable = ELEMENTS // ELEMENT_WEIGHTS[ApiKey.DESCRIBE_CONFIGS]
    keys = ["commit.monotonic", "rebalance.max.join.ms", "offsets.retention.minutes"]
    for count in (1, 3):
        configs = [
            {"name": k, "config_operation": 0, "value": v}
            for k, v in zip(keys, ("true", "1", "5"), strict=True)
        ]
        resources = [
            {"resource_type": 32, "resource_name": f"c{count}-{i}", "configs": configs[:count]}
            for i in range(alterable // (1 + count))
        ]
        await bench.hold(
            f"IncrementalAlterConfigs, {count} a group",
            "incremental_alter_configs",
            1,
            resources=resources,
        )
    wrong = [
        {"resource_type": 32, "resource_name": f"w{i}", "configs": []} for i in range(alterable)
    ]
    await bench.hold(
        "IncrementalAlterConfigs, nothing", "incremental_alter_configs", 1, resources=wrong
    )
    for prefix in ("absent", "c3-"):
        resources = [
            {"resource_type": 32, "resource_name": f"{prefix}{i}", "configuration_keys": None}
            for i in range(describable)
        ]
        await bench.hold(
            f"DescribeConfigs, {prefix}",
            "describe_configs",
            4,
            resources=resources,
            include_synonyms=True,
            include_documentation=True,
        )
    own = [
        {"resource_type": 32, "resource_name": "g", "configuration_keys": [key, f"x{i}"]}
        for i, key in zip(range(describable // 3), itertools.cycle(keys))
    ]
    await bench.hold("DescribeConfigs, other keys each", "describe_configs", 4, resources=own)
    await bench.hold("ListConfigResources", "list_config_resources", 1, resource_types=[])
    parts = [{"partition_index": i} for i in range(ELEMENTS // 2 - 1)]
    topics = [{"name": "orders", "partitions": parts}]
    await bench.hold("OffsetDelete", "offset_delete", 0, group_id="g2", topics=topics)
    await bench.hold(
        "OffsetCommit again", "offset_commit", 9, **commit_of({"orders": ELEMENTS - 1})
    )
    await bench.hold("DeleteGroups, a large one", "delete_groups", 2, groups_names=["g2"])
    names = [f"absent{i}" for i in range(ELEMENTS)]
    await bench.hold("DeleteGroups, absent ones", "delete_groups", 2, groups_names=names)


GROUPS = 10_000
PARTITIONS = 99_880


async def fill(bench: Bench) -> None:
    """Create 10,000 groups of ten offsets, and one group of 99,880."""
    coordinator = bench.coordinator
    offsets: list[tuple[int, int, int, str | None]] = [(n, 5, -1, "") for n in range(PARTITIONS)]
    for first in range(0, PARTITIONS, 10_000):
        await coordinator.ask(plain_commit("large", "wide", offsets[first : first + 10_000]))
    for first in range(0, GROUPS, 500):
        commits = [
            coordinator.ask(plain_commit(f"g{n}", "narrow", offsets[:10]))
            for n in range(first, first + 500)
        ]
        await asyncio.gather(*commits)
    gc.collect()
    gc.freeze()  # as the daemon does after a load


def plain_commit(
    group_id: str, topic: str, rows: list[tuple[int, int, int, str | None]]
) -> OffsetCommit:
    """Return a simple consumer's commit as a request of the core."""
    return OffsetCommit(
        group_id, -1, "", None, [(topic, "", rows)], False, -1, ErrorCode.NONE, CLIENT
    )


async def rebalanced(bench: Bench, name: str, members: int) -> None:
    """Measure all members of a group joining twice. Each round answers all of them at once."""
    bench.connect()
    ids: list[str] = []

    async def join_all() -> list[JoinGroupResult]:
        protocols = (JoinProtocol("range", bytes(100)),)
        joins = [
            JoinGroup(
                name,
                ids[n] if ids else "",
                None,
                "consumer",
                protocols,
                30_000,
                30_000,
                f"{name}-{n:05}-01234567-89ab-cdef-0123-456789abcdef",
                False,
                False,
                CLIENT,
            )
            for n in range(members)
        ]
        return await asyncio.gather(*(bench.coordinator.ask(join) for join in joins))

    ids = [joined.member_id for joined in await join_all()]
    joined = await bench.longest_turn(f"JoinGroup, a round of {members} members", join_all())
    generation = joined[0].generation_id
    everyone = tuple((member_id, bytes(100)) for member_id in ids)
    syncs = [
        SyncGroup(name, generation, m, None, None, None, everyone if n == 0 else (), CLIENT)
        for n, m in enumerate(ids)
    ]
    await bench.longest_turn(
        f"SyncGroup, the leader of {members} members",
        asyncio.gather(*(bench.coordinator.ask(sync) for sync in syncs)),
    )


async def full(bench: Bench) -> None:
    """Measure short frames with long answers."""
    await bench.hold("ListGroups, 10,000 groups", "list_groups", 4, states_filter=[])
    everything = [{"group_id": "large", "topics": None}]
    await bench.hold("OffsetFetch, 99,880 offsets", "offset_fetch", 9, groups=everything)
    for times in ("first", "again"):
        await bench.hold(f"Metadata, 100,000 partitions, {times}", "metadata", 12, topics=None)
    for members in (1_000, 2_000):
        await rebalanced(bench, f"crowd{members}", members)
    await bench.hold("DescribeGroups, 2,000 members", "describe_groups", 5, groups=["crowd2000"])
    await bench.longest_turn("a scrape's counts", counted(bench.coordinator))
    drop = bench.coordinator.ask(ChangeTopics(CLIENT, delete=(("narrow", ""),)))
    await bench.longest_turn("DeleteTopics, 100,000 offsets of 10,000 groups", drop)
    drop = bench.coordinator.ask(ChangeTopics(CLIENT, delete=(("wide", ""),)))
    await bench.longest_turn("DeleteTopics, 99,880 offsets of one group", drop)


async def counted(coordinator: GroupCoordinator) -> None:
    """Make the calls that the metrics make to the coordinator."""
    coordinator.groups_by_state()
    coordinator.member_count()
    coordinator.offset_count()


async def with_topics(
    *configured: ConfiguredTopic, run: Sequence[Callable[[Bench], Awaitable[None]]]
) -> None:
    """Run benchmarks one after the other against a new coordinator with these topics."""
    topics = Topics(configured)
    coordinator = GroupCoordinator(MemoryOffsetStorage(), CoordinatorConfig(), topics)
    await coordinator.start()
    server = KafkaServer(Services(coordinator=coordinator, topics=topics), ServerLimits())
    bench = Bench(server, coordinator)
    for part in run:
        await part(bench)
    await coordinator.stop()


async def main() -> None:
    """Print the table."""
    calm_collector()  # as the daemon does
    await with_topics(ConfiguredTopic("orders", 20_000), run=[join, large, administration])
    await with_topics(
        ConfiguredTopic("wide", PARTITIONS), ConfiguredTopic("narrow", 120), run=[fill, full]
    )


if __name__ == "__main__":
    uvloop.run(main())
