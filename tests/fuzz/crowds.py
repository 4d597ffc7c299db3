"""Crowds in consumer groups, which do the most that the limits allow: how long does one callback
hold the loop?

``python -m tests.fuzz.crowds`` (``make crowds``) runs the large crowds: 10,000 members with a
pattern each, members with 20,000 names each, a joiner every millisecond, two members that share
100,000 partitions, and members who all fall silent at once. ``tests/fuzz/test_crowds.py`` runs the
small ones. Everything is real but the sockets. A crowd that seems slow is measured again, and the
least counts: what a busy machine made slow is not slow.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import structlog

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.daemon.process import calm_collector
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.coordinator.server.watch import SLOW_S
from groupkeeper.protocol.packing import printed_topic_id
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from tests.fuzz.prepared import ExactWatch, new_loop
from tests.helpers.wire.connections import Peer
from tests.helpers.wire.raw_client import encode_request

API: Final = "consumer_group_heartbeat"
VERSION: Final = 1
CONNECTIONS: Final = 64
SESSION_MS: Final = 3_600_000
"""So long that nobody is evicted while the machine is busy with others."""
TIMES: Final = 3
LOOK_S: Final = 0.02
QUIET_LOOKS: Final = 5
QUIET_S: Final = 0.000_5
"""If the loop did nothing for so many looks, all that comes of the frames has come."""
SHM: Final = Path("/dev/shm")


class Size(NamedTuple):
    """How large the crowds are."""

    members: int
    names: int
    """The names in a heartbeat. A request has 20,000 elements at most."""
    followers: int
    """The members that send the same names as an earlier one."""
    patterns: int
    """The patterns of one group."""
    partitions: int
    """The partitions of all topics, as many as one member may get."""


LARGE: Final = Size(10_000, 19_900, 1_000, 100, 100_000)
SMALL: Final = Size(150, 300, 20, 10, 1_500)


class Seen(NamedTuple):
    """What came of some frames."""

    what: str
    frames: int
    answers: Counter[ErrorCode]
    worst_s: float
    """The CPU time of the slowest callback."""
    callback: str

    def line(self) -> str:
        """Return a row of the report."""
        answers = ", ".join(f"{count:,} {code.name}" for code, count in self.answers.most_common())
        return (
            f"| {self.what} | {self.frames:,} | {answers} | {self.worst_s * 1000:.0f} ms "
            f"| `{self.callback}` |"
        )


class SkippingClock:
    """The real clocks, which can skip some time: nobody has to wait for it."""

    def __init__(self) -> None:
        self.skipped_ms = 0

    def now(self) -> Now:
        """Return the time."""
        ms = 1_000_000
        monotonic_ms = time.monotonic_ns() // ms + self.skipped_ms
        return Now(monotonic_ms, time.time_ns() // ms + self.skipped_ms)


class Crowd:
    """A coordinator with equal topics, and connections to it."""

    def __init__(
        self, path: Path, watch: ExactWatch, size: Size, topics: int, partitions: int = 1
    ) -> None:
        """Nothing runs before ``start``."""
        self.size = size
        self.topics = [f"topic-{number:05}" for number in range(topics)]
        self._watch = watch
        self._clock = SkippingClock()
        numbers = itertools.count(1)

        def mint() -> uuid.UUID:
            return uuid.UUID(int=next(numbers))

        image = Topics(
            [ConfiguredTopic(name, partitions) for name in self.topics],
            lambda: printed_topic_id(mint().bytes),
        )
        self.coordinator = GroupCoordinator(
            SqliteOffsetStorage(path),
            CoordinatorConfig(
                consumer_session_timeout_ms=SESSION_MS,
                consumer_max_session_timeout_ms=SESSION_MS,
                max_group_patterns=size.patterns,
                max_patterns=10 * size.patterns,
            ),
            image,
            clock=self._clock,
        )
        self._services = Services(
            coordinator=self.coordinator,
            topics=image,
            serves_consumer_groups=True,
            consumer_assignors=("uniform", "range"),
            pattern_error=self.coordinator.workshop.patterns.error,
            mint=mint,
            new_topic_id=lambda: printed_topic_id(mint().bytes),
        )

    async def start(self) -> None:
        """Start, and connect."""
        await self.coordinator.start()
        self._server = KafkaServer(self._services, ServerLimits(), watch=self._watch)
        self._peers = [Peer(self._server) for _ in range(CONNECTIONS)]
        self._watch.itself = asyncio.current_task()
        gc.collect()
        gc.freeze()  # as the daemon does after a load

    async def stop(self) -> None:
        """Stop. A bug of the core, if there was one, is an error here."""
        await self.coordinator.stop(1_000)
        gc.unfreeze()
        assert not self.coordinator.stats.bugs, "the core raised an exception"

    def members(self, group_id: str) -> dict[str, Any]:
        """Return the members of a group, by id."""
        for slot in self.coordinator._owner.slots.values():
            group = getattr(slot.shard, "groups", {}).get(group_id)
            if group is not None:
                return dict(group.members)
        return {}

    def epochs(self, group_id: str) -> dict[str, int]:
        """Return the members of a group with their epochs."""
        return {name: member.epoch for name, member in self.members(group_id).items()}

    async def send(self, what: str, frames: Iterable[bytes], gap_s: float = 0.0) -> Seen:
        """Send the frames, each in a turn of its own, and wait for all that comes of them."""
        self._watch.take_worst()
        count = 0
        for frame, peer in zip(frames, itertools.cycle(self._peers), strict=False):
            self._server.loop.call_soon(peer.connection.data_received, frame)
            count += 1
            await asyncio.sleep(gap_s)
        await self._quiet()
        seen = Seen(what, count, self._answers(), *self._watch.take_worst())
        assert seen.answers.total() == count, f"{what}: {count} requests, {seen.answers} answers"
        return seen

    async def beat(self, what: str, group_id: str) -> Seen:
        """Let every member of a group send the heartbeat that states nothing new."""
        members = self.epochs(group_id).items()
        return await self.send(what, [beat(group_id, name, epoch) for name, epoch in members])

    async def acknowledge(self, what: str, group_id: str) -> Seen:
        """Let every member of a group report that it has given up what it had to. It names nothing:
        a list of more than 20,000 partitions would be refused.
        """
        members = self.epochs(group_id).items()
        return await self.send(what, [beat(group_id, name, epoch, []) for name, epoch in members])

    def skip(self, seconds: float) -> None:
        """Let time pass at once."""
        self._clock.skipped_ms += round(seconds * 1000)

    async def silence(self, what: str, group_id: str) -> Seen:
        """All sessions of a group end at the same time."""
        self._watch.take_worst()
        self.skip(SESSION_MS / 1000 + 1)
        self._server.loop.call_soon(self.coordinator._owner.recovery.alarm.look)
        await self._quiet()
        assert not self.epochs(group_id), f"{what}: some are still members"
        return Seen(what, 0, Counter(), *self._watch.take_worst())

    async def _quiet(self) -> None:
        quiet = 0
        while quiet < QUIET_LOOKS:
            busy_s, waiting = self._watch.busy_s, self._is_waiting()
            await asyncio.sleep(LOOK_S)
            is_quiet = self._watch.busy_s - busy_s < QUIET_S and not waiting
            quiet = quiet + 1 if is_quiet else 0

    def _is_waiting(self) -> bool:
        """Return whether something is computed or stored outside of the loop."""
        workshop = self.coordinator.workshop
        slots = self.coordinator._owner.slots.values()
        return (
            workshop.assignments.waiting > 0
            or workshop.patterns.waiting > 0
            or any(slot.unfinished is not None for slot in slots)
        )

    def _answers(self) -> Counter[ErrorCode]:
        found: Counter[ErrorCode] = Counter()
        for peer in self._peers:
            for index, _ in enumerate(peer.frames()):
                found[ErrorCode(peer.decoded(API, VERSION, index)["error_code"])] += 1
            peer.transport.writes.clear()
        return found


def join(group_id: str, member_id: str, names: Any = None, pattern: str | None = None) -> bytes:
    """Encode the first heartbeat of a member."""
    values = {
        "group_id": group_id,
        "member_id": member_id,
        "member_epoch": 0,
        "rebalance_timeout": 60_000,
        "topic_partitions": [],
        "subscribed_topic_names": names,
        "subscribed_topic_regex": pattern,
    }
    return encode_request(API, VERSION, values, 7, "app")


def joins(group_id: str, count: int, names: list[str]) -> Iterator[bytes]:
    """Encode the first heartbeats of members with the same names. The names are encoded once: that
    takes ten times as long as the coordinator needs for the heartbeat.
    """
    first = b"m-00000"
    frame = join(group_id, first.decode(), names=names)
    assert frame.count(first) == 1
    return (frame.replace(first, b"m-%05d" % number) for number in range(count))


def beat(group_id: str, member_id: str, epoch: int, owned: Any = None) -> bytes:
    """Encode a heartbeat that states nothing new, or only what the member has."""
    values = {
        "group_id": group_id,
        "member_id": member_id,
        "member_epoch": epoch,
        "topic_partitions": owned,
        "subscribed_topic_names": None,
    }
    return encode_request(API, VERSION, values, 7, "app")


# --- the crowds ---


async def patterns(crowd: Crowd) -> AsyncIterator[Seen]:
    """Yield what members with a pattern each did, in one group and in many."""
    count, most = crowd.size.members, crowd.size.patterns

    def one(number: int) -> str:
        return f"topic-.*|absent-{number}"

    yield await crowd.send(
        "members with a pattern each join one group",
        (join("p", f"m-{number}", pattern=one(number)) for number in range(count)),
    )
    yield await crowd.send(
        "groups in which each member has a pattern, the same ones in each group",
        (
            join(f"p-{number // most}", f"m-{number}", pattern=one(number % most))
            for number in range(count)
        ),
    )
    yield await crowd.send(
        "members with a pattern each create a group each",
        (join(f"q-{number}", "m", pattern=one(number)) for number in range(count)),
    )
    yield await crowd.beat("the members of the first group follow", "p")


async def names(crowd: Crowd) -> AsyncIterator[Seen]:
    """Yield what members with many names did."""
    size = crowd.size
    lists = [crowd.topics[at : at + size.names] for at in range(0, len(crowd.topics), size.names)]
    for number, each in enumerate(lists):
        yield await crowd.send(
            f"a member with as many names as fit joins, number {number + 1}",
            [join("n", f"m-{number}", names=each)],
        )
    yield await crowd.send(
        "members with the same names join",
        (
            join("n", f"f-{number}", names=lists[number % len(lists)])
            for number in range(size.followers)
        ),
    )
    yield await crowd.send(
        "members with one name join",
        (
            join("n", f"o-{number}", names=[crowd.topics[number]])
            for number in range(size.followers)
        ),
    )
    for turn in "once", "twice":
        crowd.skip(1.1)  # the assignment interval
        yield await crowd.beat(f"all members send a heartbeat, {turn}", "n")
    yield await crowd.silence("all members fall silent", "n")


async def joiners(crowd: Crowd) -> AsyncIterator[Seen]:
    """Yield what a joiner every millisecond did."""
    topics = crowd.topics
    yield await crowd.send(
        "a member joins every millisecond",
        joins("j", crowd.size.members, names=topics),
        gap_s=0.001,
    )
    yield await crowd.send(
        "the same, and each has other names",
        (
            join("k", f"m-{number}", names=[topics[number % len(topics)], topics[-1]])
            for number in range(crowd.size.members)
        ),
        gap_s=0.001,
    )
    yield await crowd.silence("all members fall silent", "k")


async def shares(crowd: Crowd) -> AsyncIterator[Seen]:
    """Yield what happened when a member had all partitions, and another one came and went."""
    yield await crowd.send(
        "a member with all partitions joins", [join("s", "m-0", names=crowd.topics)]
    )
    crowd.skip(1.1)
    yield await crowd.send("a second one joins", [join("s", "m-1", names=crowd.topics)])
    yield await crowd.beat("the first has to give up half", "s")
    yield await crowd.acknowledge("it has given it up", "s")
    yield await crowd.beat("the second gets it", "s")
    first, second = [held(each) for each in crowd.members("s").values()]
    assert first == second > 0, "each has half of them"
    crowd.skip(1.1)
    yield await crowd.send("the second leaves", [beat("s", "m-1", -1)])
    yield await crowd.beat("the first gets all", "s")
    yield await crowd.silence("it falls silent", "s")


def held(member: Any) -> int:
    """Return how many partitions a member has."""
    return sum(len(parts) for parts in member.current.assigned.values())


def one_topic(crowd: Crowd) -> AsyncIterator[Seen]:
    """Yield what happened with all partitions in one topic."""
    return shares(crowd)


def many_topics(crowd: Crowd) -> AsyncIterator[Seen]:
    """Yield what happened with as many topics as a heartbeat can name."""
    return shares(crowd)


Play: TypeAlias = Callable[[Crowd], AsyncIterator[Seen]]
PLAYS: Final[dict[Play, Callable[[Size], tuple[int, int]]]] = {
    patterns: lambda size: (5 * size.patterns, 1),
    names: lambda size: (5 * size.names // 2, 1),
    joiners: lambda size: (10 * size.patterns, 1),
    one_topic: lambda size: (1, size.partitions),
    many_topics: lambda size: (size.names, size.partitions // size.names),
}
"""Each play, with the number of topics that it needs, and the partitions of each. The first two
large ones need as many names as one group may have."""


async def played(play: Play, size: Size, watch: ExactWatch) -> list[Seen]:
    """Return everything that was seen in a play, on a fresh coordinator."""
    with tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None) as directory:
        needs = PLAYS[play](size) if play in PLAYS else (size.names, 1)
        crowd = Crowd(Path(directory) / "crowd.db", watch, size, *needs)
        await crowd.start()
        try:
            return [seen async for seen in play(crowd)]
        finally:
            await crowd.stop()


async def least(play: Play, size: Size, watch: ExactWatch) -> list[Seen]:
    """Return what was seen. If something seems slow, play again, and take the least of each."""
    seen = await played(play, size, watch)
    for _ in range(TIMES - 1):
        if max(seen, key=lambda each: each.worst_s).worst_s <= SLOW_S:
            break
        again = await played(play, size, watch)
        seen = [min(two, key=lambda each: each.worst_s) for two in zip(seen, again, strict=True)]
    return seen


def main() -> int:
    """Play everything; 1 if a callback took longer than it may."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    calm_collector()
    watch = ExactWatch()
    loop = new_loop(watch)
    slow = 0
    print("| what | requests | answers | slowest callback | which |", flush=True)
    print("| --- | ---: | --- | ---: | --- |", flush=True)
    try:
        for play in PLAYS:
            for seen in loop.run_until_complete(least(play, LARGE, watch)):
                slow += seen.worst_s > SLOW_S
                print(seen.line(), flush=True)
    finally:
        loop.close()
    print(f"crowds: {slow} of these hold the loop for more than {SLOW_S * 1000:.0f} ms")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
