"""Random lives of groups with members of both protocols: conversions both ways, classic members in
consumer groups, static members of both kinds, patterns, and topics that change.

After each step the driver compares all counts with what is counted anew, and sees that each request
has its one answer. At the end the live state is compared with a replay of the records. Clients hold
what they were told, and no partition is held by two of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from groupkeeper.coordinator.core.consumer import assignment_work, follow_work, rebalance
from groupkeeper.coordinator.core.consumer.assignment_work import AssignmentWork, compute
from groupkeeper.coordinator.core.consumer.follow_work import FollowWork
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.pattern_work import PatternMatches
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.limits import MIGRATION_POLICIES
from groupkeeper.coordinator.core.requests.membership import EndSession, JoinProtocol
from groupkeeper.coordinator.core.work import Work, WorkFailed, WorkFailure
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    ConsumerProtocolError,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from groupkeeper.storage.keyed import KeyedRecords
from tests.helpers.core.consumer_members import a_consumer_heartbeat
from tests.helpers.core.examples import run_lives
from tests.helpers.core.saved_members import sorted_members
from tests.helpers.core.shard_driver import ORDERS, PAYMENTS, Call, ShardDriver, TopicInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

NONE = ErrorCode.NONE
LOGS = TopicInfo("logs", "AAAAAAAAAAAAAAAAAAAAAw", 3)
NAMES = st.lists(
    st.sampled_from(("orders", "payments", "logs", "absent")), max_size=3, unique=True
).map(tuple)
PATTERNS = st.sampled_from([None, None, None, "", "o.*", "orders|logs"])
STATIC = ("d", "e")
PEOPLE = st.sampled_from("abcde")
FAILED = WorkFailed(WorkFailure.DIED, "as it happens")


@dataclass(eq=False)
class Person:
    """One client. It may change its protocol whenever it joins, and keeps its id or not."""

    name: str
    member_id: str = ""
    is_classic: bool = False
    epoch: int = -1
    """The member epoch, or the generation."""
    held: set[tuple[str, int]] = field(default_factory=set)
    """(topic name, partition)."""
    topics: tuple[str, ...] = ("orders",)
    leads: dict[str, bytes] | None = None
    """Member id -> subscription of a classic group that it leads."""
    lives: int = 0

    @property
    def instance_id(self) -> str | None:
        return f"i-{self.name}" if self.name in STATIC else None

    def forget(self) -> None:
        """Stop to consume."""
        self.held, self.epoch, self.leads = set(), -1, None


class MixedGroupMachine(RuleBasedStateMachine):
    """Five clients, two of them static, and a coordinator that restarts."""

    @initialize(
        interval_ms=st.sampled_from([0, 1_000]),
        policy=st.sampled_from((*MIGRATION_POLICIES, *["bidirectional"] * 4)),
        computes_elsewhere=st.booleans(),
        follow_later=st.booleans(),
    )
    def start(
        self, interval_ms: int, policy: str, computes_elsewhere: bool, follow_later: bool
    ) -> None:
        self.patch = pytest.MonkeyPatch()
        if follow_later:
            self.patch.setattr(follow_work, "LARGE_BYTES", 0)
            self.patch.setattr(rebalance, "MANY_NAMES", 0)
        if computes_elsewhere:
            self.patch.setattr(assignment_work, "LARGE_US", -1)
        self.driver = ShardDriver(
            consumer_assignment_interval_ms=interval_ms,
            consumer_migration_policy=policy,
            initial_rebalance_delay_ms=0,
        )
        self.driver.change_topics(ORDERS, PAYMENTS)
        self.people = {name: Person(name) for name in "abcde"}
        self.waiting: list[tuple[Person, Call]] = []

    # --- the consumer protocol ---

    @rule(who=PEOPLE, names=NAMES, pattern=PATTERNS, keeps_id=st.booleans())
    def join(self, who: str, names: tuple[str, ...], pattern: str | None, keeps_id: bool) -> None:
        person = self.people[who]
        person.forget()
        person.is_classic = False
        if not keeps_id or not person.member_id:
            person.lives += 1
            person.member_id = f"{who}-{person.lives}"
        self._beat(
            person,
            member_epoch=0,
            rebalance_timeout_ms=20_000,
            subscribed_topic_names=names,
            subscribed_topic_regex=pattern,
            owned=(),
        )

    @rule(who=PEOPLE, reports=st.booleans(), late=st.sampled_from([0, 0, 0, 0, -1, 1]))
    def beat(self, who: str, reports: bool, late: int) -> None:
        person = self.people[who]
        if not person.is_classic and person.epoch > 0:
            fields: dict[str, Any] = {"owned": self._owned(person)} if reports else {}
            self._beat(person, member_epoch=max(person.epoch + late, 1), **fields)

    @rule(who=PEOPLE, names=NAMES, pattern=PATTERNS)
    def subscribe(self, who: str, names: tuple[str, ...], pattern: str | None) -> None:
        person = self.people[who]
        if not person.is_classic and person.epoch > 0:
            self._beat(
                person,
                member_epoch=person.epoch,
                subscribed_topic_names=names,
                subscribed_topic_regex=pattern,
            )

    @rule(who=PEOPLE, for_now=st.booleans())
    def leave(self, who: str, for_now: bool) -> None:
        person = self.people[who]
        if not person.is_classic and person.epoch > 0:
            epoch = -2 if for_now and person.instance_id else -1
            person.forget()
            self._send(person, self._heartbeat(person, member_epoch=epoch))
            person.epoch = -1

    # --- the classic protocol ---

    @rule(
        who=PEOPLE,
        names=NAMES.filter(bool),
        version=st.sampled_from([0, 1, 3]),
        keeps_id=st.booleans(),
        reads_badly=st.sampled_from([False] * 9 + [True]),
    )
    def classic_join(
        self, who: str, names: tuple[str, ...], version: int, keeps_id: bool, reads_badly: bool
    ) -> None:
        person = self.people[who]
        person.forget()  # an eager client gives up everything before it joins
        person.is_classic = True
        person.topics = names
        if not keeps_id:
            person.member_id = ""
        metadata = encode_subscription(Subscription(version, [*names]))
        protocols: Sequence[JoinProtocol] = (JoinProtocol("range", metadata),)
        if reads_badly:
            protocols = (JoinProtocol("own", b"x"), *protocols)
        for _ in range(2):
            call = self.driver.join(
                "g",
                person.member_id,
                group_instance_id=person.instance_id,
                protocols=protocols,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=20_000,
            )
            if call.parked or call.error is not ErrorCode.MEMBER_ID_REQUIRED:
                break
            person.member_id = call.member_id
        self._answered(person, call)

    @rule(who=PEOPLE)
    def sync(self, who: str) -> None:
        person = self.people[who]
        if person.is_classic and person.epoch >= 0:
            assignments = self._assign(person.leads) if person.leads else {}
            instance_id = person.instance_id
            call = self.driver.sync(
                "g",
                person.member_id,
                person.epoch,
                group_instance_id=instance_id,
                assignments=assignments,
            )
            self._answered(person, call)

    @rule(who=PEOPLE)
    def classic_heartbeat(self, who: str) -> None:
        person = self.people[who]
        if person.is_classic and person.epoch >= 0:
            call = self.driver.heartbeat("g", person.member_id, person.epoch, person.instance_id)
            self._answered(person, call)

    @rule(who=PEOPLE, other=PEOPLE)
    def leave_as_administrator(self, who: str, other: str) -> None:
        members = [self.people[each].member_id for each in (who, other)]
        self.driver.leave("g", *[member_id for member_id in members if member_id])

    @rule(who=PEOPLE)
    def evict(self, who: str) -> None:
        self.driver.send(EndSession("g", self.people[who].member_id))

    # --- everything else ---

    @rule(who=PEOPLE, partition=st.integers(0, 3))
    def commit(self, who: str, partition: int) -> None:
        person = self.people[who]
        self.driver.commit(
            "g",
            {"orders": {partition: 5}},
            member_id=person.member_id,
            generation_id=person.epoch,
        )

    @rule(fails=st.sampled_from([False, False, False, True]), last=st.booleans())
    def finish_work(self, fails: bool, last: bool) -> None:
        """Computations end in any order."""
        if self.driver.work:
            if last:
                self.driver.work.insert(0, self.driver.work.pop())
            self.driver.finish_work(FAILED if fails else self._outcome(self.driver.work[0]))

    @rule(seconds=st.sampled_from([0.5, 1, 5, 12, 30, 50]))
    def wait(self, seconds: float) -> None:
        self.driver.advance(int(seconds * 1_000))

    @rule(orders=st.integers(1, 14), logs=st.booleans(), payments=st.booleans())
    def change_topics(self, orders: int, logs: bool, payments: bool) -> None:
        topics = [ORDERS._replace(partitions=orders)]
        self.driver.change_topics(*topics, *[LOGS] * logs, *[PAYMENTS] * payments)

    @rule(from_fold=st.booleans())
    def restart(self, from_fold: bool) -> None:
        self.driver.reload(from_fold=from_fold)
        self.driver.work.clear()
        self.waiting = [each for each in self.waiting if each[1].parked]

    # --- what clients do with answers ---

    def _heartbeat(self, person: Person, **fields: Any) -> Any:
        return a_consumer_heartbeat(
            "g", person.member_id, group_instance_id=person.instance_id, **fields
        )

    def _beat(self, person: Person, **fields: Any) -> None:
        self._send(person, self._heartbeat(person, **fields))

    def _send(self, person: Person, request: Any) -> None:
        self._answered(person, self.driver.send(request))

    def _answered(self, person: Person, call: Call) -> None:
        self.waiting.append((person, call))
        self._take_answers()

    def _take_answers(self) -> None:
        """Take the answers that have come. One that the client no longer waits for counts not."""
        waiting, self.waiting = self.waiting, []
        for person, call in waiting:
            if call.parked:
                self.waiting.append((person, call))
            elif call.reply is not None:
                self._take(person, call)

    def _take(self, person: Person, call: Call) -> None:
        last = max(c.number for c in self.driver.calls if self._is_of(person, c))
        if call.number < last:
            return
        kind = type(call.request).__name__
        if call.error is ErrorCode.REBALANCE_IN_PROGRESS:
            return
        if call.error is not NONE:
            if call.error is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                person.forget()
        elif kind == "ConsumerGroupHeartbeat":
            self._take_heartbeat(person, call)
        elif kind == "JoinGroup":
            person.member_id, person.epoch = call.member_id, call.result.generation_id
            leads = call.result.leader == call.member_id
            members = {m.member_id: m.metadata for m in call.result.members}
            person.leads = members if leads and members else None
        elif kind == "SyncGroup":
            parts = decode_assignment(call.result.assignment or NOTHING).partitions
            person.held = {(topic, n) for topic, numbers in parts.items() for n in numbers}

    def _is_of(self, person: Person, call: Call) -> bool:
        request: Any = call.request
        is_own = getattr(request, "member_id", None) in (person.member_id, "")
        return is_own and getattr(request, "group_instance_id", None) == person.instance_id

    def _take_heartbeat(self, person: Person, call: Call) -> None:
        if call.result.member_epoch < 0:
            person.forget()
            return
        person.epoch = call.result.member_epoch
        if call.result.assignment is not None:
            names = {topic.topic_id: topic.name for topic in (ORDERS, PAYMENTS, LOGS)}
            person.held = {(names[t], n) for t, numbers in call.result.assignment for n in numbers}

    def _owned(self, person: Person) -> tuple[tuple[str, tuple[int, ...]], ...]:
        found: dict[str, list[int]] = {}
        for topic, number in sorted(person.held):
            if topic in self.driver.image.by_name:
                found.setdefault(self.driver.image.by_name[topic].topic_id, []).append(number)
        return tuple((topic, tuple(numbers)) for topic, numbers in found.items())

    def _assign(self, members: dict[str, bytes]) -> dict[str, bytes]:
        """What the leader of a classic group assigns: each topic in turns."""
        shares: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in members}
        topics = {member_id: _topics(metadata) for member_id, metadata in members.items()}
        for name, info in self.driver.image.by_name.items():
            readers = [member_id for member_id in members if name in topics[member_id]]
            for number in range(info.partitions if readers else 0):
                shares[readers[number % len(readers)]].setdefault(name, []).append(number)
        return {m: encode_assignment(ConsumerAssignment(1, share)) for m, share in shares.items()}

    def _outcome(self, work: Work) -> Any:
        if isinstance(work, AssignmentWork):
            return compute(work.assignor, work.spec)
        if isinstance(work, FollowWork):
            return None
        names = sorted(self.driver.image.by_name)
        patterns = work.patterns  # type: ignore[attr-defined]
        return PatternMatches(
            self.driver.image.version,
            {p: tuple(name for name in names if re.fullmatch(p, name)) for p in patterns},
        )

    # --- what must hold ---

    @invariant()
    def no_partition_is_held_by_two_clients(self) -> None:
        if not hasattr(self, "driver"):
            return
        self._take_answers()
        group = self.driver.shard.groups.get("g")
        if group is None:
            return
        held: dict[tuple[str, int], str] = {}
        for person in self.people.values():
            if person.member_id in group.members:
                for partition in person.held:
                    other = held.setdefault(partition, person.name)
                    assert other == person.name, f"{partition}: {other} and {person.name}"

    @invariant()
    def only_members_of_the_consumer_protocol_wait_in_a_consumer_group(self) -> None:
        group = self.driver.shard.groups.get("g") if hasattr(self, "driver") else None
        if isinstance(group, ConsumerGroup):
            for member in group.members.values():
                assert member.fields.classic is None or member.parked is None

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        self.patch.undo()
        self.driver.check_replay()
        keyed = KeyedRecords()
        for record in self.driver.records:
            keyed.apply(record)
        live = self.driver.shard.saved("g")
        assert sorted_members(keyed.saved("g")) == sorted_members(live)


NOTHING = encode_assignment(ConsumerAssignment(0, {}))


def _topics(metadata: bytes) -> list[str]:
    """What a member subscribes to, as the leader of its group reads it."""
    try:
        return decode_subscription(metadata).topics
    except ConsumerProtocolError:
        return []


def test_random_lives_of_a_group_of_both_protocols():
    run_lives(MixedGroupMachine, steps=60, lives=100)
