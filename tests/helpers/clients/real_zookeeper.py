"""A real ZooKeeper with one node, from Debian's package, on a free loopback port."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.helpers.clients.ecosystem import zookeeper
from tests.helpers.daemon.daemon import free_port

TICK_MS = 100
"""A session ends at most one tick after its timeout. The usual tick of two seconds would make tests
slow.
"""
START_LIMIT_S = 60

SETTINGS = """\
tickTime={tick}
dataDir={directory}/data
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
minSessionTimeout={tick}
maxSessionTimeout=60000
4lw.commands.whitelist=srvr
"""


class RealZooKeeper:
    """The server. Raises ``ecosystem.Unavailable`` if Java or the package is missing."""

    def __init__(self, directory: Path, settings: Mapping[str, str | int] | None = None) -> None:
        self.port = free_port()
        self._directory = directory
        self._settings = dict(settings or {})
        self._command = zookeeper()
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "data").mkdir(parents=True, exist_ok=True)

    @property
    def servers(self) -> str:
        """Return HOST:PORT for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> RealZooKeeper:
        """Start the server, and wait until it answers."""
        self.launch()
        return self.wait()

    def launch(self) -> None:
        """Start the server, and return at once."""
        path = self._directory / "zoo.cfg"
        text = SETTINGS.format(tick=TICK_MS, directory=self._directory, port=self.port)
        path.write_text(text + "".join(f"{k}={v}\n" for k, v in self._settings.items()))
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, str(path)], stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> RealZooKeeper:
        """Wait until the server answers."""
        assert self._process is not None
        until = time.monotonic() + START_LIMIT_S
        while not self.mode():
            log_text = (self._directory / "server.log").read_text()[-2000:]
            assert self._process.poll() is None, f"the server ended:\n{log_text}"
            assert time.monotonic() < until, f"the server does not answer:\n{log_text}"
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        """End the server in any state. Its data stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def mode(self) -> str:
        """Return "standalone", "leader" or "follower"; empty if it does not answer yet."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as asked:
                asked.sendall(b"srvr")
                # a server answers before it accepts sessions, but names no mode then
                told = asked.makefile("rb").read().decode()
                return told.partition("Mode: ")[2].partition("\n")[0]
        except OSError:
            return ""
