"""The servers of ``bench/beside_kafka.py``, each with its load generator (``bench/load``).

groupkeeper runs with its hot path compiled and its defaults. Kafka runs from Maven's jars with the
flags of its start script. The echo returns every frame as it is.
"""

from __future__ import annotations

import json
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

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, small=False)
        self.topics = TOPICS

    def command(self) -> list[str]:
        """Return the command with the shipped flags of the JVM."""
        machine, *rest = super().command()
        return [machine, *SHIPPED_JVM, *(a for a in rest if not a.startswith(SMALL_JVM))]


class Side:
    """A server under load."""

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
        answer = self._load.stdout.readline()
        if not answer:
            raise SystemExit(f"the load on {self.name} ended")
        found: dict[str, Any] = json.loads(answer)
        if found.get("errors"):
            raise SystemExit(f"{self.name}, {order}: {found}")
        return found

    def stop(self) -> None:
        """End the generator."""
        assert self._load.stdin is not None
        self._load.stdin.close()
        self._load.wait()


@contextmanager
def started(directory: Path, python: str) -> Iterator[dict[str, Side]]:
    """Start the three servers and their generators."""
    (binary,) = ecosystem.go_program("bench-load", ROOT / "bench" / "load")
    with ExitStack() as stack:

        def side(name: str, port: int, pid: int, *more: str) -> Side:
            made = Side(name, [binary, "-addr", f"127.0.0.1:{port}", "-pid", str(pid), *more])
            stack.callback(made.stop)
            return made

        ours = _groupkeeper(directory, python)
        stack.callback(ours.stop)
        ours.start()
        kafka = Kafka(directory / "kafka")
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
        stack.callback(echo.wait)
        assert echo.stdin is not None
        assert echo.stdout is not None
        stack.callback(echo.stdin.close)
        port = int(echo.stdout.readline())
        yield {
            "ours": side("ours", ours.port, ours.pid),
            "Kafka": side("Kafka", kafka.port, kafka.pid),
            "echo": side("echo", port, echo.pid, "-echo"),
        }


def _groupkeeper(directory: Path, python: str) -> Groupkeeper:
    """Return the daemon of this tree, compiled."""
    tree = directory / "tree"
    guard.take_working_tree(tree)
    guard.compile_in_place(tree)
    daemon = Groupkeeper(directory / "ours", topics=TOPICS, environment={"PYTHONPATH": _path(tree)})
    daemon.python = python
    return daemon


def _path(tree: Path) -> str:
    """Return a PYTHONPATH, so that another interpreter finds the libraries of this one."""
    return f"{tree}:{sysconfig.get_path('purelib')}"
