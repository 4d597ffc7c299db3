"""The daemon under a service manager: a socket of the test stands in for systemd's."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator

import pytest

from tests.helpers.daemon.daemon import Daemon

pytestmark = pytest.mark.slow

GIVE_UP_S = 60


@pytest.fixture
def manager(tmp_path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(tmp_path / "notify"))
        bound.settimeout(GIVE_UP_S)
        yield bound


def hear(manager: socket.socket, besides: str = "WATCHDOG=1") -> str:
    """The first line of the next message that is not a watchdog's."""
    while True:
        message = manager.recv(4096).decode()
        if message != besides:
            return message.split("\n")[0]


def test_ready_comes_after_the_load_and_every_change_is_told(tmp_path, manager):
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "100000"}
    daemon = Daemon(tmp_path / "daemon", environment=environment)
    daemon.launch()
    try:
        assert hear(manager) == "READY=1"
        assert daemon.get("/readyz") == (200, "ready\n")
        assert [hear(manager, "") for _ in range(3)] == ["WATCHDOG=1"] * 3
        daemon.signal(signal.SIGHUP)
        assert [hear(manager), hear(manager)] == ["RELOADING=1", "READY=1"]
        daemon.signal(signal.SIGTERM)
        assert hear(manager) == "STOPPING=1"
        assert daemon.wait() == 0
    finally:
        daemon.stop()


def test_a_daemon_that_cannot_start_never_says_that_it_is_ready(tmp_path, manager):
    environment = {"NOTIFY_SOCKET": manager.getsockname()}
    url = f"sqlite:///{tmp_path / 'no' / 'such' / 'folder' / 'groupkeeper.db'}"
    daemon = Daemon(tmp_path / "daemon", storage_url=url, environment=environment)
    daemon.launch()
    assert daemon.wait() == 1
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(4096)
