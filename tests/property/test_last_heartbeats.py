"""A heartbeat of a consumer group has the same effect whether or not the last one is remembered.

The same frames go to two shards. One remembers: its connections stay, and each member keeps its
last heartbeat and answer. The other forgets: each frame has a connection of its own, and before
each frame its members forget.
"""

from __future__ import annotations

import random
import struct
import uuid
from functools import cache
from typing import Any, Final

from groupkeeper.coordinator.cluster.topics import Topics
from groupkeeper.coordinator.core.cluster.group_configs import GroupOverrides
from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.consumer.assignment_work import AssignmentWork, compute
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.pattern_work import PatternMatches, PatternWork
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.shard import Shard
from groupkeeper.coordinator.core.step import Step
from groupkeeper.coordinator.core.work import Work, WorkFailed, WorkFailure, WorkOutcome
from groupkeeper.coordinator.handlers.routes import Routes
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.handlers.table import APIS_SERVED
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.listener import Listener
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.coordinator.server.watch import CallbackWatch
from tests.helpers.core.examples import examples
from tests.helpers.core.invariants import spelled_out
from tests.helpers.core.shard_driver import (
    ORDERS,
    PAYMENTS,
    START_MONOTONIC_MS,
    START_WALL_MS,
    saved_groups,
)
from tests.helpers.runtime.virtual_loop import run_virtual
from tests.helpers.wire.connections import Peer
from tests.helpers.wire.raw_client import encode_request

SEQUENCES: Final = 1_000
"""Ten thousand take a minute."""
STEPS: Final = 14
API: Final = "consumer_group_heartbeat"
OTHER: Final = "other"
"""An assignor whose computations are work, so that heartbeats wait."""
LIMITS: Final = CoreLimits(
    rebalance_protocols=("classic", "consumer"),
    consumer_assignors=("uniform", OTHER),
    consumer_assignment_interval_ms=0,
)
LONG: Final = "g" * 505
"""A group id so long that bodies differ only behind what a connection compares."""
CONNECTIONS: Final = 2
VERSION_AT: Final = 7
BODY_AT: Final = 18
"""Where the body begins, if the client id has three letters."""
QUIET: Final[dict[str, Any]] = {
    "version": 1,
    "client_id": "app",
    "rebalance_timeout": -1,
    "subscribed_topic_names": None,
    "topic_partitions": None,
    "instance_id": None,
    "rack_id": None,
    "server_assignor": None,
    "subscribed_topic_regex": None,
}
NEWS: Final[dict[str, tuple[Any, ...]]] = {
    "version": (0, 1),
    "client_id": ("app", "ops", "", "long-client" * 30),
    "member_epoch": (-3, -2, -1, 0, 1, 2, 3),
    "rebalance_timeout": (0, 30_000),
    "subscribed_topic_names": (("orders",), ("orders", "payments"), ()),
    "topic_partitions": ((), "all", "some"),
    "instance_id": ("i", "j", ""),
    "rack_id": ("r", " "),
    "server_assignor": ("uniform", OTHER, "unknown"),
    "subscribed_topic_regex": ("", "pay.*"),
    "member_id": ("a", "b", "", "nobody"),
    "group_id": ("h", ""),
}
"""What one heartbeat may say besides, in place of what it would."""


