"""The two sides of a comparison as processes: Apache Kafka from Maven's jars, and the daemon."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.kafka import settings
from tests.helpers.clients import ecosystem
from tests.helpers.daemon.servers import Groupkeeper, Kafka

PROPERTIES = """\
process.roles=broker,controller
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
"""
JVM = ("-Xms256m", "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class JarsKafka(Kafka):
    """Apache Kafka 4.3.1 in one JVM, broker and controller, on a directory of its own."""

    def __init__(self, directory: Path, *, small: bool) -> None:
        super().__init__(directory, {settings.TOPIC: settings.PARTITIONS})
        self.small = small

    def command(self) -> list[str]:
        machine = ecosystem.need("java", ecosystem.JDK)
        path = f"{ecosystem.kafka_jars()}/*"
        data = self.directory / "data"
        properties = self.directory / "server.properties"
        text = PROPERTIES.format(port=self.port, controller=self.port + 1, data=data)
        of_table = settings.of_kafka(small=self.small).items()
        lines = [
            f"{name}={value if isinstance(value, str) else json.dumps(value)}\n"
            for name, value in of_table
        ]
        properties.write_text(text + "".join(lines))
        if not data.exists():
            tool = [machine, *JVM, "-cp", path, "kafka.tools.StorageTool"]
            ecosystem.run([*tool, "format", "-t", settings.CLUSTER_ID, "-c", str(properties)])
        return [machine, *JVM, "-cp", path, "kafka.Kafka", str(properties)]


@dataclass(frozen=True)
class Servers:
    """A pair of servers with the same settings."""

    kafka: JarsKafka
    ours: Groupkeeper
    scratch: Path

    @property
    def ports(self) -> tuple[int, int]:
        """Kafka's and ours."""
        return self.kafka.port, self.ours.port

    def restart(self) -> None:
        """Kill both, and start both again on what they have stored."""
        for one in (self.kafka, self.ours):
            one.kill()
        with ThreadPoolExecutor(2) as pool:
            for started in [pool.submit(one.start) for one in (self.kafka, self.ours)]:
                started.result()

    def stop(self) -> None:
        """End both, by their process ids, and forget what they wrote."""
        self.ours.stop()
        self.kafka.stop()
        shutil.rmtree(self.scratch, ignore_errors=True)


def start(*, small: bool, storage_url: str = "memory:") -> Servers:
    """Start both side by side; raises ``Unavailable`` where this machine cannot."""
    memory = Path("/dev/shm")  # a broker flushes hundreds of files while it starts
    scratch = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
    servers = Servers(
        JarsKafka(scratch / "kafka", small=small),
        Groupkeeper(
            scratch / "ours",
            storage_url=storage_url,
            topics={settings.TOPIC: settings.PARTITIONS},
            settings={
                **settings.of_ours(small=small),
                "kafka.cluster_id": settings.CLUSTER_ID,
                "storage.append_timeout_ms": settings.MIN_SESSION_MS - 100,
            },
        ),
        scratch,
    )
    try:
        with ThreadPoolExecutor(2) as pool:
            started = [pool.submit(each.start) for each in (servers.kafka, servers.ours)]
            for one in started:
                one.result()
    except BaseException:
        servers.stop()
        raise
    return servers


@contextmanager
def stopped_in_the_end(starting: Sequence[Future[Servers]]) -> Iterator[None]:
    """Stop them when the block ends, and at once when the run is told to end by SIGTERM: what is
    under way fails then, and nobody waits for it.
    """

    def stop() -> None:
        for one in starting:
            if one.exception() is None:  # waits until the server has started or failed
                one.result().stop()

    def end_of_the_run(*_: object) -> None:
        stop()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end_of_the_run)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        stop()
