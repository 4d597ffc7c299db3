"""The real daemon as a process of its own: started, asked, stopped and killed by tests.

It writes its own settings into ``directory`` and keeps its ports, its store and its log file over
restarts, so a client need not notice more than the outage. Whoever makes one calls ``stop`` in the
end.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 60
STOP_LIMIT_S = 30

_DEFAULTS: Mapping[str, Any] = {
    "group.initial_rebalance_delay_ms": 0,
    "logging.format": "json",
}


def free_port() -> int:
    """A loopback port that nobody listens on, from below the range that outgoing connections take.

    A port of that range could be lost to any client of this machine while the daemon is down.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


class Daemon:
    """``python -m groupkeeper serve`` on free loopback ports."""

    entry: tuple[str, ...] = ("-m", "groupkeeper")
    """What python runs; a test with failpoints puts its own entry here."""

    def __init__(
        self,
        directory: Path,
        *,
        storage_url: str | None = None,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Keep what to start; ``settings`` maps ``section.key`` to a value."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.config_file = directory / "groupkeeper.toml"
        self.log_file = directory / "daemon.log"
        self.environment = dict(environment or {})
        self.process: subprocess.Popen[bytes] | None = None
        self.settings: dict[str, Any] = {
            **_DEFAULTS,
            "kafka.listen": f"127.0.0.1:{free_port()}",
            "http.listen": f"127.0.0.1:{free_port()}",
            "storage.url": storage_url or f"sqlite:///{directory / 'groupkeeper.db'}",
            **(settings or {}),
        }
        self.topics = dict(topics or {})
        self.max_files: int | None = None

    def limit_files(self, count: int) -> None:
        """Start it with no more file descriptors than these."""
        self.max_files = count

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for clients."""
        return str(self.settings["kafka.listen"])

    @property
    def http(self) -> str:
        """The base URL of the HTTP port."""
        return f"http://{self.settings['http.listen']}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    @property
    def log(self) -> str:
        """Everything that all its lives have said."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def write_config(self) -> None:
        """Write the settings file; ``start`` does, a test of SIGHUP does again."""
        lines: list[str] = []
        for section in dict.fromkeys(name.split(".")[0] for name in self.settings):
            lines.append(f"[{section}]")
            for name, value in self.settings.items():
                if name.startswith(section + "."):
                    lines.append(f"{name.split('.', 1)[1]} = {json.dumps(value)}")
        for topic, partitions in self.topics.items():
            lines += ["[[static.topics]]", f'name = "{topic}"', f"partitions = {partitions}"]
        self.config_file.write_text("\n".join(lines) + "\n")

    def launch(self) -> None:
        """Start the process and return at once."""
        assert self.process is None or self.process.poll() is not None, "already running"
        self.write_config()
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("GROUPKEEPER_")}
        limited = [] if self.max_files is None else ["prlimit", f"--nofile={self.max_files}"]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*limited, sys.executable, *self.entry, "serve", "--config", str(self.config_file)],
                cwd=self.directory,
                env={**inherited, "PYTHONPATH": str(ROOT), **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start(self) -> Daemon:
        """Start the process and return when it serves groups."""
        self.launch()
        self.wait_ready()
        return self

    def wait_ready(self) -> None:
        """Poll /readyz. Bounded, and how long it took is nobody's assertion."""
        assert self.process is not None
        for _ in range(START_LIMIT_S * 50):
            if self.process.poll() is not None:
                raise AssertionError(f"exited with {self.process.returncode}:\n{self.log}")
            if self.get("/readyz")[0] == 200:
                return
            time.sleep(0.02)
        raise AssertionError(f"not ready in {START_LIMIT_S} s:\n{self.log}")

    def get(self, path: str) -> tuple[int, str]:
        """GET from the HTTP port: status and body; status 0 when nobody answers."""
        try:
            with urllib.request.urlopen(self.http + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return 0, ""

    def metric(self, sample: str) -> float:
        """One sample of /metrics by its name, labels included; 0.0 where it is not there."""
        for line in self.get("/metrics")[1].splitlines():
            name, _, value = line.rpartition(" ")
            if name == sample:
                return float(value)
        return 0.0

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this process alone."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for the end of the process and return its exit code."""
        assert self.process is not None
        try:
            return self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {STOP_LIMIT_S} s:\n{self.log}") from None

    def terminate(self) -> int:
        """Stop it cleanly and return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_LIMIT_S)

    def restart(self) -> None:
        """Stop it cleanly and start it again."""
        self.terminate()
        self.start()

    def stop(self) -> None:
        """End it whatever state it is in; for the end of a test."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
