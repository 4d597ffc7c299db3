"""Kafka 0.8.2.2: a broker that keeps its cluster in ZooKeeper, the classic consumer, and tools."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.clients.ecosystem import JDK, jars_of, need
from tests.helpers.daemon.daemon import free_port

POM = Path(__file__).parents[2] / "registry" / "zookeeper" / "classic" / "pom.xml"
LIMIT_S = 60
LOG = "log4j.rootLogger=ERROR, A\nlog4j.appender.A=org.apache.log4j.ConsoleAppender\n"
LOG += "log4j.appender.A.layout=org.apache.log4j.SimpleLayout\n"

BROKER = """\
broker.id=0
port={port}
host.name=127.0.0.1
log.dirs={directory}/data
zookeeper.connect={servers}
log.cleaner.enable=false
"""
CONSUMER = """\
group.id={group}
zookeeper.connect={servers}
zookeeper.session.timeout.ms=2000
offsets.storage=zookeeper
auto.commit.interval.ms=200
auto.offset.reset=smallest
rebalance.backoff.ms=200
rebalance.max.retries=300
"""


class ClassicKafka:
    """The programs of this Kafka. Raises ``ecosystem.Unavailable`` if Java or Maven is missing."""

    def __init__(self, directory: Path, servers: str) -> None:
        directory.mkdir()
        (directory / "log4j.properties").write_text(LOG)
        jars = jars_of("classic-kafka-jars", POM)
        self.servers = servers
        self._directory = directory
        self._port = free_port()
        self._java = [need("java", JDK), "-Xmx256m", "-XX:TieredStopAtLevel=1"]
        self._java += [f"-Dlog4j.configuration=file:{directory}/log4j.properties"]
        self._java += ["-cp", f"{jars}/*"]

    @contextlib.contextmanager
    def broker(self) -> Iterator[None]:
        """Run a broker until the end of the block."""
        path = self._directory / "server.properties"
        settings = {"port": self._port, "directory": self._directory, "servers": self.servers}
        path.write_text(BROKER.format(**settings))
        with self._process("kafka.Kafka", str(path)) as process:
            until = time.monotonic() + LIMIT_S
            while not _listens(self._port):
                assert process.poll() is None, self._said()
                assert time.monotonic() < until, self._said()
                time.sleep(0.1)
            yield

    @contextlib.contextmanager
    def consumer(self, group: str, topic: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a consumer of a group until the end of the block. Yield its process."""
        path = self._directory / f"{group}.properties"
        path.write_text(CONSUMER.format(group=group, servers=self.servers))
        named = ["--zookeeper", self.servers, "--topic", topic, "--consumer.config", str(path)]
        with self._process("kafka.tools.ConsoleConsumer", *named) as process:
            yield process

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic with one replica."""
        named = ["--zookeeper", self.servers, "--create", "--topic", topic]
        sizes = ["--partitions", str(partitions), "--replication-factor", "1"]
        self.tool("kafka.admin.TopicCommand", *named, *sizes)

    def produce(self, topic: str, count: int) -> None:
        """Write ``count`` messages, which are the numbers from 0 on."""
        lines = "".join(f"{n}\n" for n in range(count))
        named = ["--broker-list", f"127.0.0.1:{self._port}", "--topic", topic]
        self.tool("kafka.tools.ConsoleProducer", *named, lines=lines)

    def tool(self, main: str, *arguments: str, lines: str = "") -> str:
        """Run a command to its end, and return what it printed."""
        done = subprocess.run(
            [*self._java, main, *arguments],
            input=lines,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        return done.stdout

    @contextlib.contextmanager
    def _process(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self._directory / "said").open("ab") as said:
            process = subprocess.Popen([*self._java, *command], stdout=said, stderr=said)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def _said(self) -> str:
        return (self._directory / "said").read_text()[-3000:]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
