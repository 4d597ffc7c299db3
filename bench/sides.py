"""The servers of ``bench/beside_kafka.py``, each with its load generator (``bench/load``).

groupkeeper runs with its hot path compiled, and with its defaults but for ``SETTINGS``. Kafka runs
from Maven's jars with the flags of its start script. The echo returns every frame as it is.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import guard
from tests.conformance.kafka.servers import JarsKafka
from tests.helpers.clients import ecosystem
from tests.helpers.daemon.servers import Groupkeeper

ROOT = Path(__file__).resolve().parents[1]
TOPICS = {"bench": 12}
WIDE_TOPICS = TOPICS | {"wide": 1_000}
"""``TOPICS``, and a topic with enough partitions for 500 members."""
SESSION_MS = 1_200_000
"""The session timeout. It is so long that no member is evicted while another server is measured."""
SETTINGS = {
    "kafka.max_connections": 20_000,
    "kafka.max_connections_per_address": 20_000,
    "group.consumer_session_timeout_ms": SESSION_MS,
    "group.consumer_max_session_timeout_ms": SESSION_MS,
}
"""All members have one address: up to 10,000 of one group, and those of the other loads."""
PROPERTIES = f"""
group.consumer.session.timeout.ms={SESSION_MS}
group.consumer.max.session.timeout.ms={SESSION_MS}
group.consumer.assignment.interval.ms=1000
group.consumer.min.heartbeat.interval.ms=5000
group.consumer.min.session.timeout.ms=45000
"""
"""Our defaults, and the timeouts above."""
ASK_LIMIT_S = 180.0
"""How long to wait for the result of one order. The generator gives up earlier, with a better error
message.
"""
STOP_LIMIT_S = 10.0
SMALL_JVM = ("-Xms", "-Xmx", "-XX:")
SHIPPED_JVM = (
    "-server",
    "-Xms1G",
    "-Xmx1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""The flags of kafka-server-start.sh."""


class Kafka(JarsKafka):
    """Apache Kafka as its start script runs it."""

    def __init__(self, directory: Path, topics: dict[str, int]) -> None:
        super().__init__(directory, small=False)
        self.topics = topics

    def command(self) -> list[str]:
        """Return the command with the shipped flags of the JVM."""
        machine, *rest = super().command()
        with Path(rest[-1]).open("a") as properties:
            properties.write(PROPERTIES)  # of a name that is set twice, the last value counts
        return [machine, *SHIPPED_JVM, *(a for a in rest if not a.startswith(SMALL_JVM))]


class Side:
    """A server, and the load generator that sends requests to it."""

    def __init__(self, name: str, load: list[str]) -> None:
        self.name = name
        self._load = subprocess.Popen(
            load, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **order: Any) -> dict[str, Any]:
        """Give the generator an order, and wait for its result."""
        assert self._load.stdin is not None
        assert self._load.stdout is not None
        self._load.stdin.write(json.dumps(order) + "\n")
        self._load.stdin.flush()
        if not select.select([self._load.stdout], [], [], ASK_LIMIT_S)[0]:
            raise SystemExit(f"{self.name}, {order}: no result in {ASK_LIMIT_S:.0f} s")
        answer = self._load.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.name}, {order}: the load generator ended")
        found: dict[str, Any] = json.loads(answer)
        if found.get("errors"):
            raise SystemExit(f"{self.name}, {order}: {found}")
        return found

    def stop(self) -> None:
        """End the generator."""
        _end(self._load)

    @property
    def ended(self) -> bool:
        """Return True if the generator has ended."""
        return self._load.poll() is not None


@contextmanager
def started(
    directory: Path, python: str, topics: dict[str, int] | None = None
) -> Iterator[dict[str, Side]]:
    """Start the three servers and their generators. Both coordinators have ``topics``, by default
    ``TOPICS``.
    """
    topics = topics or TOPICS
    (binary,) = ecosystem.go_program("bench-load", ROOT / "bench" / "load")
    with ExitStack() as stack:

        def side(name: str, port: int, pid: int, *more: str) -> Side:
            made = Side(name, [binary, "-addr", f"127.0.0.1:{port}", "-pid", str(pid), *more])
            stack.callback(made.stop)
            return made

        ours = groupkeeper(directory, python, topics)
        stack.callback(ours.stop)
        ours.start()
        kafka = Kafka(directory / "kafka", topics)
        stack.callback(kafka.stop)
        kafka.start()
        echo = subprocess.Popen(
            [python, "-m", "bench.echo"],
            cwd=ROOT,
            env={"PYTHONPATH": _path(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(_end, echo)
        assert echo.stdout is not None
        if not select.select([echo.stdout], [], [], STOP_LIMIT_S)[0]:
            raise SystemExit("the echo did not start")
        port = int(echo.stdout.readline())
        yield {
            "ours": side("ours", ours.port, ours.pid),
            "Kafka": side("Kafka", kafka.port, kafka.pid),
            "echo": side("echo", port, echo.pid, "-echo"),
        }


def _end(process: subprocess.Popen[str]) -> None:
    """End a process that stops when its standard input is closed; kill it if it does not."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.close()
        process.wait(STOP_LIMIT_S)
    except (BrokenPipeError, subprocess.TimeoutExpired):
        process.kill()
        process.wait()
    process.stdout.close()


def groupkeeper(directory: Path, python: str, topics: dict[str, int]) -> Groupkeeper:
    """Return the daemon of this tree, compiled."""
    tree = directory / "tree"
    guard.take_working_tree(tree)
    guard.compile_in_place(tree)
    # An installed daemon has no hypothesis. If kio finds it, it imports it: 8 MiB.
    (tree / "hypothesis.py").write_text("raise ImportError\n")
    daemon = Groupkeeper(
        directory / "ours",
        topics=topics,
        settings=SETTINGS,
        environment={"PYTHONPATH": _path(tree)},
    )
    # The daemon starts in a directory of its own. A path of this directory means nothing there.
    daemon.python = os.path.abspath(shutil.which(python) or python)
    return daemon


def _path(tree: Path) -> str:
    """Return a PYTHONPATH, so that another interpreter finds the libraries of this one."""
    return f"{tree}:{sysconfig.get_path('purelib')}"