class Side:
    """A shard behind a Kafka port, without a loop between them. It serves as its own coordinator,
    for which nothing waits for a store.
    """

    group_configs: Any = None
    submit_listing: Any = None

    def __init__(self, *, remembers: bool) -> None:
        self.remembers = remembers
        services = Services(
            coordinator=self,
            topics=Topics(),
            serves_consumer_groups=True,
            consumer_assignors=LIMITS.consumer_assignors,
            pattern_error=lambda _pattern: None,
            mint=lambda: uuid.UUID(int=len(self.steps)),
        )
        self.server = KafkaServer(services, ServerLimits(), watch=CallbackWatch(read_s=lambda: 0.0))
        routes = Routes(APIS_SERVED, authorize=lambda *_: not self.is_denied)
        self.listener = Listener("PLAINTEXT", routes)
        self.peers: list[Peer] = []
        self.others: list[Peer] = []
        self.begin()

    def begin(self) -> None:
        """Begin a new life, without groups."""
        for peer in [*self.peers, *self.others]:
            peer.connection.connection_lost(None)
        self.shard = Shard(0, LIMITS, TopicImage.of(ORDERS, PAYMENTS))
        self.now = Now(START_MONOTONIC_MS, START_WALL_MS)
        self.is_denied = False
        self.steps: list[Any] = []
        self.work: list[Work] = []
        self.peers = [self.peer() for _ in range(CONNECTIONS)]
        self.others = []

    def peer(self) -> Peer:
        return Peer(self.server, listener=self.listener)

    # --- what both sides are told ---

    def send(self, connection: int, frame: bytes) -> None:
        if self.peers[connection].transport.is_closed:
            self.peers[connection].connection.connection_lost(None)
            self.peers[connection] = self.peer()
        if self.remembers:
            self.peers[connection].send(frame)
            return
        for group in self.groups():
            for member in group.members.values():
                member.repeated = member.unchanged = None
        self.others.append(self.peer())
        self.others[-1].send(frame)

    def submit(self, request: Any, ticket: Any) -> None:
        self.keep(spelled_out(self.shard.handle(request, ticket, self.now), ticket))

    def keep(self, step: Step) -> None:
        waits = [reply.waits for reply in step.replies]
        self.steps.append((step.records, step.events, step.record_bytes, step.sets_alarm, waits))
        self.work += step.work
        for reply in step.replies:
            ticket: Any = reply.ticket
            ticket.resolve(reply.result)

    def change_topics(self, *topics: Any) -> None:
        image = self.shard.image.followed_by(topics)
        self.keep(self.shard.topics_changed(image, self.now))

    def change_configs(self, group_id: str, overrides: GroupOverrides) -> None:
        self.keep(self.shard.configs_changed({group_id: overrides}, self.now))

    def advance(self, by_ms: int) -> None:
        self.now = Now(self.now.monotonic_ms + by_ms, self.now.wall_ms + by_ms)
        self.keep(self.shard.expire(self.now))

    def finish(self, *, well: bool) -> None:
        work = self.work.pop(0)
        failed = WorkFailed(WorkFailure.RAISED, "no")
        self.keep(self.shard.work_done(work, self.outcome(work) if well else failed, self.now))

    def outcome(self, work: Work) -> WorkOutcome:
        if isinstance(work, PatternWork):
            image = self.shard.image
            found = tuple(sorted(name for name in image.by_name if name.startswith("pay")))
            return PatternMatches(image.version, dict.fromkeys(work.patterns, found))
        assert isinstance(work, AssignmentWork)
        return compute("uniform", work.spec)

    def load_again(self) -> None:
        """Lose what is live, as a failover does."""
        before, self.shard = self.shard, Shard(0, LIMITS, self.shard.image)
        for saved in saved_groups(before).values():
            self.shard.apply(saved)
        self.shard.overrides = before.overrides
        self.work.clear()
        self.keep(self.shard.loaded(self.now))

    # --- what is compared ---

    def groups(self) -> list[ConsumerGroup]:
        return [each for each in self.shard.groups.values() if isinstance(each, ConsumerGroup)]

    def told(self) -> tuple[Any, ...]:
        """Everything that a frame, or another cause, may have an effect on."""
        frames = []
        for peer in [*self.peers, *self.others]:
            frames += peer.frames()
            peer.transport.writes.clear()
        sessions = [
            (member.member_id, member.session.at, member.session_length_ms, member.client)
            for group in self.groups()
            for member in group.members.values()
        ]
        counted = dict(self.server.stats.requests)
        return sorted(frames), self.steps, sessions, self.shard.deadlines.next_at(), counted


@cache
def encoded(**parts: Any) -> bytes:
    """The frame of a heartbeat."""
    version, client_id = parts.pop("version"), parts.pop("client_id")
    owned = parts["topic_partitions"]
    parts["topic_partitions"] = owned and [
        {"topic_id": uuid.UUID(int=1), "partitions": numbers} for numbers in owned
    ]
    if version == 0:
        del parts["subscribed_topic_regex"]
    return encode_request(API, version, parts, 0, client_id)


