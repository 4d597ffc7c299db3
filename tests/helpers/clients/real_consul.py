"""A real Consul 1.8.7, one server, with a data directory: started by tests, on free ports."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.helpers.clients.ecosystem import need, once, run
from tests.helpers.daemon.daemon import free_port

SCRIPT = Path(__file__).with_name("get_consul.sh")
START_LIMIT_S = 60


def consul() -> Path:
    """Return the path of the program in the cache. It comes from Debian's archive."""
    need("apt-get", "Debian's apt, which fetches Consul")
    fetched = once("consul", [SCRIPT], lambda place: run(["bash", str(SCRIPT), str(place)]))
    return fetched / "usr" / "bin" / "consul"


class RealConsul:
    """One server. Its ports and data stay the same after a restart."""

    def __init__(self, directory: Path, settings: Mapping[str, Any] | None = None) -> None:
        self.directory = directory
        self.port = free_port()
        self.https_port = free_port()
        self._rpc = {name: free_port() for name in ("server", "serf_lan", "serf_wan")}
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self._lists_nodes = "acl" not in (settings or {})
        (directory / "settings.json").write_text(json.dumps(dict(settings or {})))

    @property
    def address(self) -> str:
        """Return HOST:PORT of its HTTP API."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> RealConsul:
        """Start the server, and wait until it has elected itself as leader, and knows its own node:
        before that it creates no session.
        """
        ports = {"http": self.port, "https": self.https_port, "dns": -1, "grpc": -1, **self._rpc}
        (self.directory / "ports.json").write_text(
            # with the default timeouts of an election each test would take half a minute longer
            json.dumps({"ports": ports, "performance": {"raft_multiplier": 1}})
        )
        command = [str(consul()), "agent", "-server", "-bootstrap-expect=1", "-bind=127.0.0.1"]
        files = [f"-config-file={self.directory / name}.json" for name in ("ports", "settings")]
        with (self.directory / "consul.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, f"-data-dir={self.directory / 'data'}", "-node=one", *files],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        for _ in range(START_LIMIT_S * 20):
            if self.process.poll() is not None:
                raise AssertionError(f"exited with {self.process.returncode}:\n{self._log()}")
            if self._is_ready():
                return self
            time.sleep(0.05)
        raise AssertionError(f"no leader in {START_LIMIT_S} s:\n{self._log()}")

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End the server in any state. Fixtures call this."""
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def _is_ready(self) -> bool:
        try:
            has_leader = bool(self._get("status/leader"))
            return has_leader and (not self._lists_nodes or bool(self._get("catalog/nodes")))
        except (OSError, ValueError):
            return False

    def _get(self, path: str) -> object:
        with urllib.request.urlopen(f"http://{self.address}/v1/{path}", timeout=2) as answer:
            return json.load(answer)

    def _log(self) -> str:
        return (self.directory / "consul.log").read_bytes()[-4000:].decode(errors="replace")
