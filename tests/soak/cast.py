"""Who plays: groups, their members, and the processes that host them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.soak.ledger import Ledger

ROOT = Path(__file__).resolve().parents[2]
TOPIC, PARTITIONS = "orders", 10
KINDS = ("raw", "aiokafka", "librdkafka", "kafka-python")

GROUPS_OF: tuple[tuple[str, ...], ...] = (
    ("raw",),
    ("raw",),
    ("aiokafka",),
    ("librdkafka",),
    ("raw",),
    ("aiokafka", "librdkafka", "kafka-python", "raw", "raw"),
    ("raw",),
    ("aiokafka",),
    ("librdkafka",),
    ("kafka-python",),
)
"""Who the members of ten groups in a row are; one in ten mixes them all."""
MEMBERS_A_HOST = {"raw": 130, "aiokafka": 80, "librdkafka": 80, "kafka-python": 45}
"""What one process can be without starving itself."""
SESSION_S = {"raw": 10.0, "aiokafka": 18.0, "librdkafka": 18.0, "kafka-python": 18.0}
"""Shorter than what lies between two kills of the daemon, so that who is dead is evicted.
Longer than the daemon is stopped for real clients: librdkafka gives itself up when it heard nothing
for a session, and the others take seconds to come back when the machine is busy.
"""
SESSION_MIN_MS = 6_000
"""The daemon's own limit; only runs that are too short for their faults come to it."""
HEARTBEATS_A_SESSION = 6
REBALANCE_MS = 60_000
COMMIT_EVERY_S = {"raw": 3.0, "aiokafka": 5.0, "librdkafka": 5.0, "kafka-python": 5.0}
END_LIMIT_S = 20
"""What is under way when a run ends may be answered; a library that waits for more is killed."""
STATIC_EVERY = 7
"""One group in so many has static members."""


@dataclass(frozen=True)
class Role:
    """A member, as the file of its host tells it."""

    name: str
    number: int
    group: str
    instance: str | None
    session_ms: int
    heartbeat_ms: int
    rebalance_ms: int
    commit_every_s: float


def session_ms(kind: str, pace: float) -> int:
    """The session timeout of such a member, in a run that lives at that pace."""
    return max(SESSION_MIN_MS, round(SESSION_S[kind] * 1000 * pace))


def roles(groups: int, members: int, pace: float) -> dict[str, list[Role]]:
    """Spread the members over the groups; by kind."""
    found: dict[str, list[Role]] = defaultdict(list)
    for number in range(members):
        group, place = number % groups, number // groups
        pattern = GROUPS_OF[group % len(GROUPS_OF)]
        kind = pattern[place % len(pattern)]
        name = f"{kind}-{number}"
        instance = name if group % STATIC_EVERY == 0 else None
        session = session_ms(kind, pace)
        role = Role(
            name=name,
            number=number,
            group=f"group-{group}",
            instance=instance,
            session_ms=session,
            heartbeat_ms=session // HEARTBEATS_A_SESSION,
            rebalance_ms=REBALANCE_MS,
            commit_every_s=COMMIT_EVERY_S[kind],
        )
        found[kind].append(role)
    return dict(found)


class Host:
    """A process with members of one kind; a killed one is started again under another name."""

    def __init__(self, kind: str, number: int, roles: list[Role], cast: Cast) -> None:
        self.kind = kind
        self.roles = roles
        self._number = number
        self._cast = cast
        self._life = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def session_ms(self) -> int:
        return session_ms(self.kind, self._cast.pace)

    @property
    def name(self) -> str:
        return f"{self.kind}-host-{self._number}.{self._life}"

    def start(self) -> None:
        """Start it, with a ledger of its own."""
        self._life += 1
        cast = self._cast
        told, ledger = (cast.directory / f"{self.name}.{end}" for end in ("json", "ledger"))
        told.write_text(
            json.dumps(
                {
                    "kind": self.kind,
                    "ledger": str(ledger),
                    "common": cast.common,
                    "members": [asdict(role) for role in self.roles],
                }
            )
        )
        cast.ledger.sessions_ms[self.name] = self.session_ms
        cast.ledger.follow(self.name, ledger, repeats=self.kind != "raw")
        with (cast.directory / "clients.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.client_host", str(told)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """kill -9: its members say nothing any more."""
        assert self._process is not None
        if self._process.poll() is None:
            self._cast.ledger.silence(self.name)
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """SIGSTOP: its members are silent until ``go_on``."""
        self._cast.ledger.silence(self.name)
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.signal(signal.SIGCONT)
        self._cast.ledger.end_silence(self.name)

    def end(self, limit_s: float) -> None:
        """Wait for it after SIGTERM, not for ever."""
        assert self._process is not None
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def has_begun(self) -> bool:
        return self._process is not None

    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None


class Cast:
    """Everyone who plays."""

    def __init__(
        self, directory: Path, groups: int, members: int, pace: float, ledger: Ledger
    ) -> None:
        directory.mkdir()
        self.pace = pace
        self.directory = directory
        self.ledger = ledger
        self.common: dict[str, object] = {}
        """What all members are told alike; to be set before ``start``."""
        self.roles = roles(groups, members, pace)
        self.hosts: list[Host] = []
        for kind, mine in self.roles.items():
            size = MEMBERS_A_HOST[kind]
            count = -(-len(mine) // size)
            self.hosts += [Host(kind, n, mine[n::count], self) for n in range(count)]

    def start(self) -> None:
        for host in self.hosts:
            host.start()

    def stop(self) -> None:
        """Let all finish what they are at, and end."""
        for host in self.hosts:
            host.signal(signal.SIGCONT)
            host.signal(signal.SIGTERM)
        give_up_s = time.monotonic() + END_LIMIT_S
        for host in self.hosts:
            host.end(max(0.1, give_up_s - time.monotonic()))

    def kill(self) -> None:
        """Leave nothing running, whatever happened."""
        for host in self.hosts:
            if host.has_begun():
                host.kill()
