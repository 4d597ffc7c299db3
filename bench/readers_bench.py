"""Measure a Reader beside a bare aiokafka consumer, and how soon a killed process is replaced.

    python -m bench.readers_bench

Starts a Kafka (needs Java and Maven) and a Consul (from Debian's archive), and takes a minute.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as TheirPartition

from groupkeeper.clients.readers.reader import Reader
from tests.helpers.clients.real_consul import RealConsul
from tests.registry.readers.log_of_messages import COUNTS, PARTITIONS, TOPIC, Watched, fill
from tests.registry.readers.reader_process import LOCK_DELAY_MS, TTL_MS

MESSAGES = 100_000
ROUNDS = 3


async def ours(bootstrap: str, buffer: int) -> float:
    """Return how many messages a second a Reader returns."""
    async with Reader(bootstrap, "long", 0, buffer) as reader, reader.read(0) as messages:
        await anext(messages)
        began = time.perf_counter()
        for _ in range(MESSAGES - 1):
            await anext(messages)
        return MESSAGES / (time.perf_counter() - began)


async def theirs(bootstrap: str) -> float:
    """Return how many messages a second aiokafka's consumer returns."""
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        partition = TheirPartition("long", 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        await consumer.getone()
        began = time.perf_counter()
        for _ in range(MESSAGES - 1):
            await consumer.getone()
        return MESSAGES / (time.perf_counter() - began)


async def rates(bootstrap: str) -> None:
    """Let aiokafka and our Reader take turns, and print the medians."""
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        found.setdefault("aiokafka", []).append(await theirs(bootstrap))
        for buffer in (0, 1_000):
            found.setdefault(f"buffer {buffer}", []).append(await ours(bootstrap, buffer))
    peer = statistics.median(found["aiokafka"])
    for name, each in found.items():
        rate = statistics.median(each)
        print(f"{name:<12} {rate:>10,.0f} messages/s  {rate / peer:.2f} of aiokafka")


def lines(path: Path) -> list[list[int]]:
    """Return what a process wrote for each message: time in ns, partition, offset."""
    text = path.read_text() if path.exists() else ""
    return [[int(each) for each in line.split()] for line in text.splitlines()]


def takeover(consul: str, bootstrap: str, directory: Path) -> None:
    """Print how long the partitions of a killed process were read by nobody."""
    command = [sys.executable, "-m", "tests.registry.readers.reader_process", consul, bootstrap]
    paths = [directory / "killed", directory / "left"]
    processes = [
        subprocess.Popen(
            [*command, "bench", TOPIC, str(PARTITIONS), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for path in paths
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        time.sleep(2)
        processes[0].kill()
        killed_ns = time.monotonic_ns()
        time.sleep(2 * TTL_MS / 1000 + 5)
        lost = {partition for _, partition, _ in lines(paths[0])}
        firsts = {p: t for t, p, _ in reversed(lines(paths[1])) if p in lost and t > killed_ns}
        waits = [(t - killed_ns) / 1e9 for t in firsts.values()]
        print(
            f"killed with {len(lost)} partitions: read by the other after {min(waits):.1f} to "
            f"{max(waits):.1f} s (TTL {TTL_MS / 1000:.0f} s, lock delay {LOCK_DELAY_MS / 1000:.0f})"
        )
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def main() -> None:
    """Start both servers, measure, and stop them."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        kafka = Watched(directory / "kafka")
        consul = RealConsul(directory / "consul")
        try:
            consul.start()
            asyncio.run(fill(kafka.bootstrap, "long", [MESSAGES]))
            asyncio.run(fill(kafka.bootstrap, TOPIC, COUNTS))
            asyncio.run(rates(kafka.bootstrap))
            takeover(consul.address, kafka.bootstrap, directory)
        finally:
            consul.stop()
            kafka.stop()


if __name__ == "__main__":
    main()
