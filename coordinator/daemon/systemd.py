"""Messages to systemd (sd_notify(3)): one datagram each, and none without systemd.

This is our own code, because the packages for it are old or need a C library.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"


def reloading() -> str:
    """Return the message that begins a reload. READY ends it. ``Type=notify-reload`` requires the
    time in the message.
    """
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"


class Systemd:
    """Sends messages to systemd, or nothing if systemd did not start this process."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Read the socket and the watchdog's time from the environment."""
        path = environment.get("NOTIFY_SOCKET", "")
        # a leading @ stands for the zero byte of Linux's abstract names
        self._path = "\0" + path[1:] if path.startswith("@") else path
        # the variables are inherited, but the watchdog watches one process only
        is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._watchdog_s = int(environment.get("WATCHDOG_USEC") or 0) / 1e6 if is_ours else 0.0
        self._timer: asyncio.TimerHandle | None = None

    def notify(self, message: str, status: str = "") -> None:
        """Send a message; ``systemctl status`` shows ``status``."""
        if not self._path:
            return
        text = f"{message}\nSTATUS={status}" if status else message
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            try:
                sender.setblocking(False)
                sender.sendto(text.encode(), self._path)
            except OSError:
                # the manager has ended or its buffer is full; serving continues
                return

    def start_watchdog(self) -> None:
        """Report to systemd's watchdog that the loop runs, twice in each of its periods, until
        ``stop_watchdog``.
        """
        if self._watchdog_s:
            self.notify(WATCHDOG)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._watchdog_s / 2, self.start_watchdog)

    def stop_watchdog(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
