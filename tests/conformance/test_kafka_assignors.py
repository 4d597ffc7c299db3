"""The assignors of consumer groups beside Kafka's own classes, on random groups."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from groupkeeper.coordinator.core.consumer.assigning import (
    GroupSpec,
    assign_range,
    assign_uniform,
    place,
)
from tests.helpers.clients.ecosystem import JDK, Unavailable, kafka_jars, need

pytestmark = [pytest.mark.clients, pytest.mark.java]

GROUPS = 1_000
NAMES = ["a", "B", "zz", "é", "\U0001f600", "\uffee", "c-1", "c-10", "c-2", "ä"]
"""Kafka orders members by the UTF-16 units of their names."""
PROGRAM = Path(__file__).parent / "kafka/Assignors.java"


class Member(NamedTuple):
    member_id: str
    group_instance_id: str | None
    topics: list[int]
    previous: list[tuple[int, int]]
    """(topic, number)."""


class Group(NamedTuple):
    counts: list[int]
    members: list[Member]

    def line(self) -> str:
        """The group as ``Assignors.java`` reads it."""
        members = [
            f"{m.member_id}|{m.group_instance_id or '-'}|{','.join(map(str, m.topics))}|"
            + ",".join(f"{topic}:{number}" for topic, number in m.previous)
            for m in self.members
        ]
        return "\t".join([",".join(map(str, self.counts)), *members])

    def in_order(self) -> tuple[GroupSpec, list[int]]:
        """The group as our assignors get it, and the place of each of their members here."""
        order = sorted(
            range(len(self.members)),
            key=lambda at: place(self.members[at].member_id, self.members[at].group_instance_id),
        )
        subscriptions = sorted({tuple(member.topics) for member in self.members})
        return GroupSpec(
            self.counts,
            subscriptions,
            [subscriptions.index(tuple(self.members[at].topics)) for at in order],
            [[self.number(*p) for p in self.members[at].previous] for at in order],
        ), order

    def number(self, topic: int, number: int) -> int:
        return sum(self.counts[:topic]) + number

    def read(self, answer: str) -> list[list[int]]:
        """What Kafka's assignor gave each member."""
        return [
            sorted(self.number(*map(int, part.split(":"))) for part in own.split(",") if part)
            for own in answer.split("|")
        ]

    def rank(self, target: list[list[int]]) -> tuple[int, int]:
        """How uneven it is, and how many partitions it moves."""
        before = [{self.number(*p) for p in member.previous} for member in self.members]
        moved = sum(len(set(now) - had) for now, had in zip(target, before, strict=True))
        return sum(len(partitions) ** 2 for partitions in target), moved


def a_group(draw: random.Random) -> Group:
    """A group whose previous target is as uneven as it likes, and has gaps."""
    counts = [draw.randint(1, 9) for _ in range(draw.randint(1, 4))]
    size = draw.randint(1, 8)
    topics = range(len(counts))
    some = [sorted(draw.sample(topics, draw.randint(1, len(counts)))) for _ in range(size)]
    if draw.random() < 0.5:
        some = [some[0]] * size
    names, instances = draw.sample(NAMES, size), draw.sample(NAMES, size)
    members = [
        Member(name, instance if draw.random() < 0.4 else None, subscribed, [])
        for name, instance, subscribed in zip(names, instances, some, strict=True)
    ]
    for topic in topics:
        for number in range(counts[topic]):
            owner = draw.choice([None, *members])
            if owner is not None and topic in owner.topics:
                owner.previous.append((topic, number))
    return Group(counts, members)


@pytest.fixture(scope="module")
def compared() -> list[tuple[Group, list[list[int]], list[list[int]]]]:
    """Random groups, and what Kafka's ``range`` and ``uniform`` give their members."""
    draw = random.Random(7)
    groups = [a_group(draw) for _ in range(GROUPS)]
    try:
        command = [need("java", JDK), "-cp", f"{kafka_jars()}/*", str(PROGRAM)]
    except Unavailable as lack:
        pytest.skip(str(lack))
    lines = "".join(group.line() + "\n" for group in groups).encode()
    done = subprocess.run(command, input=lines, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    answers = [line.split("\t") for line in done.stdout.decode().splitlines()]
    return [
        (group, group.read(by_range), group.read(by_uniform))
        for group, (by_range, by_uniform) in zip(groups, answers, strict=True)
    ]


def test_range_gives_each_member_what_kafka_gives_it(compared):
    for group, theirs, _ in compared:
        spec, order = group.in_order()
        target = dict(zip(order, assign_range(spec), strict=True))
        assert [target[at] for at in range(len(order))] == theirs, group


def test_uniform_is_never_less_even_and_never_moves_more_than_kafka(compared):
    for group, _, theirs in compared:
        spec, order = group.in_order()
        target = dict(zip(order, assign_uniform(spec), strict=True))
        ours = [target[at] for at in range(len(order))]
        assert group.rank(ours) <= group.rank(theirs), group
