"""What systemd is told, and when."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator

import pytest

from groupkeeper.coordinator.daemon.systemd import READY, Systemd, reloading
from tests.helpers.runtime.virtual_loop import run_virtual


@pytest.fixture
def listener(tmp_path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(tmp_path / "notify"))
        bound.setblocking(False)
        yield bound


def heard(listener: socket.socket) -> list[str]:
    messages = []
    while True:
        try:
            messages.append(listener.recv(4096).decode())
        except BlockingIOError:
            return messages


def test_a_message_goes_to_the_socket_with_its_status(listener):
    Systemd({"NOTIFY_SOCKET": listener.getsockname()}).notify(READY, "serving")
    assert heard(listener) == ["READY=1\nSTATUS=serving"]


def test_a_leading_at_sign_names_an_abstract_socket():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        name = f"groupkeeper-test-{os.getpid()}"
        bound.bind(f"\0{name}")
        bound.setblocking(False)
        Systemd({"NOTIFY_SOCKET": f"@{name}"}).notify(READY)
        assert heard(bound) == ["READY=1"]


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": "/nowhere/to/be/found"}])
def test_where_nobody_listens_nothing_happens(environment):
    Systemd(environment).notify(READY)


def test_a_full_socket_does_not_hold_up_the_loop(listener):
    systemd = Systemd({"NOTIFY_SOCKET": listener.getsockname()})
    for _ in range(10_000):
        systemd.notify(READY)
    assert 0 < len(heard(listener)) < 10_000


def test_a_reload_begins_with_the_time_that_notify_reload_asks_for():
    first, second = reloading().split("\n")
    assert first == "RELOADING=1"
    assert second.removeprefix("MONOTONIC_USEC=").isdigit()


def watched(listener: socket.socket, seconds: float, **environment: str) -> list[str]:
    async def live() -> None:
        systemd = Systemd({"NOTIFY_SOCKET": listener.getsockname(), **environment})
        systemd.start_watchdog()
        await asyncio.sleep(seconds)
        systemd.stop_watchdog()
        await asyncio.sleep(1_000)

    run_virtual(live())
    return heard(listener)


def test_the_watchdog_hears_from_the_loop_twice_in_its_time(listener):
    assert watched(listener, 61, WATCHDOG_USEC="30000000") == ["WATCHDOG=1"] * 5


def test_a_watchdog_of_another_process_is_not_fed(listener):
    assert watched(listener, 61, WATCHDOG_USEC="30000000", WATCHDOG_PID="1") == []


def test_without_a_watchdog_nothing_is_said(listener):
    assert watched(listener, 61) == []
