"""Random lives of a consumer group: what must hold whatever its members do.

After each step the driver compares all counts with what is counted anew, and at the end the live
state with a replay of the records. Here members also have what they were told, so that no
partition is held by two of them as they see it.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.storage.keyed import KeyedRecords
from tests.helpers.core.consumer_members import ConsumerStub, owners_by_events, settle
from tests.helpers.core.examples import run_lives
from tests.helpers.core.saved_members import sorted_members
from tests.helpers.core.shard_driver import ORDERS, PAYMENTS, ShardDriver, TopicInfo

LOGS = TopicInfo("logs", "AAAAAAAAAAAAAAAAAAAAAw", 3)
TOPICS = ("orders", "payments", "logs", "absent")
IDS = st.sampled_from("abcdef")
NAMES = st.lists(st.sampled_from(TOPICS), max_size=4, unique=True).map(tuple)


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Up to six clients, two of them static, and a coordinator that restarts."""

    @initialize(interval_ms=st.sampled_from([0, 1_000]))
    def start(self, interval_ms: int) -> None:
        self.driver = ShardDriver(consumer_assignment_interval_ms=interval_ms)
        self.driver.change_topics(ORDERS, PAYMENTS)
        self.clients = {
            each: ConsumerStub(self.driver, each, instance_id=f"i{each}" if each in "ef" else None)
            for each in "abcdef"
        }
        self.lives = 0
        self.epochs = (0, 0)

    @rule(who=IDS, names=NAMES, assignor=st.sampled_from([None, "range"]))
    def join(self, who: str, names: tuple[str, ...], assignor: str | None) -> None:
        self._of(
            who, self.clients[who].join(subscribed_topic_names=names, server_assignor=assignor)
        )

    @rule(who=IDS)
    def beat(self, who: str) -> None:
        client = self.clients[who]
        if client.epoch > 0:  # a join without its fields is refused before it gets here
            self._of(who, client.beat())

    @rule(who=IDS)
    def acknowledge(self, who: str) -> None:
        client = self.clients[who]
        if client.epoch > 0:
            self._of(who, client.acknowledge())

    @rule(who=IDS, names=NAMES)
    def subscribe(self, who: str, names: tuple[str, ...]) -> None:
        client = self.clients[who]
        if client.epoch > 0:
            self._of(who, client.beat(subscribed_topic_names=names))

    @rule(who=IDS)
    def lose_an_answer(self, who: str) -> None:
        client = self.clients[who]
        if client.epoch > 0:
            epoch, held = client.epoch, client.held
            self._of(who, client.beat())
            client.epoch = epoch
            client.held = held

    @rule(who=IDS, for_now=st.booleans())
    def leave(self, who: str, for_now: bool) -> None:
        client = self.clients[who]
        client.leave(-2 if for_now and client.instance_id else -1)
        client.held, client.epoch = {}, 0

    @rule(who=st.sampled_from("ef"))
    def come_back_with_another_id(self, who: str) -> None:
        self.lives += 1
        client = self.clients[who]
        client.member_id = f"{who}{self.lives}"
        client.epoch, client.held = 0, {}

    @rule(seconds=st.sampled_from([0.5, 1, 5, 30, 50]))
    def wait(self, seconds: float) -> None:
        self.driver.advance(int(seconds * 1_000))

    @rule(orders=st.integers(1, 14), logs=st.booleans(), payments=st.booleans())
    def change_topics(self, orders: int, logs: bool, payments: bool) -> None:
        topics = [ORDERS._replace(partitions=orders)]
        self.driver.change_topics(*topics, *[LOGS] * logs, *[PAYMENTS] * payments)

    @rule(from_fold=st.booleans())
    def restart(self, from_fold: bool) -> None:
        self.driver.reload(from_fold=from_fold)

    @rule()
    def settle_down(self) -> None:
        """All members that are left reach a state in which nothing changes any more."""
        members = [client for client in self.clients.values() if client.epoch > 0]
        for member in members:
            self._of(member.member_id[0], member.acknowledge())
        members = [member for member in members if member.epoch > 0]
        for _ in range(60):  # others may have to be evicted first
            records = len(self.driver.records)
            settle(self.driver, members, rounds=1)
            group = self.driver.shard.groups.get("g")
            is_alone = isinstance(group, ConsumerGroup) and len(group.members) == len(members)
            if is_alone and group.state == "Stable" and len(self.driver.records) == records:
                break
        if is_alone:
            assert group.state in ("Stable", "Empty")
            records = len(self.driver.records)
            for member in members:
                assert member.beat().error is ErrorCode.NONE
            assert len(self.driver.records) == records

    def _of(self, who: str, call: Any) -> None:
        """A client that is refused forgets what it had."""
        client = self.clients[who]
        if call.error is not ErrorCode.NONE:
            client.epoch, client.held = 0, {}

    @invariant()
    def epochs_only_grow(self) -> None:
        group = self.driver.shard.groups.get("g") if hasattr(self, "driver") else None
        if group is None:  # an Empty group without offsets is deleted in the end
            self.epochs = (0, 0)
        if isinstance(group, ConsumerGroup):
            epochs = group.epochs.group, group.epochs.target
            assert all(now >= was for now, was in zip(epochs, self.epochs, strict=True))
            self.epochs = epochs
        else:
            self.epochs = (0, 0)  # an empty group without offsets has expired; a new one begins

    @invariant()
    def no_partition_is_held_by_two_clients(self) -> None:
        """From the answer that gave it to the heartbeat that gave it up, or until it was fenced."""
        group = self.driver.shard.groups.get("g") if hasattr(self, "driver") else None
        if isinstance(group, ConsumerGroup):
            held = [
                (topic, number)
                for client in self.clients.values()
                if client.member_id in group.members
                for topic, numbers in client.held.items()
                for number in numbers
            ]
            assert len(held) == len({*held})

    @invariant()
    def the_events_say_who_owns_what(self) -> None:
        group = self.driver.shard.groups.get("g") if hasattr(self, "driver") else None
        if isinstance(group, ConsumerGroup):
            topics = (ORDERS, PAYMENTS, LOGS)
            assert owners_by_events(self.driver.events, topics) == {
                (topic, number): owner
                for topic, owners in group.owners.items()
                for number, owner in owners.items()
            }

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.check_replay()
            keyed = KeyedRecords()
            for record in self.driver.records:
                keyed.apply(record)
            live = self.driver.shard.saved("g")
            assert sorted_members(keyed.saved("g")) == sorted_members(live)


def test_random_lives_of_a_consumer_group():
    run_lives(ConsumerGroupMachine, steps=40, lives=100)
