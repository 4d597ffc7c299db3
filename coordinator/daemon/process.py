"""What the daemon asks of the operating system: descriptors, sockets; and how late it runs."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import os
import resource
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from groupkeeper.coordinator.daemon.address import HostPort
from groupkeeper.coordinator.runtime.histogram import LAG_BOUNDS_S, Histogram

BACKLOG = 1024
"""Connections that may wait to be accepted: a fleet of clients that comes back all at once."""
SPARE_FILES = 256
"""Descriptors for the store, the logs and the interpreter; and for newcomers that are accepted and
closed at once, up to a backlog of the HTTP port."""
DESCRIPTOR_PROBE_S = 1.0
"""How often it is looked whether a file descriptor is free."""
LAG_PROBE_S = 0.25
"""How often the loop's lag is measured: rarely enough to cost nothing, often enough to see that
the loop was held for as long as a client notices."""


COLLECT_EVERY = (20_000, 20, 20)
"""Thresholds of the garbage collector. With Python's own (700, 10, 10) a frame of 20,000 elements,
all of which live until it is answered, is walked again and again: half of what the worst frames
cost. Nearly everything here dies by its reference count; the rest can wait.
"""


LARGE_BYTES = 1_048_576
"""Buffers from here on go back to the system when they are freed. glibc raises its own bound of
128 KB to what was last freed, up to 32 MB: after one large answer so much of the heap stays ours.
Not lower: a read of the loop may take a buffer of 256 KB each time.
"""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Of glibc's malloc.h."""


class StartFailed(Exception):
    """The daemon cannot start; the message is one line: what happened, why, what to do."""


class CannotGoOn(StartFailed):
    """The daemon has served, and has to end."""


def calm_collector() -> None:
    """Let the garbage collector look less often, from now on."""
    gc.set_threshold(*COLLECT_EVERY)
    gc.enable()


def give_back_large_buffers() -> None:
    """Let freed memory above ``LARGE_BYTES`` go back to the system; without glibc do nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * LARGE_BYTES)


class Connections(NamedTuple):
    """How many connections each port may have."""

    kafka: int
    http: int


def raise_file_limit(kafka: int, http: int) -> Connections:
    """Raise RLIMIT_NOFILE as far as needed, and return how many connections it allows.

    What it allows is divided, so that no port can take the other's: of too few the HTTP port has
    no more than an eighth. Raises StartFailed where it allows none.
    """
    needed = kafka + http + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return Connections(kafka, http)
    left = soft - SPARE_FILES
    if left < 2:
        raise StartFailed(
            f"the limit of open files is {soft}, and {SPARE_FILES} are needed beside connections; "
            "raise it (ulimit -n, LimitNOFILE=)"
        )
    http = min(http, max(1, left // 8))
    return Connections(min(kafka, left - http), http)


def bind(address: HostPort, setting: str) -> socket.socket:
    """Bind without listening: the port is ours, and nobody gets through before we are ready."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise StartFailed(
            f"{setting} = {address}: the host is not known ({error.strerror}); "
            "name an address of this machine"
        ) from None
    family, kind, protocol, _, where = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
    except OSError as error:
        listener.close()
        raise _cannot_listen(address, setting, error) from None
    listener.setblocking(False)
    return listener


def listen(listener: socket.socket, setting: str) -> None:
    """Let peers in. A port that two processes have bound belongs to the first that listens."""
    address = bound_address(listener)
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _cannot_listen(address, setting, error) from None


def _cannot_listen(address: HostPort, setting: str, error: OSError) -> StartFailed:
    advice = {
        errno.EACCES: f"set {setting} to a port from 1024 on, or give this process the capability "
        "CAP_NET_BIND_SERVICE",
        errno.EADDRNOTAVAIL: f"set {setting} to an address of this machine",
    }.get(error.errno or 0, f"stop what uses it, or set {setting} to another address")
    return StartFailed(
        f"{setting} = {address}: cannot listen there ({os.strerror(error.errno or 0)}); {advice}"
    )


def bound_address(listener: socket.socket) -> HostPort:
    """Return where a socket listens; tells the port that the system chose for port 0."""
    host, port, *_ = listener.getsockname()
    return HostPort(host, port)


class DescriptorProbe:
    """Looks whether a file descriptor is free. Where none is, the system library accepts newcomers
    and closes them without a word, so nobody else would tell.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        """Probe nothing before ``start``; ``tell`` is called each time that none is free."""
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None
        self.shortages = 0
        """Probes that found none."""

    def start(self) -> None:
        """Probe until ``stop``."""
        self._timer = asyncio.get_running_loop().call_later(DESCRIPTOR_PROBE_S, self._probe)

    def stop(self) -> None:
        """End the probes."""
        if self._timer is not None:
            self._timer.cancel()

    def _probe(self) -> None:
        self.start()
        try:
            os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self.shortages += 1
            self._tell()


class LoopLag:
    """How late the event loop comes back to a timer."""

    def __init__(self) -> None:
        """Measure nothing before ``start``."""
        self.seconds = Histogram(LAG_BOUNDS_S)
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Probe until ``stop``."""
        # not the loop's own time: uvloop's has milliseconds, and stands still within a turn
        self._due = time.monotonic() + LAG_PROBE_S
        self._timer = asyncio.get_running_loop().call_later(LAG_PROBE_S, self._probe)

    def stop(self) -> None:
        """End the probes."""
        if self._timer is not None:
            self._timer.cancel()

    def _probe(self) -> None:
        self.seconds.observe(max(0.0, time.monotonic() - self._due))
        self.start()
