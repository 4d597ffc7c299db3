"""Random and mutated requests against the running daemon, with members beside it.

The daemon is a process of its own with SQLite. Its memory is read from /proc before the load, after
everything that the requests touch was touched once, and after it, when the connections are closed,
the groups and topics that the load made are deleted, and the sessions have ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.attack import Attack
from tests.fuzz.beside import PARTITIONS, TOPIC, Beside, start_beside
from tests.fuzz.judge import Figures
from tests.fuzz.seeds import seeds
from tests.helpers.daemon.daemon import Daemon
from tests.helpers.wire.raw_client import RawClient

CONNECTIONS = 48
WARM_UP_REQUESTS = 100_000
"""Memory stands still by then: caches are full, and so is what the allocator keeps."""

WARM_UP_S = 20.0
"""One part of the warm-up. A slow machine needs several until all those requests were made."""

MOST_WARM_UPS = 15

SETTLE_S = 15.0
"""More than the longest session that a member of the load may have, and the idle time."""

TELL_EVERY_S = 30.0
CLEAN_EVERY_S = 60.0
BUGS = ("core_failed", "could not be rendered", "ticket_failed", "Traceback", '"level": "critical"')

SETTINGS = {
    "kafka.connections_max_idle_ms": 10_000,
    "group.min_session_timeout_ms": 6_000,
    "group.max_session_timeout_ms": 10_000,
    "group.rebalance_protocols": ["classic", "consumer"],
    "group.consumer_min_session_timeout_ms": 6_000,
    "group.consumer_session_timeout_ms": 6_000,
}

Tell = Callable[[str], None]


class Onslaught:
    """One run against one daemon."""

    def __init__(self, directory: Path, rng_seed: int, tell: Tell) -> None:
        """Nothing runs before ``run``."""
        self.figures = Figures()
        self._daemon = Daemon(directory, topics={TOPIC: PARTITIONS}, settings=SETTINGS)
        self._rng_seed = rng_seed
        self._tell = tell

    def run(self, minutes: float) -> Figures:
        """Start everything, attack, measure, stop; whatever happens the daemon is ended."""
        figures = self.figures
        self._port = int(self._daemon.bootstrap.rpartition(":")[2])
        try:
            self._daemon.start()
            members = start_beside(self._port, figures)
            asyncio.run(self._attack(minutes, members))
        finally:
            self._daemon.stop()
        return figures

    async def _attack(self, minutes: float, members: list[Beside]) -> None:
        figures = self.figures
        attack = Attack(self._port, seeds(), figures, self._rng_seed)
        for _ in range(MOST_WARM_UPS):
            await attack.run(CONNECTIONS, time.monotonic() + WARM_UP_S)
            if figures.requests >= WARM_UP_REQUESTS:
                break
        figures.rss_before_kb = await self._settled_rss_kb()
        self._tell(f"warm: {figures.rss_before_kb // 1024} MB; now {minutes:g} minutes of load")
        end_s = time.monotonic() + 60 * minutes
        watch = asyncio.create_task(self._watch(end_s))
        await attack.run(CONNECTIONS, end_s)
        watch.cancel()
        figures.rss_after_kb = await self._settled_rss_kb()
        await asyncio.to_thread(self._end, members)
        await attack.end_parked()

    def _end(self, members: list[Beside]) -> None:
        for member in members:
            member.end()
        self._read_the_daemon()
        if not self.figures.died:
            self.figures.exit_code = self._daemon.terminate()

    async def _watch(self, end_s: float) -> None:
        figures, began_s = self.figures, time.monotonic()
        cleaned_s = began_s
        while time.monotonic() < end_s:
            await asyncio.sleep(TELL_EVERY_S)
            spent_s = time.monotonic() - began_s
            self._tell(
                f"{spent_s:4.0f} s: {figures.requests:,} requests, {figures.answered:,} answered, "
                f"{figures.closed:,} closed, {len(figures.stuck)} stuck, RSS "
                f"{self._rss_kb() // 1024} MB, beside {figures.quiet_commits:,} commits, "
                f"{len(figures.disturbed)} disturbed"
            )
            if time.monotonic() - cleaned_s >= CLEAN_EVERY_S:
                cleaned_s = time.monotonic()
                await asyncio.to_thread(self._clean)

    async def _settled_rss_kb(self) -> int:
        """Delete what the load made, wait for the sessions to end, and once more."""
        for _ in range(2):
            await asyncio.sleep(SETTLE_S)
            await asyncio.to_thread(self._clean)
        await asyncio.sleep(1)
        return self._rss_kb()

    def _clean(self) -> None:
        """Delete the groups without members and the topics of the load; ours are called quiet."""
        try:
            with RawClient(self._port, client_id="cleaner", timeout_s=60) as client:
                listed = client.call("list_groups", 4, states_filter=["Empty", "Dead"])["groups"]
                groups = [g["group_id"] for g in listed if not g["group_id"].startswith(TOPIC)]
                for start in range(0, len(groups), 500):
                    client.call("delete_groups", 1, groups_names=groups[start : start + 500])
                topics = client.call("metadata", 7, topics=None)["topics"]
                names = [t["name"] for t in topics if t["name"] != TOPIC]
                for start in range(0, len(names), 500):
                    client.call("delete_topics", 4, topic_names=names[start : start + 500])
        except OSError:
            if self._daemon.process is not None and self._daemon.process.poll() is None:
                self.figures.disturbed.append("the cleaner could not reach the daemon")

    def _rss_kb(self) -> int:
        """Resident memory of the daemon; 0 once it is gone."""
        try:
            status = Path(f"/proc/{self._daemon.pid}/status").read_text()
        except OSError:
            return 0
        rows = [row for row in status.splitlines() if row.startswith("VmRSS")]
        return int(rows[0].split()[1]) if rows else 0  # a zombie process has no such row

    def _read_the_daemon(self) -> None:
        figures, process = self.figures, self._daemon.process
        assert process is not None
        code = process.poll()
        if code is not None:
            figures.died = f"exit code {code}: {self._daemon.log[-500:]}"
        closed = 'groupkeeper_connections_closed_total{reason="internal_error"}'
        figures.bugs = int(
            self._daemon.metric("groupkeeper_internal_errors_total") + self._daemon.metric(closed)
        )
        lines = self._daemon.log.splitlines()
        figures.bug_lines = [row[:300] for row in lines if any(bug in row for bug in BUGS)]
