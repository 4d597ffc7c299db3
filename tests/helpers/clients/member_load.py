"""Chooses the next offsets that a member under load commits, and reads offsets from JSON."""

from __future__ import annotations

import time
from typing import Any

Partitions = set[tuple[str, int]]
Offsets = dict[tuple[str, int], int]


class Load:
    """Commits growing offsets for the partitions that a member owns now, and reports which were
    acknowledged.

    Each member has one counter, so each of its commits is larger than the one before.
    """

    def __init__(self, rate: float, base: int) -> None:
        self.period = 1 / rate
        self.next = base
        self.due = time.monotonic()

    def take(self, held: Partitions) -> Offsets | None:
        now = time.monotonic()
        if not held or now < self.due:
            return None
        self.due = max(self.due + self.period, now - 1)
        self.next += 1
        return dict.fromkeys(held, self.next)


class ResumingLoad(Load):
    """A load that continues each partition from its committed offset.

    So if an offset is lost, the next owner of the partition reports a smaller one.
    """

    def __init__(self, rate: float) -> None:
        super().__init__(rate, 0)
        self.positions: Offsets = {}

    def forget(self, partitions: Partitions) -> None:
        for partition in partitions:
            self.positions.pop(partition, None)

    def take(self, held: Partitions) -> Offsets | None:
        if super().take(held) is None or not held <= self.positions.keys():
            return None
        self.positions = {partition: self.positions[partition] + 1 for partition in held}
        return dict(self.positions)


def pairs(values: dict[str, int]) -> Offsets:
    """Convert {"topic:3": 7} to {("topic", 3): 7}."""
    out: Offsets = {}
    for key, offset in values.items():
        topic, _, partition = key.rpartition(":")
        out[(topic, int(partition))] = offset
    return out


def named(offsets: Offsets) -> dict[str, int]:
    return {
        f"{topic}:{partition}": offset for (topic, partition), offset in sorted(offsets.items())
    }


def load_of(command: dict[str, Any]) -> Load | None:
    """Return the load that a command asks for. None: the command ends the load (rate 0)."""
    if not command["rate"]:
        return None
    if command.get("resume"):
        return ResumingLoad(command["rate"])
    return Load(command["rate"], command["base"])
