"""Compare a Kafka broker with the same broker behind the gateway, by turns, in one run.

    python -m bench.gateway                  about four minutes
    python -m bench.gateway --megabytes 1000 --rounds 5

A ratio is the median of the ratios of the rounds, because the speed of a shared machine changes
from minute to minute. CPU is that of the process between client and broker, in user and in system
time. The bare relay shows the least that such a process costs on this machine: it is on uvloop, and
copies bytes without reading them. The benchmark needs a JDK and Maven.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import uvloop
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.daemon.daemon import free_port
from tests.helpers.daemon.gateways import a_gateway
from tests.helpers.wire.raw_client import RawClient

TOPIC = "bench"
BATCH_BYTES = 100_000
RECORD_BYTES = 10_000
PINGS = 2_000
WARM_UP_MB = 20
DEFAULT_REFRESH_MS = 5_000
LIMIT_S = 300.0


class Way(NamedTuple):
    """A way to the broker."""

    name: str
    bootstrap: str
    broker_port: int
    """The port on which this way leads to the broker itself."""
    pid: int | None
    """The process between client and broker. None if there is no such process."""


class Cpu(NamedTuple):
    """The CPU time of a process so far."""

    user_s: float
    system_s: float


def cpu(pid: int | None) -> Cpu:
    """Return the CPU time of a process so far. It is 0 if ``pid`` is None."""
    if pid is None:
        return Cpu(0.0, 0.0)
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks_a_second = os.sysconf("SC_CLK_TCK")
    return Cpu(int(fields[11]) / ticks_a_second, int(fields[12]) / ticks_a_second)


def produce(way: Way, megabytes: int) -> float:
    """Produce records in batches of 100 KB. Return MB a second."""
    producer = Producer(
        {
            "bootstrap.servers": way.bootstrap,
            "batch.size": BATCH_BYTES,
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 100_000,
        }
    )
    record = bytes(RECORD_BYTES)
    begun_s = time.perf_counter()
    for _ in range(megabytes * 1_000_000 // RECORD_BYTES):
        while True:
            try:
                producer.produce(TOPIC, partition=0, value=record)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(LIMIT_S) == 0
    return megabytes / (time.perf_counter() - begun_s)


def consume(way: Way, megabytes: int) -> float:
    """Consume from the beginning. Return MB a second."""
    consumer = Consumer(
        {"bootstrap.servers": way.bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    left = megabytes * 1_000_000 // RECORD_BYTES
    begun_s = time.perf_counter()
    while left > 0:
        assert time.perf_counter() - begun_s < LIMIT_S, "the records do not come"
        left -= len(consumer.consume(1_000, 1.0))
    took_s = time.perf_counter() - begun_s
    consumer.close()
    return megabytes / took_s


def ping(way: Way) -> float:
    """Return the median time in ms of a small request, which a gateway passes to the broker."""
    topics = [
        {
            "name": TOPIC,
            "partitions": [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}],
        }
    ]
    took_s = []
    with RawClient(way.broker_port) as raw:
        for _ in range(PINGS):
            begun_s = time.perf_counter()
            raw.call("list_offsets", 4, topics=topics, replica_id=-1, isolation_level=0)
            took_s.append(time.perf_counter() - begun_s)
    return statistics.median(took_s) * 1_000


class Bare(asyncio.Protocol):
    """One direction of the bare relay: writes what it reads to the other side."""

    def __init__(self, port: int | None, other: Bare | None = None) -> None:
        self._port = port
        self._other = other
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the broker, if this is the side of the client."""
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        if self._port is not None:
            self._task = asyncio.get_running_loop().create_task(self._connect(self._port))

    async def _connect(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        _, self._other = await loop.create_connection(lambda: Bare(None, self), "127.0.0.1", port)
        for data in self._early:
            self._other.transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Pass the bytes on."""
        if self._other is None:
            self._early.append(data)
        else:
            self._other.transport.write(data)

    def pause_writing(self) -> None:
        """Read no more from the other side."""
        if self._other is not None:
            self._other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the other side again."""
        if self._other is not None:
            self._other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the other side."""
        if self._other is not None:
            self._other.transport.close()


async def relay(listen: int, port: int) -> None:
    """Serve as the bare relay until the standard input ends."""
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Bare(port), "127.0.0.1", listen)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def behind_relay(port: int, second_port: int, relay_port: int) -> dict[str, str]:
    """Return broker settings with a second listener. Its advertised address is that of
    the relay.
    """
    first, own = f"PLAINTEXT://127.0.0.1:{port}", f"CONTROLLER://127.0.0.1:{port + 1}"
    names = ("CONTROLLER", "PLAINTEXT", "RELAY")
    return {
        "listeners": f"{first},RELAY://127.0.0.1:{second_port},{own}",
        "advertised.listeners": f"{first},RELAY://127.0.0.1:{relay_port}",
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
    }


def measure(ways: list[Way], rounds: int, megabytes: int) -> None:
    """Print the figures of each way, and its ratios to the direct one."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for way in ways:  # the first requests make the codecs of their versions
        produce(way, WARM_UP_MB)
        consume(way, WARM_UP_MB)
        ping(way)
    for _ in range(rounds):
        for way in ways:
            for what, run in (("produce", produce), ("consume", consume)):
                before = cpu(way.pid)
                found[way.name, f"{what}, MB/s"].append(run(way, megabytes))
                after = cpu(way.pid)
                user_ms, system_ms = (
                    (end_s - start_s) * 1_000 / megabytes
                    for start_s, end_s in zip(before, after, strict=True)
                )
                found[way.name, f"{what}, CPU ms a MB"].append(user_ms + system_ms)
                found[way.name, f"{what}, user ms a MB"].append(user_ms)
                found[way.name, f"{what}, system ms a MB"].append(system_ms)
            found[way.name, "small request, p50 ms"].append(ping(way))
    print(f"{'':26}" + "".join(f"{way.name:>28}" for way in ways))
    for what in dict.fromkeys(what for _, what in found):
        line = f"{what:26}"
        direct = found[ways[0].name, what]
        for way in ways:
            values = found[way.name, what]
            text = f"{statistics.median(values):.2f}"
            if way is not ways[0] and all(direct):
                ratios = [mine / theirs for mine, theirs in zip(values, direct, strict=True)]
                text += f" ({statistics.median(ratios):.2f} of direct)"
            line += f"{text:>28}"
        print(line)


def main() -> None:
    """Start the broker, the bare relay and the daemon, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--relay", nargs=2, type=int, metavar=("LISTEN", "PORT"))
    asked = parser.parse_args()
    if asked.relay:
        uvloop.run(relay(*asked.relay))
        return
    with tempfile.TemporaryDirectory() as directory:
        bare_port, behind_bare_port = free_port(), free_port()
        kafka = RealKafka(Path(directory, "kafka"), {TOPIC: 1})
        kafka.settings |= behind_relay(kafka.port, behind_bare_port, bare_port)
        # Tests ask for the topics ten times as often as a gateway does by default.
        settings = {"upstream.metadata_refresh_ms": DEFAULT_REFRESH_MS}
        gateway = a_gateway(Path(directory, "gateway"), kafka.bootstrap, settings)
        command = [sys.executable, "-m", "bench.gateway", "--relay", str(bare_port)]
        bare = subprocess.Popen(
            [*command, str(behind_bare_port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            kafka.start()
            gateway.start()
            assert bare.stdout is not None
            bare.stdout.readline()
            first = int(str(gateway.settings["upstream.ports"]).split("-")[0])
            ways = [
                Way("direct", kafka.bootstrap, kafka.port, None),
                Way("bare relay", f"127.0.0.1:{bare_port}", bare_port, bare.pid),
                Way("gateway", gateway.bootstrap, first, gateway.pid),
            ]
            measure(ways, asked.rounds, asked.megabytes)
        finally:
            bare.kill()
            gateway.stop()
            kafka.stop()


if __name__ == "__main__":
    main()
