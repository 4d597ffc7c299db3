"""Make the pipeline's tables with one loop in memory; ``bench.pipeline`` compares Spark with it."""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec

MINUTE_MS = 60_000


class Tables:
    """The pipeline's gold tables, as dicts. They hold every key of the whole log at the
    same time.
    """

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, str, int], tuple[int, int, str, int]] = {}
        self.lag: dict[tuple[str, str, int, int], tuple[int, int | None]] = {}
        self.rates: dict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0] * 6)
        self.daily: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * 8)
        self.sessions: dict[tuple[str, str], list[Any]] = {}
        self.rebalances: dict[str, list[list[Any]]] = defaultdict(list)
        self.audit: list[tuple[int, str]] = []
        self.ends: dict[tuple[str, int], int] = {}
        self.readers: dict[tuple[str, int], set[str]] = defaultdict(set)

    def read(self, log_dir: Path) -> None:
        """Read every segment, in order."""
        files = sorted(log_dir.glob("dt=*/events-*.gz"), key=lambda f: int(f.name.split("-")[2]))
        decode = msgspec.json.Decoder().decode
        for file in files:
            with gzip.open(file) as lines:
                for line in lines:
                    self.take(decode(line))

    def take(self, event: dict[str, Any]) -> None:
        """Apply the next event."""
        match event["kind"]:
            case "commit":
                self._commit(event)
            case "end_offset":
                self._ends(event)
            case "commit_rejected":
                self.audit.append((event["seq"], "rejected"))
                self.daily[event["group"], ""][5] += event["count"]
            case "member_join":
                key = event["group"], event["member_id"]
                self.sessions.setdefault(key, [event["ts_ms"], None, event["client_id"]])
            case "rebalance_start":
                self.rebalances[event["group"]].append([event["ts_ms"], event["reason"], None, []])
            case "rebalance_end":
                if self.rebalances[event["group"]]:
                    last = self.rebalances[event["group"]][-1]
                    last[2:] = event["duration_ms"], event["awaited"]

    def _commit(self, event: dict[str, Any]) -> None:
        group, ts_ms, seq = event["group"], event["ts_ms"], event["seq"]
        minute = ts_ms - ts_ms % MINUTE_MS
        by_member = event["generation"] >= 0
        day = self.daily[group, ""]
        day[0] += 1
        for topic in event["topics"]:
            name = topic["topic"]
            rate = self.rates[group, name, minute]
            rate[0] += 1
            for number, offset, before, _, metadata in topic["rows"]:
                delta = offset - before if before >= 0 else None
                rate[1] += 1
                if delta is not None:
                    if delta < 0:
                        rate[3] += 1
                        self.audit.append((seq, "rewind"))
                    elif delta == 0:
                        rate[5] += 1
                    elif by_member:
                        rate[2] += delta
                        day[2] += delta
                        rate[4] += delta >= 100_000
                if not by_member:
                    self.audit.append((seq, "reset"))
                self.offsets[group, name, number] = (offset, seq, metadata, ts_ms)
                self.readers[name, number].add(group)
                end = self.ends.get((name, number))
                self.lag[group, name, number, minute] = (offset, end)

    def _ends(self, event: dict[str, Any]) -> None:
        minute = event["ts_ms"] - event["ts_ms"] % MINUTE_MS
        for topic in event["topics"]:
            name = topic["topic"]
            for row in topic["partitions"]:
                number, end = row["partition"], row["offset"]
                self.ends[name, number] = end
                for group in self.readers[name, number]:
                    offset = self.offsets[group, name, number][0]
                    self.lag[group, name, number, minute] = (offset, end)
