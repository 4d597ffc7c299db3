"""Send fixed requests through a tree's Kafka port, without sockets, for ``bench/guard.py``.

It is started by path with a tree on PYTHONPATH, and imports everything else from that tree. So two
commits do the same work.

    python -P bench/guard_load.py marks.so     under callgrind: a mark before and after each phase
    python -P bench/guard_load.py              prints the executed bytecodes of one request, as JSON
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

# Replaced before the import of the tree, which keeps these functions. A microsecond passes between
# two readings. Callgrind is fifty times slower, and a slow request would take another path.
time.monotonic = time.perf_counter = itertools.count(1_000.0, 1e-6).__next__
time.monotonic_ns = itertools.count(10**12, 1_000).__next__
time.time = itertools.count(1_800_000_000.0, 1e-6).__next__
time.time_ns = itertools.count(18 * 10**17, 1_000).__next__
os.urandom = random.Random(0).randbytes

from bench import hot_bench  # noqa: E402
from groupkeeper.coordinator.runtime import clock  # noqa: E402
from groupkeeper.coordinator.server import budget  # noqa: E402

# The timers of the loop follow the real clock: on a busy machine, more would fall into a phase.
clock.TICK_S = budget.TICK_S = 3_600.0

ROUNDS = 20
"""Rounds of 64 requests each."""


class Transport:
    """Keeps the written replies with C code only, so that this is not counted."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.writes: list[bytes] = []
        self.write = self.writes.append

    def get_extra_info(self, name: str) -> Any:
        """Return an address."""
        return (self.peer, 40_000)

    def set_write_buffer_limits(self, **limits: int) -> None:
        """Do nothing."""


def commit_of_one(wire: Any, member: dict[str, Any]) -> bytes:
    """Encode a commit of one partition."""
    row = {
        "partition_index": 3,
        "committed_offset": 1_000_003,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    values = {
        "group_id": wire.group_id,
        "generation_id_or_member_epoch": member["generation_id"],
        "member_id": member["member_id"],
        "topics": [{"name": "orders", "partitions": [row]}],
    }
    return hot_bench.encode_request("offset_commit", 8, values, 7, "bench")


def check_tree() -> None:
    """Assert that the modules come from the tree in the current directory."""
    used = [hot_bench, sys.modules[hot_bench.GroupCoordinator.__module__]]
    for module in used:
        assert str(module.__file__).startswith(f"{os.getcwd()}/"), module


Phase = Callable[[], Awaitable[None]]


async def phases() -> dict[str, Phase]:
    """Start a coordinator with its groups, and return the phases to count."""
    hot_bench.FakeTransport = Transport  # type: ignore[assignment, misc]
    bench = hot_bench.Bench(hot_bench.MemoryOffsetStorage())
    await bench.coordinator.start()
    ones: dict[str, bytes] = {}
    for wire in bench.wires[: hot_bench.GROUPS]:
        member = await wire.join()
        ones[wire.group_id] = commit_of_one(wire, member)
        for same in bench.wires:
            if same.group_id == wire.group_id:
                same.prepare(member)
    wires = bench.wires
    counted = {
        "heartbeat": phase(wires, [wire.heartbeat for wire in wires]),
        "commit of 1": phase(wires, [ones[wire.group_id] for wire in wires]),
        "commit of 10": phase(wires, [wire.commit for wire in wires]),
        "fetch of 10": phase(wires, [wire.fetch for wire in wires]),
    }
    if hasattr(bench, "unchanged_heartbeats"):  # an older tree serves no consumer groups
        counted["consumer heartbeat"] = phase(wires, await bench.unchanged_heartbeats())
    return counted


def phase(wires: list[Any], frames: list[bytes]) -> Phase:
    """Return a function that sends one request on every connection, and waits for the replies."""
    receivers = [wire.connection.data_received for wire in wires]
    calls = list(zip(receivers, frames, strict=True))
    answers = [wire.transport.writes for wire in wires]

    async def one_each() -> None:
        for receive, frame in calls:
            receive(frame)
        for writes in answers:
            while not writes:  # noqa: ASYNC110 - a fake transport has no event to wait for
                await asyncio.sleep(0)
            writes.clear()
        await asyncio.sleep(0)  # the clock does not move within a turn of the loop

    return one_each


async def mark(marks: Any) -> None:
    """Run each phase between two marks (``bench/guard_marks.c``)."""
    counted = await phases()
    marks.hold()
    for name, one_each in counted.items():
        for _ in range(5):
            await one_each()
        gc.collect()
        gc.disable()
        marks.begin()
        for _ in range(ROUNDS):
            await one_each()
        marks.end(name.encode())
        gc.enable()


async def count_bytecodes() -> None:
    """Count the bytecodes that the interpreter executes, except those of this file."""
    executed = 0

    def trace(frame: Any, event: str, _argument: object) -> Any:
        nonlocal executed
        if frame.f_code.co_filename == __file__:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            executed += 1
        return trace

    counts = {}
    for name, one_each in (await phases()).items():
        for _ in range(5):
            await one_each()
        before = executed
        sys.settrace(trace)
        for _ in range(ROUNDS):
            await one_each()
        sys.settrace(None)
        counts[name] = (executed - before) / ROUNDS / hot_bench.CONNECTIONS
    print(json.dumps(counts))


if __name__ == "__main__":
    check_tree()
    counting = count_bytecodes() if len(sys.argv) == 1 else mark(ctypes.CDLL(sys.argv[1]))
    uvloop.run(counting)
