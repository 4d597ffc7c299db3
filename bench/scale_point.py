"""Measure one point of ``bench/scale.py`` in this process.

    python -m bench.scale_point groups 1000

It prints JSON: bytes of memory for each group (member, partition, offset), CPU time and bytecodes
of a request, and pauses of the garbage collector.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import uvloop

# Replaced before the import of the coordinator, which keeps these functions. A microsecond passes
# between two readings. Requests are slow while bytecodes are counted, and would take another path.
time.monotonic = time.perf_counter = itertools.count(1_000.0, 1e-6).__next__
time.monotonic_ns = itertools.count(10**12, 1_000).__next__

from bench.core_bench import CLIENT  # noqa: E402
from bench.hot_bench import Wire  # noqa: E402
from bench.server_bench import plain_commit  # noqa: E402
from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics  # noqa: E402
from groupkeeper.coordinator.core.errors import ErrorCode  # noqa: E402
from groupkeeper.coordinator.core.requests.membership import (  # noqa: E402
    JoinGroup,
    JoinGroupResult,
    JoinProtocol,
    SyncGroup,
)
from groupkeeper.coordinator.daemon.process import calm_collector  # noqa: E402
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator  # noqa: E402
from groupkeeper.coordinator.handlers.services import Services  # noqa: E402
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig  # noqa: E402
from groupkeeper.coordinator.server.limits import ServerLimits  # noqa: E402
from groupkeeper.coordinator.server.server import KafkaServer  # noqa: E402
from groupkeeper.storage.backends.memory import MemoryOffsetStorage  # noqa: E402
from tests.helpers.wire.raw_client import encode_request  # noqa: E402

CONNECTIONS = 1_024
AT_ONCE = 64
"""Requests in one turn of the loop."""
ROUNDS = 160
FILL = 500
"""Groups that join at once while the coordinator is filled."""
LARGE_BYTES = 1_000
FEW_EVENTS = 1_000
"""The most events that the store keeps. Many events would count as memory of members and offsets.
"""
CROWD = 5_000
"""The most members of one group. The record of a slightly larger group would exceed the limit of a
step (``max_step_bytes``).
"""

Rows = list[tuple[int, int, int, str | None]]


class Population:
    """A coordinator with its port, and the requests to measure."""

    def __init__(self) -> None:
        topics = Topics([ConfiguredTopic("orders", 1_000)])
        config = CoordinatorConfig(default_session_timeout_ms=1_200_000)
        storage = MemoryOffsetStorage(max_events=FEW_EVENTS)
        self.coordinator = GroupCoordinator(storage, config, topics)
        server = KafkaServer(Services(coordinator=self.coordinator, topics=topics), ServerLimits())
        self.wires = [Wire(server, "") for _ in range(CONNECTIONS)]
        self.frames: dict[str, list[bytes]] = {}

    async def join(self, group_id: str, members: int) -> list[JoinGroupResult]:
        """Make a Stable group, and return the answers to the joins."""
        protocols = (JoinProtocol("range", bytes(40)),)
        joins = [
            JoinGroup(
                group_id,
                "",
                None,
                "consumer",
                protocols,
                1_200_000,
                60_000,
                f"consumer-{n:05}-01234567-89ab-cdef-0123-456789abcdef",
                False,
                False,
                CLIENT,
            )
            for n in range(members)
        ]
        ask = self.coordinator.ask
        joined = await asyncio.gather(*(ask(join) for join in joins))
        assert all(each.member_id for each in joined), "a join was refused"
        generation = joined[0].generation_id
        assignments = tuple((each.member_id, bytes(40)) for each in joined)
        syncs = [
            SyncGroup(
                group_id,
                generation,
                each.member_id,
                None,
                None,
                None,
                assignments if each.leader == each.member_id else (),
                CLIENT,
            )
            for each in joined
        ]
        synced = await asyncio.gather(*(ask(sync) for sync in syncs))
        assert all(each.error is ErrorCode.NONE for each in synced), synced[0]
        return joined

    async def members(self, count: int) -> None:
        """Fill the coordinator with few groups of many members."""
        wanted = []
        for first in range(0, count, CROWD):
            name = f"crowd-{first}"
            joined = await self.join(name, min(CROWD, count - first))
            wanted += [(name, each.generation_id, each.member_id) for each in joined]
        self.requests(list(spread(wanted)), 10)

    async def groups(self, count: int) -> None:
        """Fill the coordinator with many groups of one member and ten offsets."""
        wanted = []
        for first in range(0, count, FILL):
            names = [f"group-{n}" for n in range(first, min(count, first + FILL))]
            joined = await asyncio.gather(*(self.join(name, 1) for name in names))
            wanted += [
                (name, each.generation_id, each.member_id)
                for name, (each,) in zip(names, joined, strict=True)
            ]
        self.requests(list(spread(wanted)), 10)
        frames = [commit(name, generation, member, 10) for name, generation, member in wanted]
        for first in range(0, len(frames), AT_ONCE):
            await self.send(first, frames[first : first + AT_ONCE])

    async def partitions(self, count: int) -> None:
        """Fill the coordinator with one group, whose commits and fetches have ``count``
        partitions.
        """
        (joined,) = await self.join("wide", 1)
        self.requests([("wide", joined.generation_id, joined.member_id)], count)

    async def offsets(self, count: int) -> None:
        """Fill the coordinator with many offsets, a thousand in each group."""
        names = [f"group-{n}" for n in range(count // 1_000)]
        for name in names:
            await self.coordinator.ask(plain_commit(name, "orders", offsets(1_000)))
        self.requests([(name, -1, "") for name in spread(names)], 10)
        del self.frames["heartbeat"]  # these groups have no members

    def requests(self, wanted: list[tuple[str, int, str]], partitions: int) -> None:
        """Encode the measured requests of each (group id, generation, member id)."""
        self.frames = {"heartbeat": [], "commit": [], "fetch": []}
        for group_id, generation, member_id in wanted:
            group = {"group_id": group_id}
            member = {"generation_id": generation, "member_id": member_id}
            beat = encode_request("heartbeat", 4, group | member, 7, "bench")
            topics = [{"name": "orders", "partition_indexes": range(partitions)}]
            fetch = encode_request("offset_fetch", 7, group | {"topics": topics}, 7, "bench")
            self.frames["heartbeat"].append(beat)
            self.frames["commit"].append(commit(group_id, generation, member_id, partitions))
            self.frames["fetch"].append(fetch)

    async def send(self, first: int, frames: list[bytes]) -> None:
        """Send one frame on each connection from ``first`` on, and wait for the answers."""
        first %= CONNECTIONS
        used = []
        for wire, frame in zip(self.wires[first : first + AT_ONCE], frames, strict=False):
            wire.connection.data_received(frame)
            used.append(wire.transport)
        for transport in used:
            while not transport.writes:  # noqa: ASYNC110 - a fake transport has no event to wait for
                await asyncio.sleep(0)
            transport.writes.clear()
        await asyncio.sleep(0)

    async def cost_us(self, frames: list[bytes]) -> float:
        """Return the CPU time of a request, in the best tenth of the rounds."""
        rounds = []
        for first in range(0, ROUNDS * AT_ONCE, AT_ONCE):
            now = [frames[n % CONNECTIONS % len(frames)] for n in range(first, first + AT_ONCE)]
            began = time.thread_time()
            await self.send(first, now)
            rounds.append(time.thread_time() - began)
        best = sorted(rounds)[: ROUNDS // 10]
        return sum(best) / len(best) / AT_ONCE * 1e6

    async def bytecodes(self, frames: list[bytes]) -> float:
        """Return the bytecodes of a request, except those of this file."""
        executed = 0

        def trace(frame: Any, event: str, _argument: object) -> Any:
            nonlocal executed
            if frame.f_code.co_filename == __file__:
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
            executed += event == "opcode"
            return trace

        # tracing is slow, and a large request counts the same each time
        count = AT_ONCE if len(frames[0]) > LARGE_BYTES else CONNECTIONS
        for first in range(0, count, AT_ONCE):
            now = [frames[n % len(frames)] for n in range(first, first + AT_ONCE)]
            sys.settrace(trace)
            await self.send(first, now)
            sys.settrace(None)
        return executed / count


def offsets(count: int) -> Rows:
    """Return the rows of a commit of ``count`` partitions."""
    return [(n, 1_000_000 + n, -1, "") for n in range(count)]


def commit(group_id: str, generation: int, member_id: str, partitions: int) -> bytes:
    """Encode a commit."""
    rows = [
        {"partition_index": n, "committed_offset": 1_000_000 + n, "committed_metadata": ""}
        for n in range(partitions)
    ]
    values = {
        "group_id": group_id,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "topics": [{"name": "orders", "partitions": rows}],
    }
    return encode_request("offset_commit", 8, values, 7, "bench")


def spread(items: list[Any]) -> Iterable[Any]:
    """Return at most one item for each connection, evenly spread."""
    return islice(items[:: max(1, len(items) // CONNECTIONS)], CONNECTIONS)


def resident_bytes() -> int:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Pauses:
    """The longest pause of the garbage collector, by generation, in milliseconds of CPU time."""

    def __init__(self) -> None:
        self.longest_ms: dict[int, float] = {}
        self._began = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.thread_time()
            return
        took_ms = (time.thread_time() - self._began) * 1e3
        generation = info["generation"]
        self.longest_ms[generation] = max(took_ms, self.longest_ms.get(generation, 0.0))


async def point(curve: str, count: int) -> dict[str, float]:
    """Fill a coordinator, and measure it."""
    calm_collector()  # as the daemon does
    population = Population()
    await population.coordinator.start()
    gc.collect()
    gc.freeze()  # as the daemon does after its load
    before = resident_bytes()
    fill: Callable[[int], Any] = getattr(population, curve)
    await fill(count)
    gc.collect()
    # what was only needed to fill is free by now; the frames are this benchmark's own
    own = sum(len(frame) + 33 for frames in population.frames.values() for frame in frames)
    found = {"bytes": (resident_bytes() - before - own) / count}
    pauses = Pauses()
    for what, frames in population.frames.items():
        found[f"{what}_us"] = await population.cost_us(frames)
        found[f"{what}_ops"] = await population.bytecodes(frames)
    found["gc_young_ms"] = max((ms for n, ms in pauses.longest_ms.items() if n < 2), default=0.0)
    gc.collect()
    found["gc_full_ms"] = pauses.longest_ms[2]
    await population.coordinator.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(uvloop.run(point(sys.argv[1], int(sys.argv[2])))))
