"""The real daemon as a process that tests start, query, stop and kill.

It writes its settings into ``directory``. Its ports, store and log file stay the same over
restarts, so a client sees only an outage. The creator has to call ``stop`` at the end.
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
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[3]
START_LIMIT_S = 60
STOP_LIMIT_S = 30

_DEFAULTS: Mapping[str, Any] = {
    "group.initial_rebalance_delay_ms": 0,
    "logging.format": "json",
}


def free_port() -> int:
    """Return a free loopback port below the range of outgoing connections.

    Any client on this machine could get a port of that range while the daemon is down.
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
    """The arguments of python. A test with failpoints replaces them."""

    python: str = sys.executable
    """The interpreter. A benchmark replaces it."""

    def __init__(
        self,
        directory: Path,
        *,
        storage_url: str | None = None,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the daemon without starting it. ``settings`` maps ``section.key`` to a value."""
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
        """Limit the number of its file descriptors at the next start."""
        self.max_files = count

    @property
    def bootstrap(self) -> str:
        """Return HOST:PORT for clients."""
        return str(self.settings["kafka.listen"])

    @property
    def http(self) -> str:
        """Return the base URL of the HTTP port."""
        return f"http://{self.settings['http.listen']}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    @property
    def log(self) -> str:
        """Return the log of all its runs."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def write_config(self) -> None:
        """Write the settings file. ``start`` calls this, and so does a test of SIGHUP."""
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
        inherited.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed daemon is compiled, too
        limited = [] if self.max_files is None else ["prlimit", f"--nofile={self.max_files}"]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*limited, self.python, *self.entry, "serve", "--config", str(self.config_file)],
                cwd=self.directory,
                env={**inherited, "PYTHONPATH": str(ROOT), **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start(self) -> Self:
        """Start the process and return when it serves groups."""
        self.launch()
        self.wait_ready()
        return self

    def wait_ready(self) -> None:
        """Poll /readyz until the daemon serves groups. Raises AssertionError if it ends or takes
        ``START_LIMIT_S``.
        """
        assert self.process is not None
        for _ in range(START_LIMIT_S * 50):
            if self.process.poll() is not None:
                raise AssertionError(f"exited with {self.process.returncode}:\n{self.log}")
            if self.get("/readyz")[0] == 200:
                return
            time.sleep(0.02)
        raise AssertionError(f"not ready in {START_LIMIT_S} s:\n{self.log}")

    def get(self, path: str) -> tuple[int, str]:
        """GET from the HTTP port. Return status and body; status 0 if there is no answer."""
        try:
            with urllib.request.urlopen(self.http + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return 0, ""

    def metric(self, sample: str) -> float:
        """Return a sample of /metrics by its name with labels; 0.0 if it does not exist."""
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
        """Kill the process with SIGKILL, and wait for its end."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_LIMIT_S)

    def restart(self) -> None:
        """Stop it cleanly and start it again."""
        self.terminate()
        self.start()

    def stop(self) -> None:
        """End it in any state, at the end of a test."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
