"""TxnOffsetCommit 0 to 5 through the gateway, beside the coordinator of the same Kafka."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

import pytest

from tests.conformance.kafka.asked import ASKED
from tests.gateway.test_clients import a_topic
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.gateway.transactional import Producer, Side

pytestmark = [pytest.mark.differential, pytest.mark.slow, pytest.mark.java]

VERSIONS = range(6)
PARTITIONS = 3
STEPS = 40
IN_FLIGHT = 8
"""Plays at once. They wait mostly for the broker."""
NOBODY = 4_000_000_000
"""A producer id that no cluster has given."""

ALIKE = (range(4), (4,), (5,))
"""Versions that Kafka answers alike when it has verified a transaction. It verifies the
transactions of several requests in one call, and answers all of them as the first one's version
asks (AddPartitionsToTxnManager). So versions of two groups must not be in flight together.
"""

Told: TypeAlias = list[tuple[str, Any]]
Script: TypeAlias = Callable[["Play"], None]


class Play:
    """One script on one side, and all that was answered."""

    def __init__(self, side: Side, version: int, topic: str, group: str) -> None:
        self.side = side
        self.version = version
        self.topic = topic
        self.group = group
        self.told: Told = []

    def tell(self, what: str, answer: Any) -> None:
        self.told.append((what, answer))

    def producer(self, name: str = "a") -> Producer:
        return self.side.producer(f"{self.group}-{name}", self.version)

    def send(self, producer: Producer, offset: int, partition: int = 0, **others: Any) -> None:
        """Send offsets in a transaction, as a client of this version does."""
        if self.version < 5:
            self.tell("add", self.side.add_offsets(producer, self.group, self.version))
        self.send_only(producer, offset, partition, **others)

    def send_only(self, producer: Producer, offset: int, partition: int = 0, **others: Any) -> None:
        offsets = {(self.topic, partition): offset}
        send = self.side.commit_in_transaction
        self.tell("send", send(producer, self.group, self.version, offsets, **others))

    def end(self, producer: Producer, *, commit: bool) -> None:
        self.tell("end", self.side.end(producer, self.version, commit=commit))
        self.look()

    def commit(self, offset: int, partition: int = 0) -> None:
        self.tell("commit", self.side.commit(self.group, {(self.topic, partition): offset}))

    def look(self) -> None:
        self.look_at_offsets()
        self.tell("listed", self.side.listed(self.group))

    def look_at_offsets(self) -> None:
        # The first waits for the transactions that have ended, the second lets the client wait.
        for stable in (False, True):
            found = self.side.offsets(self.group, self.topic, PARTITIONS, stable=stable)
            self.tell(f"stable={stable}", found)


def committed_and_aborted(play: Play) -> None:
    producer = play.producer()
    play.look()
    play.send(producer, 5)
    play.look()
    play.end(producer, commit=True)
    play.send(producer, 7)
    play.send(producer, 8, partition=1)
    play.end(producer, commit=False)
    play.send(producer, 9)
    play.end(producer, commit=True)


def plain_commits_overtake(play: Play) -> None:
    first, second = play.producer("a"), play.producer("b")
    play.send(first, 5)
    play.commit(6)
    play.send(second, 7)
    play.look()
    play.end(second, commit=True)
    play.end(first, commit=True)
    play.send(first, 9)
    play.send(second, 10)
    play.end(first, commit=True)
    play.end(second, commit=False)


def never_added(play: Play) -> None:
    producer = play.producer()
    play.send_only(producer, 5)
    play.look_at_offsets()  # our side alone has the group: docs/spec/offsets.md#transactions
    if play.version >= 5:  # the request adds the partition itself
        play.end(producer, commit=True)


def after_the_end(play: Play) -> None:
    producer = play.producer()
    play.send(producer, 5)
    old = Producer(producer.transactional_id, producer.producer_id, producer.epoch)
    play.end(producer, commit=True)
    play.send_only(old, 6)
    play.look()


def fenced(play: Play) -> None:
    old = play.producer()
    play.send(old, 5)
    new = play.producer()
    play.send_only(old, 6)
    if play.version < 5:
        play.tell("add", play.side.add_offsets(old, play.group, play.version))
    play.tell("end", play.side.end(old, play.version, commit=True))
    play.look()
    play.send(new, 7)
    play.end(new, commit=True)


def unknown_producers(play: Play) -> None:
    known, other = play.producer("a"), play.producer("b")
    play.send(known, 5)
    play.send_only(Producer(known.transactional_id, NOBODY, 0), 6)
    play.send_only(Producer(known.transactional_id, other.producer_id, other.epoch), 6)
    play.send_only(Producer(f"{play.side.name}-nobody", known.producer_id, known.epoch), 6)
    play.send_only(Producer(known.transactional_id, known.producer_id, known.epoch + 5), 6)
    play.look()
    play.end(known, commit=True)


def what_is_refused(play: Play) -> None:
    producer = play.producer()
    play.send(producer, 5, partition=PARTITIONS)
    play.send(producer, 5, topics=[])
    long = {"partition_index": 1, "committed_offset": 5, "committed_metadata": "x" * 5_000}
    play.send(producer, 5, topics=[{"name": play.topic, "partitions": [long]}])
    none = {"partition_index": 1, "committed_offset": 5, "committed_metadata": None}
    play.send(producer, 5, topics=[{"name": play.topic, "partitions": [none]}])
    play.send(producer, -1, partition=2)
    play.send_only(producer, 5, group_id="")
    play.look()
    play.end(producer, commit=True)


def members_that_are_unknown(play: Play) -> None:
    producer = play.producer()
    if play.version >= 3:
        play.send(producer, 5, generation_id=3, member_id="m")
        play.send(producer, 5, generation_id=0)
        play.look()
    play.send(producer, 6)
    if play.version >= 3:
        play.send(producer, 7, generation_id=3, member_id="m")
        play.send(producer, 7, generation_id=-1, member_id="m")
        play.send(producer, 7, group_instance_id="i")
    play.end(producer, commit=True)


def deletions(play: Play) -> None:
    producer = play.producer()
    offsets = {(play.topic, 0): 0, (play.topic, 1): 0}
    play.commit(1)
    play.send(producer, 5)
    play.send(producer, 6, partition=1)
    play.tell("delete offsets", play.side.delete_offsets(play.group, offsets))
    play.look()
    play.send(producer, 7, partition=1)
    play.end(producer, commit=True)
    play.send(producer, 8)
    play.tell("delete group", play.side.delete_group(play.group))
    play.look()
    play.end(producer, commit=True)
    play.tell("delete group", play.side.delete_group(play.group))
    play.look()


SCRIPTS: tuple[Script, ...] = (
    committed_and_aborted,
    plain_commits_overtake,
    never_added,
    after_the_end,
    fenced,
    unknown_producers,
    what_is_refused,
    members_that_are_unknown,
    deletions,
)


def by_chance(play: Play, seed: str) -> None:
    """Two producers and plain commits of one group, in any order."""
    chance = random.Random(seed)
    names = ("a", "b")
    producers = {name: play.producer(name) for name in names}
    play.commit(0)  # so the group is there, also if all others are refused
    for offset in range(1, STEPS + 1):
        name, partition = chance.choice(names), chance.randrange(PARTITIONS)
        producer = producers[name]
        match chance.choice(("send",) * 4 + ("commit", "end", "end", "abort", "fence", "delete")):
            case "send":
                play.send(producer, offset, partition)
            case "commit":
                play.commit(offset, partition)
            case "end":
                play.end(producer, commit=True)
            case "abort":
                play.end(producer, commit=False)
            case "fence":
                producers[name] = play.producer(name)
                play.send_only(producer, offset, partition)
            case "delete":
                where = {(play.topic, partition): 0}
                play.tell("delete", play.side.delete_offsets(play.group, where))
        play.look_at_offsets()


def cases() -> Iterator[tuple[str, Script, int]]:
    """Yield each case with its name and version."""
    for version in VERSIONS:
        for script in SCRIPTS:
            yield f"{script.__name__}-{version}", script, version
        for number in range(max(1, ASKED.cases // 100)):
            seed = f"{ASKED.seed}.{version}.{number}"
            yield f"by_chance-{seed}", partial(by_chance, seed=seed), version


CASES = {name: (script, version) for name, script, version in cases()}


@pytest.fixture(scope="module")
def told(
    request: pytest.FixtureRequest, kafka: RealKafka, gateway: Groupkeeper
) -> Callable[[str], tuple[Told, Told]]:
    """What both sides have told in a case. Those of like versions run side by side."""
    topic = a_topic(kafka.bootstrap, PARTITIONS)
    selected = {
        item.callspec.params.get("case")
        for item in request.session.items
        if hasattr(item, "callspec")
    }
    jobs = {}
    for versions in ALIKE:
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            for name in CASES.keys() & selected:
                if CASES[name][1] in versions:
                    group = f"group-{uuid.uuid4().hex[:8]}"
                    jobs[name] = [
                        pool.submit(played, name, port, topic, group)
                        for port in (kafka.port, gateway.port)
                    ]
    return lambda name: tuple(job.result() for job in jobs[name])  # type: ignore[return-value]


def played(name: str, port: int, topic: str, group: str) -> Told:
    script, version = CASES[name]
    with Side(f"at-{port}", port) as side:
        play = Play(side, version, topic, group)
        script(play)
        return play.told


@pytest.mark.parametrize("case", CASES)
def test_answers_are_those_of_kafka(told: Callable[[str], tuple[Told, Told]], case: str) -> None:
    theirs, ours = told(case)
    assert not [
        f"{number}: {mine} != {their}"
        for number, (mine, their) in enumerate(zip(ours, theirs, strict=True))
        if mine != their
    ]
