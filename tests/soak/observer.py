"""What is seen of the daemon from outside, life after life."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from groupkeeper import read_events
from groupkeeper.coordinator.runtime.stats import CALLBACK_BOUNDS_S
from tests.helpers.wire.raw_client import RawClient
from tests.soak import greedy
from tests.soak.cast import TOPIC
from tests.soak.judge import STORE_IS_AWAY
from tests.soak.ledger import Key

if TYPE_CHECKING:
    from tests.helpers.daemon.servers import Groupkeeper

RETRIABLE = (14, 15, 16)
LEAST_BOUND_MS = CALLBACK_BOUNDS_S[0] * 1000


class Observer:
    """Looks at it now and then; what it cannot see now it sees later."""

    def __init__(self, daemon: Groupkeeper, database: Path, groups: int) -> None:
        self._daemon = daemon
        self._database = database
        self._groups = [*(f"group-{n}" for n in range(groups)), greedy.GROUP]
        self._seq = 0
        self.members = self.stable = 0
        self.slowest_ms = 0.0
        """The slowest callback of all lives used at most so much CPU time: a bucket's bound."""
        self._counted = 0.0
        """Callbacks in the buckets below the one that was looked at last."""
        self.rss_mb = 0.0
        self.lives_mb: list[float] = []
        """The last memory of each life that was over."""
        self.rebalances: Counter[str] = Counter()
        self.evicted: Counter[str] = Counter()

    def life_is_over(self) -> None:
        self.lives_mb.append(self.rss_mb)

    def look(self) -> None:
        """Scrape /metrics, and read how much memory it has; who does not answer has no members."""
        self.members = self.stable = 0
        status, page = self._daemon.get("/metrics")
        if status != 200:
            return
        samples = [s for f in text_string_to_metric_families(page) for s in f.samples]
        for sample in samples:
            match sample.name.removeprefix("groupkeeper_"):
                case "members":
                    self.members = int(sample.value)
                case "groups" if sample.labels["state"] == "Stable":
                    self.stable += int(sample.value)
                case "event_loop_callback_cpu_seconds_bucket":
                    self._look_at_bucket(float(sample.labels["le"]) * 1000, sample.value)
                case _:
                    continue
        self.rss_mb = self.memory_mb()

    def memory_mb(self) -> float:
        """Read how much memory the daemon has now; the last known where it has ended."""
        try:
            status = Path(f"/proc/{self._daemon.pid}/status").read_text()
        except OSError:
            return self.rss_mb
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else self.rss_mb

    def _look_at_bucket(self, bound_ms: float, count: float) -> None:
        """Take one bucket; they come in their order, each with all that is below it."""
        if bound_ms == LEAST_BOUND_MS:
            self._counted = 0.0
        if count > self._counted:
            self.slowest_ms = max(self.slowest_ms, bound_ms)
        self._counted = count

    def read_events(self) -> None:
        """Count what the event log tells since the last time."""
        try:
            for event in read_events(self._database, self._seq):
                self._seq = event["seq"]
                if event["kind"] == "rebalance_start":
                    self.rebalances[event["reason"]] += 1
                elif event["kind"] == "member_evicted":
                    self.evicted[event["reason"]] += 1
        except sqlite3.Error:
            return  # held, or being recovered

    def fetch(self) -> dict[Key, int] | None:
        """Every committed offset, through OffsetFetch; None while it is not to be had."""
        found: dict[Key, int] = {}
        groups = iter(self._groups)
        try:
            with RawClient(self._daemon.port, client_id="judge", timeout_s=10) as client:
                while some := list(islice(groups, 50)):
                    reply = client.call(
                        "offset_fetch",
                        8,
                        groups=[{"group_id": group, "topics": None} for group in some],
                        require_stable=True,
                    )
                    if any(group["error_code"] in RETRIABLE for group in reply["groups"]):
                        return None
                    _take(found, reply)
        except OSError:
            return None
        return found

    def store_was_away(self, since: int) -> bool:
        """Did the daemon say so behind that place of its log?"""
        return any(line.get("event") in STORE_IS_AWAY for line in self.log_lines()[since:])

    def log_lines(self) -> list[dict[str, Any]]:
        """What the daemon logged in all its lives."""
        lines = []
        for line in self._daemon.log.splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                # A traceback, or the one line of a start that failed.
                lines.append({"level": "error", "event": line})
        return lines


def _take(found: dict[Key, int], reply: dict[str, Any]) -> None:
    for group in reply["groups"]:
        assert group["error_code"] == 0, group
        for topic in group["topics"]:
            assert topic["name"] in (TOPIC, greedy.TOPIC), topic
            for part in topic["partitions"]:
                assert part["error_code"] == 0, part
                found[Key(group["group_id"], part["partition_index"])] = part["committed_offset"]
