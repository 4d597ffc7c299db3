"""Calls to the operating system: file descriptors, sockets, memory; and the lag of the event
loop.
"""

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
from groupkeeper.coordinator.runtime.stats import LAG_BOUNDS_S, Histogram

BACKLOG = 1024
"""How many connections may wait to be accepted. Many clients may reconnect at the same time."""
SPARE_FILES = 256
"""Descriptors for the store, the logs and the interpreter. Some are also for connections that are
accepted and closed at once, up to the backlog of the HTTP port."""
DESCRIPTOR_PROBE_S = 1.0
"""The interval at which the process checks for a free file descriptor."""
LAG_PROBE_S = 0.25
"""The interval at which the loop's lag is measured. It is long enough to cost nothing, and short
enough to see every delay that a client notices."""


COLLECT_EVERY = (20_000, 2, 200)
"""The thresholds of the garbage collector (``gc.set_threshold``).

The objects of a frame of 20,000 elements all live until the frame is answered. With Python's own
thresholds (700, 10, 10) the collector walked them again and again, which was half the cost of the
worst frames. Nearly all objects here are freed by their reference count. The second number limits
the pause of a young collection, which walks about 80,000 objects in 8 to 15 ms. With 20 instead of
2, a collection walked 440,000 objects in 45 to 80 ms while 100,000 groups were loaded."""


LARGE_BYTES = 1_048_576
"""Buffers of at least this size return to the system when they are freed. glibc starts with 128 KB,
and raises this bound to the last freed size, up to 32 MB. So after one large answer that much
memory would stay in the process. A lower bound would affect the reads of the loop, which use
buffers of up to 256 KB."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From glibc's malloc.h."""


class StartFailed(Exception):
    """The daemon cannot start. The message is one line: what happened, why, what to do."""


class CannotGoOn(StartFailed):
    """The daemon has served groups, and must now end."""


def calm_collector() -> None:
    """Make the garbage collector run less often, with the thresholds ``COLLECT_EVERY``."""
    gc.set_threshold(*COLLECT_EVERY)
    gc.enable()


def give_back_large_buffers() -> None:
    """Make glibc return each freed buffer of ``LARGE_BYTES`` or more to the system. Without glibc
    this does nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * LARGE_BYTES)


TRIM_DELAY_S = 2.0
"""The delay of a trim (``MemoryTrim``). Objects that are being closed when the trim is requested
are free by then. The delay is also the shortest time between two trims. Each trim holds glibc's
lock for some milliseconds."""


class MemoryTrim:
    """Returns to the system the freed memory that lies between objects in use.

    glibc does not do so by itself: after replies of 250 MB in slices, 200 MB stayed in the process.
    Without glibc this object does nothing.
    """

    def __init__(self) -> None:
        self._trim: Callable[[int], int] | None
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._timer: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """Return memory to the system after ``TRIM_DELAY_S``, unless this is already planned. Call
        it on the loop.
        """
        if self._trim is not None and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(TRIM_DELAY_S, self._begin)

    def _begin(self) -> None:
        self._timer = None
        assert self._trim is not None, "nothing is scheduled without it"
        # ctypes releases the interpreter's lock, so the loop continues
        asyncio.get_running_loop().run_in_executor(None, self._trim, 0)


class Connections(NamedTuple):
    """The number of connections that each port may have."""

    kafka: int
    http: int


def raise_file_limit(kafka: int, http: int) -> Connections:
    """Raise RLIMIT_NOFILE as far as needed, and return how many connections it allows for each
    port.

    Each port has its own share, so that neither port can use the share of the other. If the limit
    is too low for both, an eighth of it is reserved for the HTTP port. Of the other seven eighths,
    the Kafka port gets as many connections as it needs. If some are left, the HTTP port gets them
    too. Raises StartFailed if the limit leaves no file for connections.
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
    kafka = min(kafka, left - min(http, max(1, left // 8)))
    return Connections(kafka, min(http, left - kafka))


def bind(address: HostPort, setting: str) -> socket.socket:
    """Return a socket that is bound but does not listen yet. The port is reserved, and nobody can
    connect before ``listen``. Raises StartFailed if the host is unknown or the address cannot be
    used.
    """
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:  # UnicodeError: the form of the name is wrong
        reason = getattr(error, "strerror", None) or "not a name of a host"
        raise StartFailed(
            f"{setting} = {address}: the host is unknown ({reason}); "
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
    """Let the socket accept connections. If two processes have bound one port, the first that
    listens gets it. The other raises StartFailed.
    """
    address = bound_address(listener)
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _cannot_listen(address, setting, error) from None


def _cannot_listen(address: HostPort, setting: str, error: OSError) -> StartFailed:
    advice = {
        errno.EACCES: f"set {setting} to a port from 1024 on, or grant this process the capability "
        "CAP_NET_BIND_SERVICE",
        errno.EADDRNOTAVAIL: f"set {setting} to an address of this machine",
    }.get(error.errno or 0, f"stop the process that uses it, or set {setting} to another address")
    return StartFailed(
        f"{setting} = {address}: cannot listen there ({os.strerror(error.errno or 0)}); {advice}"
    )


def bound_address(listener: socket.socket) -> HostPort:
    """Return the address of a socket, with the port that the system chose for port 0."""
    host, port, *_ = listener.getsockname()
    return HostPort(host, port)


class DescriptorProbe:
    """Checks whether a file descriptor is free.

    Without a free one, libuv (under uvloop) accepts each new connection and closes it at once,
    without an error. Nothing else would report this.
    """

    def __init__(self, report: Callable[[], None]) -> None:
        """``report`` is called by each probe that finds no free descriptor."""
        self._report = report
        self._timer: asyncio.TimerHandle | None = None
        self.shortages = 0
        """Probes that found no free descriptor."""

    def start(self) -> None:
        """Probe until ``stop``."""
        self._timer = asyncio.get_running_loop().call_later(DESCRIPTOR_PROBE_S, self._probe)

    def stop(self) -> None:
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
            self._report()


class LoopLag:
    """Measures how late the event loop runs a timer."""

    def __init__(self) -> None:
        self.seconds = Histogram(LAG_BOUNDS_S)
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Measure until ``stop``."""
        # Not the time of the loop: uvloop's time has whole milliseconds, and changes only when a
        # round of callbacks begins.
        self._due = time.monotonic() + LAG_PROBE_S
        self._timer = asyncio.get_running_loop().call_later(LAG_PROBE_S, self._probe)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _probe(self) -> None:
        self.seconds.observe(max(0.0, time.monotonic() - self._due))
        self.start()
