"""What the clients of a soak write down, one JSON list a line, each written before or after the act
that it tells of. A process that is killed leaves a ledger that ends in mid-life, not a wrong one.

    ["pulse", ms]                                            it was given the CPU
    ["is", ms, name, member_id]                              the id that a member goes by from here
    ["sends", ms, name, group, offset, [partition, ...]]     a commit, before it is sent
    ["has", ms, name, group, offset, [partition, ...]]       ... was acknowledged
    ["anew", ms, name, why]                                  a consumer was replaced by a new one

Every attempt to commit has an offset of its own, larger than all before it on this machine.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

PULSE_S = 0.5
MEMBERS_MAX = 2048
"""Members that are told apart by an offset."""


class Key(NamedTuple):
    """A partition of a group; there is one topic."""

    group: str
    partition: int


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Writer:
    """A host's side: every line is with the kernel when the call returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = threading.Lock()
        self._last = 0

    def pulse(self) -> None:
        self._write("pulse")

    def identity(self, name: str, member_id: str) -> None:
        self._write("is", name, member_id)

    def sends(self, name: str, group: str, offset: int, partitions: list[int]) -> None:
        self._write("sends", name, group, offset, partitions)

    def has(self, name: str, group: str, offset: int, partitions: list[int]) -> None:
        self._write("has", name, group, offset, partitions)

    def begins_anew(self, name: str, why: str) -> None:
        self._write("anew", name, why)

    def next_offset(self, number: int) -> int:
        """Larger than any before, and no other member's."""
        with self._lock:
            self._last = max(self._last + 1, time.monotonic_ns() // 1000)
            return self._last * MEMBERS_MAX + number

    def _write(self, what: str, *values: Any) -> None:
        os.write(self._file, (json.dumps([what, now_ms(), *values]) + "\n").encode())


@dataclass
class Holding:
    """A member id, and while it was somebody's."""

    name: str
    host: str
    from_ms: int
    until_ms: int | None = None
    """When its holder went by another; None: it still does, as far as its host told."""


@dataclass
class Silence:
    """While a host was kept from saying anything."""

    from_ms: int
    until_ms: int | None = None


@dataclass
class Ledger:
    """All ledgers of a run, read as they grow."""

    sent: set[tuple[Key, int]] = field(default_factory=set)
    acknowledged: set[tuple[Key, int]] = field(default_factory=set)
    largest: dict[Key, int] = field(default_factory=dict)
    """The largest acknowledged offset of each partition."""
    repeats: set[int] = field(default_factory=set)
    """Offsets of members whose library repeats a commit by itself when it gets no answer."""
    commits_of: Counter[str] = field(default_factory=Counter)
    """Acknowledged requests, by kind of client."""
    holdings: dict[str, Holding] = field(default_factory=dict)
    """By member id."""
    pulses: dict[str, list[int]] = field(default_factory=dict)
    """By host: when it was given the CPU."""
    sessions_ms: dict[str, int] = field(default_factory=dict)
    """By host: the session timeout of its members."""
    silenced: dict[str, list[Silence]] = field(default_factory=dict)
    """By host: when we killed or stopped it."""
    anew: Counter[str] = field(default_factory=Counter)
    """Consumers that were replaced, by why."""
    _current: dict[tuple[str, str], str] = field(default_factory=dict)
    _tails: dict[str, _Tail] = field(default_factory=dict)

    @property
    def commits(self) -> int:
        """Acknowledged requests."""
        return self.commits_of.total()

    def follow(self, host: str, path: Path, *, repeats: bool) -> None:
        """From now on ``read`` reads this ledger too."""
        self._tails[host] = _Tail(path, repeats=repeats)

    def read(self) -> None:
        """Take in what was written since."""
        for host, tail in self._tails.items():
            for line in tail.lines():
                self.enter(host, json.loads(line), repeats=tail.repeats)

    def enter(self, host: str, line: list[Any], *, repeats: bool = False) -> None:
        """Take in one line."""
        match line:
            case ["pulse", ms]:
                self.pulses.setdefault(host, []).append(ms)
            case ["is", ms, name, member_id]:
                self._identity(host, ms, name, member_id)
            case ["sends", _, _, group, offset, partitions]:
                self.sent.update((Key(group, p), offset) for p in partitions)
                if repeats:
                    self.repeats.add(offset)
            case ["has", _, name, group, offset, partitions]:
                self.commits_of[_kind(name)] += 1
                for key in (Key(group, p) for p in partitions):
                    self.acknowledged.add((key, offset))
                    self.largest[key] = max(offset, self.largest.get(key, 0))
            case ["anew", ms, name, why]:
                self._identity(host, ms, name, "")
                self.anew[f"{_kind(name)} {why}"] += 1
            case _:
                raise AssertionError(f"not a line of a ledger: {line}")

    def silence(self, host: str) -> None:
        """From now on we keep that host from saying anything."""
        self.silenced.setdefault(host, []).append(Silence(now_ms()))

    def end_silence(self, host: str) -> None:
        """Until now."""
        self.silenced[host][-1].until_ms = now_ms()

    def _identity(self, host: str, ms: int, name: str, member_id: str) -> None:
        before = self._current.get((host, name))
        if before in self.holdings:
            self.holdings[before].until_ms = ms
        self._current[(host, name)] = member_id
        if member_id:
            self.holdings[member_id] = Holding(name, host, ms)


def _kind(name: str) -> str:
    """``kafka-python`` of ``kafka-python-17``."""
    return name.rpartition("-")[0]


class _Tail:
    """Whole lines of a file that grows."""

    def __init__(self, path: Path, *, repeats: bool) -> None:
        self.repeats = repeats
        self._path = path
        self._at = 0

    def lines(self) -> list[bytes]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return whole.splitlines()