class Sequence:
    """One life of two sides."""

    def __init__(self, seed: int, sides: tuple[Side, Side]) -> None:
        self.draw = random.Random(seed)
        self.sides = sides
        self.group_id = self.draw.choice(["g", "g", "g", LONG])
        self.number = 0
        self.sent: list[tuple[int, bytes]] = []
        for side in sides:
            side.begin()

    def run(self) -> None:
        """Let one or two members settle, and then do anything."""
        for member_id in "ab"[: self.draw.choice([1, 2, 2])]:
            self.beat(0, member_id, **self.everything())
        self.settle()
        for _ in range(STEPS):
            what = self.draw.random()
            if what < 0.5:
                self.draw_beat()
            elif what < 0.7:
                self.repeat()
            elif what < 0.75:
                self.deny_once()
            else:
                self.draw_cause()

    def everything(self) -> dict[str, Any]:
        return {
            "member_epoch": 0,
            "rebalance_timeout": 30_000,
            "subscribed_topic_names": ("orders",),
            "topic_partitions": (),
            "server_assignor": self.draw.choice([None, None, None, OTHER]),
        }

    def settle(self) -> None:
        for _ in range(3):
            for member_id in "ab":
                if member_id in self.members():
                    self.beat(0, member_id, topic_partitions="all")

    def members(self) -> dict[str, Any]:
        group = self.sides[0].shard.groups.get(self.group_id)
        return group.members if isinstance(group, ConsumerGroup) else {}

    def draw_beat(self) -> None:
        """Mostly a heartbeat without news, otherwise with one thing or another."""
        draw = self.draw
        news = [] if draw.random() < 0.7 else draw.sample([*NEWS], draw.choice([1, 1, 1, 2, 5]))
        changes = {name: draw.choice(NEWS[name]) for name in news}
        if draw.random() < 0.05:
            changes = self.everything()
        self.beat(draw.choice([0, 0, 0, 1]), draw.choice("aab"), **changes)

    def beat(self, connection: int, whose: str, **changes: Any) -> None:
        member = self.members().get(whose)
        epoch = self.draw.choice([1, 2]) if member is None else member.current.epoch
        parts = QUIET | {
            "group_id": self.group_id,
            "member_id": whose,
            "member_epoch": epoch,
            "instance_id": None if member is None else member.group_instance_id,
        }
        parts |= changes
        owned: Any = parts["topic_partitions"]
        if isinstance(owned, str):
            assigned = {} if member is None else member.current.assigned
            lists = [tuple(number for number, _ in each) for each in assigned.values()]
            parts["topic_partitions"] = tuple(lists if owned == "all" else [x[1:] for x in lists])
        self.send(connection, bytes(self.changed(bytearray(encoded(**parts)))))

    def send(self, connection: int, frame: bytes) -> None:
        if self.sides[0].peers[connection].connection.owes:
            return  # it blocks what follows, and a connection that is new does not
        self.sent.append((connection, frame))
        self.number += 1
        numbered = frame[:8] + struct.pack(">i", self.number) + frame[12:]
        for side in self.sides:
            side.send(connection, numbered)
        self.compare()

    def changed(self, frame: bytearray) -> bytearray:
        """Seldom, change a byte, cut the frame, or add to it."""
        draw = self.draw
        if draw.random() < 0.08:
            frame[draw.randrange(BODY_AT, len(frame))] ^= draw.choice([1, 2, 128])
        elif draw.random() < 0.03:
            frame = frame[: draw.randrange(BODY_AT, len(frame))]
        elif draw.random() < 0.05:
            frame += draw.choice([b"\0", b"\1\1\0"])
        frame[:4] = struct.pack(">i", len(frame) - 4)
        return frame

    def draw_cause(self) -> None:
        """Let something else happen to both sides."""
        draw = self.draw
        cause = draw.randrange(5)
        by_ms = draw.choice([1, 4_000, 44_000, 700_000])
        interval_ms, session_ms = draw.choice([None, 6_000]), draw.choice([None, 50_000])
        partitions, well = draw.choice([12, 13]), draw.random() < 0.8
        for side in self.sides:
            if side.work and (cause > 2 or well):
                side.finish(well=well)
            elif cause == 0:
                side.advance(by_ms)
            elif cause == 1:
                overrides = GroupOverrides(
                    consumer_heartbeat_interval_ms=interval_ms,
                    consumer_session_timeout_ms=session_ms,
                )
                side.change_configs(self.group_id, overrides)
            elif cause == 2:
                side.change_topics(ORDERS._replace(partitions=partitions), PAYMENTS)
            elif cause == 3 and not any(peer.connection.owes for peer in side.peers):
                side.load_again()
        if cause == 4:
            self.settle()
        self.compare()

    def repeat(self) -> None:
        """Send a frame again, as it was or in the other version."""
        connection, frame = self.draw.choice(self.sent[-4:])
        if self.draw.random() < 0.2:
            frame = frame[:VERSION_AT] + bytes([frame[VERSION_AT] ^ 1]) + frame[VERSION_AT + 1 :]
        self.send(connection, frame)

    def deny_once(self) -> None:
        """Deny one heartbeat, and permit the same one at once."""
        for is_denied in (True, False):
            for side in self.sides:
                side.is_denied = is_denied
            if is_denied:
                self.beat(0, "a", **self.draw.choice([{}, {"instance_id": ""}, {"group_id": ""}]))
            else:
                self.send(*self.sent[-1])

    def compare(self) -> None:
        remembering, forgetting = (side.told() for side in self.sides)
        assert remembering == forgetting


async def lives(seeds: range) -> None:
    sides = Side(remembers=True), Side(remembers=False)
    for seed in seeds:
        try:
            Sequence(seed, sides).run()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_heartbeat_has_the_effect_that_it_has_where_nothing_is_remembered() -> None:
    run_virtual(lives(range(examples(SEQUENCES))))
