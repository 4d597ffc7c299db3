"""What is done to the daemon and to its clients, and when."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

CYCLE_S = 120.0
KILL_EVERY_S = 30.0
APPEND_TIMEOUT_S = 3.0
BLOCK_BYTES = 4096


class Fault(NamedTuple):
    """Something that is done at a moment, for a while."""

    at_s: float
    name: str
    for_s: float = 0.0


CYCLE: tuple[Fault, ...] = (
    *(Fault(n * KILL_EVERY_S, "kill daemon") for n in range(int(CYCLE_S / KILL_EVERY_S))),
    Fault(6, "stop daemon", 15),
    Fault(23, "restart on full disk", 4),
    Fault(36, "fill disk", 10),
    Fault(48, "second name"),
    Fault(49, "move database", 6),
    Fault(62, "hostile peers", 5),
    Fault(69, "hold database", 8),
    Fault(79, "fill bounds", 2),
    Fault(82, "stop clients", 4),
    Fault(87, "fail sync"),
    # Whoever is killed or stopped here is evicted before the next kill of the daemon would give
    # every session a fresh start.
    Fault(91, "kill clients"),
    Fault(92, "stop clients", 26),
)
"""Two minutes; a run repeats them, and a short one lives them faster."""


def pace(seconds: float) -> float:
    """How fast a run lives: below 1 when it is too short for a whole cycle."""
    return min(1.0, seconds / CYCLE_S)


def append_timeout_ms(seconds: float) -> int:
    """How long the daemon waits for its store: it has to give up while the database is held."""
    return round(APPEND_TIMEOUT_S * 1000 * pace(seconds))


def plan(seconds: float) -> list[Fault]:
    """All faults of a run that end within it, in order."""
    speed = pace(seconds)
    found = [
        Fault((cycle * CYCLE_S + fault.at_s) * speed, fault.name, fault.for_s * speed)
        for cycle in range(int(seconds / (CYCLE_S * speed)) + 1)
        for fault in CYCLE
        if cycle or fault.at_s  # nothing is killed before it has lived
    ]
    return sorted(fault for fault in found if fault.at_s + fault.for_s < seconds)


class Volume:
    """A small file system of our own, which can be full."""

    def __init__(self, mount_point: Path, size_mb: int = 384) -> None:
        """Mount it. Raises CannotMount."""
        self.path = mount_point
        mount_point.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "groupkeeper-soak", mount_point],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CannotMount(done.stderr.strip())
        self._ballast = mount_point / "ballast"

    def fill(self) -> None:
        """Leave no byte free."""
        with self._ballast.open("wb", buffering=0) as ballast:
            while free := os.statvfs(self.path).f_bavail:
                # Half of it where others were faster and it is not there any more.
                for blocks in (free, max(1, free // 2)):
                    with suppress(OSError):
                        at = os.fstat(ballast.fileno()).st_size
                        os.posix_fallocate(ballast.fileno(), at, blocks * BLOCK_BYTES)

    def make_room(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        """For the end; it would go with the mount namespace anyway."""
        subprocess.run(["umount", "--lazy", self.path], check=False, capture_output=True)


class MovedDatabase:
    """A database that somebody moves away, without what lies beside it, and puts back."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._elsewhere = database.with_name("moved.db")

    def move(self) -> None:
        self._database.rename(self._elsewhere)

    def is_away(self) -> bool:
        return self._elsewhere.exists()

    def put_back(self) -> None:
        """Do nothing where it is in its place."""
        if self.is_away():
            self._elsewhere.rename(self._database)


class CannotMount(Exception):
    """No file system of our own."""


@contextmanager
def foreign_writer(database: Path) -> Iterator[None]:
    """Hold the write lock of the database, as a careless tool of somebody else's would."""
    with closing(sqlite3.connect(database, timeout=0.1, isolation_level=None)) as connection:
        give_up_s = time.monotonic() + 20
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError:
                if time.monotonic() > give_up_s:
                    raise
        yield
        connection.execute("ROLLBACK")
