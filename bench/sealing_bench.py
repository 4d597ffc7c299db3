"""Measure what sealing costs clients: the latency of commits with and without it, by turns.

It also measures the CPU time of the thread that seals, which other load changes little.

    python -m bench.sealing_bench [rounds]

This uses the real daemon on SQLite. It folds early and has segments of 8 MB, so that a run seals
some segments and deletes rows. Each of 16 connections sends a commit of 10 partitions every 20 ms.
Runs with and without sealing alternate, so that other load on the machine affects both.
"""

from __future__ import annotations

import asyncio
import functools
import statistics
import sys
import tempfile
import time
from pathlib import Path

CONNECTIONS = 16
PERIOD_S = 0.02
WARM_UP_S = 3.0
RUN_S = 15.0
PARTITIONS = 10
FOLD_AFTER = 500
SEGMENT_BYTES = 8 * 1024 * 1024


def serve() -> None:
    """Run the normal daemon, but fold early so that rows can be deleted."""
    from groupkeeper.__main__ import main
    from groupkeeper.storage.backends.sqlite import store

    # `storage.open` imports a backend on first use.
    early = functools.partial(store.SqliteOffsetStorage, fold_after=FOLD_AFTER)
    store.SqliteOffsetStorage = early  # type: ignore[misc,assignment]
    main()


async def load(port: int) -> list[float]:
    """Commit at a steady rate. Return the latency of each commit in ms, after the warm-up."""
    took: list[float] = []
    started = time.perf_counter()
    frames = [commit_frame(f"group-{number}") for number in range(CONNECTIONS)]
    await asyncio.gather(
        *(_commit(port, frame, number, started, took) for number, frame in enumerate(frames))
    )
    return took


async def _commit(port: int, frame: bytes, number: int, started: float, took: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    due = started + PERIOD_S * number / CONNECTIONS
    end = started + WARM_UP_S + RUN_S
    while due < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        sent = time.perf_counter()
        writer.write(frame)
        size = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(size)
        if sent > started + WARM_UP_S:
            took.append((time.perf_counter() - sent) * 1000)
        due = max(due + PERIOD_S, time.perf_counter() - 1)
    writer.close()


def commit_frame(group_id: str) -> bytes:
    """Return the frame of a simple consumer's commit of ten partitions."""
    from tests.helpers.wire.raw_client import encode_request

    rows = [
        {
            "partition_index": partition,
            "committed_offset": 1_000,
            "committed_leader_epoch": -1,
            "committed_metadata": None,
        }
        for partition in range(PARTITIONS)
    ]
    values = {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": "orders", "partitions": rows}],
    }
    return encode_request("offset_commit", 8, values, 1, "bench")


def measure(sealing: str) -> tuple[list[float], float]:
    """Run the daemon once. Return the latencies and the number of segments that it sealed."""
    from tests.helpers.daemon.daemon import Daemon

    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        daemon = Daemon(
            Path(directory),
            topics={"orders": PARTITIONS},
            settings={"log.sealing": sealing, "log.segment_bytes": SEGMENT_BYTES},
        )
        daemon.entry = ("-m", "bench.sealing_bench")
        daemon.start()
        try:
            took = asyncio.run(load(int(daemon.bootstrap.rpartition(":")[2])))
            segments = daemon.metric("groupkeeper_log_segments_sealed_total")
        finally:
            daemon.stop()
    return took, segments


def cpu_of_the_thread() -> str:
    """Seal rows of 64 commits of ten partitions. Return a line with the CPU time of this thread."""
    from groupkeeper.coordinator.core.records import (
        CommittedTopic,
        OffsetsCommitted,
    )
    from groupkeeper.storage.base import Batch, ShardAppend
    from groupkeeper.storage.codec.events import Stamp
    from groupkeeper.storage.codec.records import encode_payload
    from groupkeeper.storage.event_log.lines import row_lines
    from groupkeeper.storage.event_log.sealing.sealer import Pacer, Sealer, SealSettings

    def commit(number: int) -> OffsetsCommitted:
        rows = [(p, number * 977 + p * 131_071, number * 977, 0, "") for p in range(PARTITIONS)]
        who = f"consumer-billing-{number % 8}-6f9619ff-8b86-d011-b42d-00c04fc964ff"
        topics = [CommittedTopic("orders", "2QeIYRJmSFqXDgnwYbWEzA", rows)]
        return OffsetsCommitted(
            f"billing-{number % 50}", 5, who, None, "consumer", "/10.0.0.7", "User:ANONYMOUS",
            1_700_000_000_000 + number, -1, topics,
        )  # fmt: skip

    pieces: list[float] = []
    last = time.thread_time()

    def note() -> float:
        nonlocal last
        now = time.thread_time()
        pieces.append(now - last)
        last = time.thread_time()
        return now

    with tempfile.TemporaryDirectory() as directory:
        pacer = Pacer(note, lambda _: None)
        sealer = Sealer(SealSettings(directory=Path(directory)), lambda: 0, pacer)
        total, events, last = 0.0, 0, time.thread_time()
        for row in range(300):
            batch = Batch([commit(row * 64 + number) for number in range(64)], [])
            stamp = Stamp("log", 1_700_000_000_000, 1_700_000_000_000)
            data = encode_payload(stamp, 0, [ShardAppend(0, 1, [batch], lambda _: None)])
            begun = last = time.thread_time()
            sealer.take(row_lines(1 + row * 64, data))
            total += time.thread_time() - begun
            events += 64
        (segment,) = sealer.seal()
    pieces.sort()
    per_event_us = total / events * 1e6
    return (
        f"CPU of the thread: {per_event_us:.1f} us a commit of {PARTITIONS}, "
        f"{segment.json_bytes / events:.0f} bytes of JSON, {segment.file_bytes / events:.0f} in "
        f"the file; between two looks at the clock p99 {pieces[int(0.99 * len(pieces))] * 1e6:.0f} "
        f"us, longest {pieces[-1] * 1e6:.0f} us"
    )


def main() -> None:
    """Measure by turns, and print the quantiles of each run."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(cpu_of_the_thread())
    found: dict[str, list[list[float]]] = {"off": [], "on": []}
    for turn in range(rounds):
        for sealing in ("off", "on") if turn % 2 == 0 else ("on", "off"):
            took, segments = measure(sealing)
            found[sealing].append(took)
            print(f"round {turn + 1}, sealing {sealing}: {_line(took)}, {segments:.0f} segments")
    for sealing, runs in found.items():
        medians = [statistics.median(_quantile(run, q) for run in runs) for q in (0.5, 0.99, 0.999)]
        p50, p99, p999 = medians
        print(f"sealing {sealing}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, p99.9 {p999:.2f} ms")


def _line(took: list[float]) -> str:
    quantiles = (_quantile(took, q) for q in (0.5, 0.99, 0.999))
    p50, p99, p999 = quantiles
    rate = len(took) / RUN_S
    return f"{rate:.0f} commits/s, p50 {p50:.2f} ms, p99 {p99:.2f} ms, p99.9 {p999:.2f} ms"


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


if __name__ == "__main__":
    serve() if sys.argv[1:2] == ["serve"] else main()
