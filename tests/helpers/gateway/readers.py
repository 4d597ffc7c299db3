"""Members of a group that read a topic of numbers, and checks of the lines that they print.

Number ``n`` is the record at offset ``n // PARTITIONS`` of partition ``n % PARTITIONS``. So a
reader can check each value by its place. All times are in milliseconds since 1970.

| line | meaning |
| --- | --- |
| ``assigned TIME`` | the member has partitions, whose committed offsets it asks for next |
| ``read TIME PARTITION FIRST END`` | it has read the records from FIRST to before END |
| ``committed TIME PARTITION END`` | a commit was acknowledged |
| ``failed REASON`` | a commit was refused, or not answered |
| ``wrong TIME PARTITION OFFSET`` | a record has another value, or does not follow the one before |
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from tests.helpers.gateway.copiers import PROGRAMS, Program, gateway_go, java_program

KINDS = ("java", "librdkafka", "aiokafka", "franz-go")


def reader(kind: str, arguments: list[str], log: Path) -> Program:
    """Return a reader that is not started. ``arguments``: BOOTSTRAP TOPIC GROUP PARTITIONS."""
    if kind == "java":
        command = java_program("Reader")
    elif kind == "franz-go":
        command = [*gateway_go(), "read"]
    else:
        command = [sys.executable, str(PROGRAMS / f"{kind}_reader.py")]
    return Program([*command, *arguments], log)


class GroupLog:
    """The lines that the readers of one group have printed, in order, separately for each
    process.
    """

    def __init__(self, processes: Iterable[list[str]]) -> None:
        self._processes = [[_parsed(line) for line in lines] for lines in processes]

    @property
    def commits(self) -> int:
        """Return the number of acknowledged commits, each partition counted."""
        return sum(word == "committed" for lines in self._processes for word, _ in lines)

    def acknowledged(self, before_ms: float = float("inf")) -> dict[int, int]:
        """Return the highest acknowledged commit of each partition before a time."""
        found: dict[int, int] = {}
        for lines in self._processes:
            for word, numbers in lines:
                if word == "committed" and numbers[0] < before_ms:
                    _, partition, end = numbers
                    found[partition] = max(found.get(partition, 0), end)
        return found

    def problems(self, ends: dict[int, int]) -> list[str]:
        """Return a line for each record that was not read, each wrong record and each lost commit.

        A reader either continues where it was, or begins at a place that no acknowledged commit
        before its assignment exceeds.
        """
        found = []
        ranges: dict[int, list[tuple[int, int]]] = {partition: [] for partition in ends}
        for lines in self._processes:
            next_offsets: dict[int, int] = {}
            floor: dict[int, int] = {}
            for word, numbers in lines:
                if word == "wrong":
                    found.append(f"wrong record: {numbers}")
                elif word == "assigned":
                    floor = self.acknowledged(numbers[0])
                elif word == "read":
                    _, partition, first, end = numbers
                    known = next_offsets.get(partition)
                    if first != known and first < floor.get(partition, 0):
                        lost = f"begins at {first}, committed was {floor[partition]}"
                        found.append(f"a lost commit of partition {partition}: {lost}")
                    next_offsets[partition] = end
                    ranges[partition].append((first, end))
        for partition, some in ranges.items():
            found += [f"partition {partition}: {gap}" for gap in _gaps(some, ends[partition])]
        return found


def _parsed(line: str) -> tuple[str, list[int]]:
    word, *numbers = line.split()
    return word, [] if word == "failed" else [int(each) for each in numbers]


def _gaps(ranges: list[tuple[int, int]], end: int) -> list[str]:
    found, reached = [], 0
    for first, last in sorted(ranges):
        if first > reached:
            found.append(f"nobody has read {reached}-{first}")
        reached = max(reached, last)
    if reached != end:
        found.append(f"read to {reached} of {end}")
    return found
