"""Servers for tests with real clients: the daemon, or a real Apache Kafka in its place.

To check what the tests expect, run them against Kafka. Set ``CONFORMANCE_KAFKA`` to a command that
starts a broker in the foreground. A port and a directory are appended to the command.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from tests.helpers.daemon.daemon import Daemon, free_port
from tests.helpers.wire.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Mapping

START_LIMIT_S = 60


class Server(Protocol):
    """A process that speaks Kafka. Its port and directory stay the same after a restart."""

    @property
    def port(self) -> int:
        """Return the port for clients."""

    @property
    def pid(self) -> int:
        """Return the id of the process that runs now."""

    def start(self) -> object:
        """Start the server, and wait until it answers requests about groups."""

    def terminate(self) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""

    def stop(self) -> None:
        """End the server in any state. Fixtures call this."""


class Groupkeeper(Daemon):
    """The daemon, with its port as a number."""

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])


class ArmedDaemon(Groupkeeper):
    """A daemon that kills itself at a point that a test chooses. A subclass sets ``entry`` to a
    program with such points.
    """

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(directory, **options)
        self._order = directory / "failpoint"
        self.environment = {"FAILPOINT_FILE": str(self._order)}

    def arm(self, point: str, count: int) -> None:
        """Let the daemon die when it reaches the point for the count-th time from now on."""
        ready = self._order.with_suffix(".new")
        ready.write_text(f"{point} {count}")
        ready.rename(self._order)

    def start(self) -> Self:
        """Start the daemon. It does not die before the next ``arm``."""
        self._order.unlink(missing_ok=True)
        super().start()
        return self

    def is_dead(self) -> bool:
        """Return True if the daemon has ended, because it reached its point."""
        assert self.process is not None
        return self.process.poll() is not None


class ForgetfulDaemon(Groupkeeper):
    """A daemon on a disk that can fail to sync. The pages of that sync are lost when it ends."""

    entry = ("-m", "tests.helpers.daemon.forgetful_daemon")

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(directory, **options)
        self._order = directory / "fail-sync"
        self.environment = {"FAIL_SYNC_FILE": str(self._order)}

    def fail_sync(self) -> None:
        """Let the next sync of the database or its write-ahead log fail, once."""
        self._order.touch()

    def forgive(self) -> None:
        """Let no sync fail, if none has failed yet."""
        self._order.unlink(missing_ok=True)


class Kafka:
    """A real broker, started by the command in CONFORMANCE_KAFKA."""

    def __init__(self, directory: Path, topics: Mapping[str, int]) -> None:
        self.directory = directory
        self.topics = dict(topics)
        self.port = free_port()
        while not _is_free(self.port + 1):  # the controller of this broker listens there
            self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = directory / "server.log"
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def command(self) -> list[str]:
        """Return the command that starts the broker."""
        return [*shlex.split(os.environ["CONFORMANCE_KAFKA"]), str(self.port), str(self.directory)]

    def start(self) -> Self:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, start_new_session=True
            )
        for _ in range(START_LIMIT_S * 20):
            if self.process.poll() is not None:
                raise AssertionError(f"exited with {self.process.returncode}:\n{self._log()}")
            if self._answers():
                self._add_topics()
                return self
            time.sleep(0.05)
        raise AssertionError(f"not ready in {START_LIMIT_S} s:\n{self._log()}")

    def _answers(self) -> bool:
        """Return True if the broker answers requests about groups. A new broker creates its offsets
        topic at the first such request.
        """
        try:
            with RawClient(self.port) as client:
                client.call("find_coordinator", 3, key="readiness", key_type=0)
                groups = [{"group_id": f"readiness-{n}", "topics": None} for n in range(200)]
                reply = client.call("offset_fetch", 8, groups=groups, require_stable=False)
                # 200 ids fall into nearly all of its 50 shards, so all shards must be loaded
                return {group["error_code"] for group in reply["groups"]} == {0}
        except OSError:
            return False

    def _add_topics(self) -> None:
        topics = [
            {"name": name, "num_partitions": count, "replication_factor": 1}
            for name, count in self.topics.items()
        ]
        with RawClient(self.port) as client:
            reply = client.call("create_topics", 5, topics=topics, timeout=30_000)
        assert {topic["error_code"] for topic in reply["topics"]} <= {0, 36}, reply

    def terminate(self) -> int:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(60)
        return 0  # a JVM that SIGTERM ended exits with 143, even after a clean stop

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def _log(self) -> str:
        return self.log_path.read_bytes()[-6000:].decode(errors="replace")


def a_server(directory: Path, topics: Mapping[str, int]) -> Server:
    """Return the daemon, or a real Kafka if CONFORMANCE_KAFKA is set. It is not started."""
    if os.environ.get("CONFORMANCE_KAFKA"):
        return Kafka(directory, topics)
    return Groupkeeper(directory, topics=topics)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
