"""A workload of real consumers on two daemons, which writes down every commit with its time.

The ledger is the judge: it knows what was acknowledged, from the clients alone. The tables have to
say the same. One daemon is killed in the middle of the work and started again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from groupkeeper.storage.event_log.reader import last_seq
from groupkeeper.storage.event_log.segments import segment_names
from groupkeeper.storage.open import rows_of
from tests.helpers.clients.kafka_life import a_consumer
from tests.helpers.daemon.servers import Groupkeeper

TOPIC = "orders"
PARTITIONS = 4
MEMBERS_GROUP = "billing"
IDLE_GROUP = "idle"
WAIT_S = 60


class Key(NamedTuple):
    """A committed offset."""

    daemon: int
    group: str
    partition: int


class Entry(NamedTuple):
    """One partition of one commit. The coordinator got it between the two times."""

    key: Key
    offset: int
    before_ms: int
    after_ms: int
    is_acknowledged: bool


@dataclass
class Ledger:
    """What the clients know."""

    entries: list[Entry] = field(default_factory=list)
    rewinds: list[tuple[int, int]] = field(default_factory=list)
    """The daemon and the messages of each move back by a member."""
    resets: dict[int, int] = field(default_factory=dict)
    """Daemon -> commits without a member."""
    joins: dict[int, int] = field(default_factory=dict)
    """Daemon -> members that joined."""

    def offsets_at(self, ts_ms: int) -> dict[Key, int]:
        """Return the offsets at a moment in which no commit was under way.

        An offset is left out while the fate of its last commit is unknown.
        """
        found: dict[Key, int] = {}
        for entry in self.entries:
            if entry.before_ms > ts_ms:
                continue
            if entry.is_acknowledged:
                found[entry.key] = entry.offset
            else:
                found.pop(entry.key, None)
        return found

    def moments(self, random: Random, count: int) -> list[int]:
        """Return random moments at which no commit was under way."""
        first, last = self.entries[0].after_ms, self.entries[-1].after_ms + 5
        free = [
            ts_ms
            for ts_ms in range(first + 2, last)
            if not any(each.before_ms - 1 <= ts_ms <= each.after_ms + 1 for each in self.entries)
        ]
        return sorted(random.sample(free, min(count, len(free))))

    def messages(self, daemon: int) -> int:
        """Return how many messages the members of a daemon moved forward."""
        at: dict[Key, int] = {}
        moved = 0
        for entry in self.entries:
            if entry.key.daemon == daemon and entry.key.group == MEMBERS_GROUP:
                moved += max(entry.offset - at.get(entry.key, entry.offset), 0)
                at[entry.key] = entry.offset
        return moved


@dataclass
class Life:
    """Two daemons with one folder for their logs, and the consumers of both."""

    folder: Path
    random: Random
    ledger: Ledger = field(default_factory=Ledger)
    daemons: list[Groupkeeper] = field(default_factory=list)
    members: list[list[Consumer]] = field(default_factory=list)
    idle: list[Consumer] = field(default_factory=list)
    offsets: dict[Key, int] = field(default_factory=dict)

    @property
    def log_dir(self) -> Path:
        return self.folder / "log"

    def log_of(self, daemon: int) -> Path:
        return self.log_dir / f"store-{daemon}"

    def join(self, daemon: int) -> None:
        """Let one more member join, and wait until the members share the partitions."""
        address = self.daemons[daemon].bootstrap
        name = f"app-{len(self.members[daemon])}"
        member = a_consumer(address, MEMBERS_GROUP, client_id=name, session_timeout_ms=45_000)
        self.members[daemon].append(member)
        member.subscribe([TOPIC])
        self.settle(daemon)
        self.ledger.joins[daemon] = self.ledger.joins.get(daemon, 0) + 1

    def settle(self, daemon: int) -> None:
        """Poll until every member has its share."""
        members = self.members[daemon]
        for _ in range(WAIT_S * 10):
            for member in members:
                member.poll(0.1 / len(members))
            if all(len(each.assignment()) == PARTITIONS // len(members) for each in members):
                return
        raise AssertionError("the members do not share the partitions")

    def work(self, steps: int) -> None:
        """Commit: mostly forward, now and then back, and without a member."""
        for _ in range(steps):
            daemon = self.random.randrange(2)
            what = self.random.random()
            if what < 0.1:
                self.reset(daemon)
            else:
                self.commit(daemon, is_back=what < 0.2)
            time.sleep(0.01)

    def commit(self, daemon: int, *, is_back: bool = False) -> None:
        member = self.random.choice(self.members[daemon])
        partition = self.random.choice(member.assignment()).partition
        key = Key(daemon, MEMBERS_GROUP, partition)
        was = self.offsets.get(key, 0)
        if is_back and was > 10:
            if self._send(member, key, was - 10):
                self.ledger.rewinds.append((daemon, 10))
        else:
            self._send(member, key, was + self.random.randrange(11, 50))

    def reset(self, daemon: int) -> None:
        key = Key(daemon, IDLE_GROUP, self.random.randrange(PARTITIONS))
        if self._send(self.idle[daemon], key, self.random.randrange(1000)):
            self.ledger.resets[daemon] = self.ledger.resets.get(daemon, 0) + 1

    def _send(self, consumer: Consumer, key: Key, offset: int) -> bool:
        before_ms = int(time.time() * 1000)
        try:
            consumer.commit(
                offsets=[TopicPartition(TOPIC, key.partition, offset)], asynchronous=False
            )
            is_acknowledged = True
        except KafkaException:
            is_acknowledged = False
        after_ms = int(time.time() * 1000)
        self.offsets[key] = offset
        self.ledger.entries.append(Entry(key, offset, before_ms, after_ms, is_acknowledged))
        return is_acknowledged

    def kill_one_while_it_works(self) -> None:
        """Kill a daemon between two commits or in one, and start it again. Its members go on."""

        def kill() -> None:
            time.sleep(self.random.random() / 10)
            self.daemons[0].kill()
            self.daemons[0].start()

        killer = threading.Thread(target=kill)
        killer.start()
        while killer.is_alive():
            self.commit(0)
            time.sleep(0.01)
        killer.join()

    def sealed(self) -> None:
        """Wait until the files have every event until now."""
        for number, daemon in enumerate(self.daemons):
            last = last_seq(rows_of(daemon.directory / "groupkeeper.db"))
            give_up_s = time.monotonic() + WAIT_S
            while self._last_sealed(number) < last:
                assert time.monotonic() < give_up_s, "the log is not sealed"
                time.sleep(0.1)

    def _last_sealed(self, daemon: int) -> int:
        return max((name.last_seq for name in segment_names(self.log_of(daemon))), default=0)

    def store(self, daemon: int) -> str:
        """Return the name of a daemon's store in the tables: its first log."""
        return min(segment_names(self.log_of(daemon)), key=lambda name: name.first_seq).log_id


@contextmanager
def a_life(folder: Path, seed: int) -> Iterator[Life]:
    """Start two daemons with an idle consumer each."""
    life = Life(folder, Random(seed))
    with ExitStack() as stack:
        for number in range(2):
            life.log_of(number).mkdir(parents=True)
            daemon = Groupkeeper(
                folder / f"daemon-{number}",
                topics={TOPIC: PARTITIONS},
                settings={
                    "log.dir": str(life.log_of(number)),
                    "log.segment_ms": 1_000,
                    "log.end_offset_interval_ms": 3_600_000,
                },
            )
            stack.callback(daemon.stop)
            daemon.start()
            life.daemons.append(daemon)
            life.members.append([])
            idle = a_consumer(daemon.bootstrap, IDLE_GROUP, client_id="ops")
            stack.callback(idle.close)
            life.idle.append(idle)
        try:
            yield life
        finally:
            for members in life.members:
                for member in members:
                    member.close()
