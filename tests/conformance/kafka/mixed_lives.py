"""Random lives of groups whose members speak both protocols, for Hypothesis to draw and to shrink.

Four people join, heartbeat, commit and leave by either protocol: with their own epoch, an older or
a newer one; with what they own, a part of it, nothing, or what is not theirs; with the subscription
that they had, another, none, or a pattern. Two of them are static: each protocol takes over from
the other. So groups change their type both ways. All name the assignor ``range``, whose result is
exact. Classic members choose their ids where they may, because members are sorted by their ids.

In a part of the lives a group has an assignment interval. Requests then come in windows that are
shorter than it, and time passes between them until it is over. In another part members have
patterns, which both sides resolve beside the requests: each request is then followed by a pause.

This file is long because a life needs all that a member of either protocol may do, and what it then
knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from tests.conformance.kafka import settings
from tests.conformance.kafka.allowed import decision_of
from tests.conformance.kafka.case import Case
from tests.conformance.kafka.configs import GROUP, SET, change
from tests.conformance.kafka.pair import SIDES, Pair, Person, Ref, TooSlow
from tests.conformance.kafka.sent import Answer

NAMES = ("a", "b", "c", "d")
STATIC = ("c", "d")
INTERVAL_MS = 1_000
"""An assignment interval; longer where the machine was too slow for it."""
RESOLVED_MS = 120
"""After this long both sides have resolved a pattern; longer on a slow machine."""
PERIOD = 1.5
"""From the start of a window to the start of the next, in intervals."""
WINDOW = 0.5
"""How long a window may last, in intervals."""
MOST_IN_WINDOW = 4
MOST_REQUESTS = 40
TOPICS = ((settings.TOPIC,), (settings.TOPIC,), (settings.TOPIC,), (), ("absent",))
PATTERNS = ("ord.*", "ord.*", "o.*s", "nothing.*", "")
REBALANCING = ("PreparingRebalance", "CompletingRebalance")
CLASSIC = (14, 27)
"""Errors after which a classic client joins again: the load, and a rebalance."""

KINDS = (
    *["join"] * 4,
    *["beat"] * 5,
    *["everyone follows"] * 5,
    *["leave"] * 3,
    *["classic join"] * 4,
    *["classic sync"] * 2,
    *["classic heartbeat"] * 2,
    *["classic leave"] * 2,
    *["commit"] * 2,
    "time",
)
EPOCHS = (*["own"] * 6, "older", "newer", "first")
OWNED = ("none", "none", "own", "own", "part", "empty", "all")


@dataclass(frozen=True)
class MixedAct:
    """One request, or time that passes."""

    kind: str
    who: int
    epoch: str
    owned: str
    topics: tuple[str, ...] | None
    pattern: str | None
    version: int
    variant: int


@dataclass(frozen=True)
class MixedLife:
    """All that happens to one group."""

    kind: str
    """``interval``, ``patterns``, or neither."""
    acts: tuple[MixedAct, ...]


def mixed_lives() -> st.SearchStrategy[MixedLife]:
    """Lives of 5 to 30 requests."""
    act = st.builds(
        MixedAct,
        kind=st.sampled_from(KINDS),
        who=st.integers(0, len(NAMES) - 1),
        epoch=st.sampled_from(EPOCHS),
        owned=st.sampled_from(OWNED),
        topics=st.sampled_from([None, None, None, *TOPICS]),
        pattern=st.sampled_from([None, None, None, *PATTERNS]),
        version=st.integers(0, 1),
        variant=st.integers(0, 29),
    )
    acts = st.integers(5, 30).flatmap(lambda n: st.tuples(*[act] * n))
    kinds = st.sampled_from(["plain", "plain", "interval", "interval", "patterns"])
    return st.builds(MixedLife, kind=kinds, acts=acts)


class Speaker:
    """One person, and what it knows of its membership in either protocol."""

    def __init__(self, liver: MixedLiver, name: str) -> None:
        self.case = liver.case
        self.liver = liver
        self.name = name
        self.person: Person = liver.case.person(name)
        self.id = f"{liver.case.group}-{name}"
        """Its id in the consumer protocol, which clients make up."""
        self.instance = f"i-{name}" if name in STATIC else None
        self.is_classic = False
        self.epoch = 0
        self.lives = 0
        self.assigned: dict[str, list[int]] = {}
        """Topic id on Kafka's side -> partitions."""

    # --- the consumer protocol ---

    def heartbeat(self, version: int, **values: Any) -> Answer:
        usual = {
            "member_id": self.id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
        }
        # epoch 0 is a join, even without other fields
        if values.get("member_epoch", self.epoch) == 0:
            usual["server_assignor"] = "range"
        api = "consumer_group_heartbeat"
        answer = self.case.send(self.person, api, version, **{**usual, **values})
        if answer.get("error_code") == 0:
            self.epoch = answer["member_epoch"]
            if answer["assignment"] is not None:
                topics = answer["assignment"]["topic_partitions"]
                self.assigned = {topic["topic_id"]: topic["partitions"] for topic in topics}
        elif answer.get("error_code"):
            self.epoch, self.assigned = 0, {}
        return answer

    def join(self, version: int, topics: tuple[str, ...], pattern: str | None) -> None:
        self.is_classic = False
        self.assigned = {}
        self.heartbeat(
            version,
            member_epoch=0,
            rebalance_timeout=settings.LONG_MS,
            subscribed_topic_names=list(topics),
            subscribed_topic_regex=pattern,
            topic_partitions=[],
        )

    def owned(self, which: str) -> list[dict[str, Any]] | None:
        """What a heartbeat says that the member owns."""
        if which == "none":
            return None
        if which == "all":
            everything = list(range(settings.PARTITIONS))
            return [{"topic_id": self.case.pair.topic_id, "partitions": everything}]
        if which == "empty":
            return []
        share = slice(1, None) if which == "part" else slice(None)
        return [
            {"topic_id": self._topic(topic_id), "partitions": partitions[share]}
            for topic_id, partitions in self.assigned.items()
        ]

    def _topic(self, kafka_id: str) -> Ref:
        comparison = self.case.pair.comparison
        return Ref(lambda side: UUID(comparison.of_side(kafka_id, side)), f"<topic {kafka_id}>")

    # --- the classic protocol ---

    def classic_join(
        self, version: int, owned: tuple[int, ...] = (), *, under_own_id: bool = False
    ) -> Answer:
        """Join, as a member of the consumer protocol under the id that it has there."""
        self.is_classic = True
        held = {settings.TOPIC: [*owned]} if owned else {}
        metadata = encode_subscription(Subscription(version, [settings.TOPIC], None, held))
        how: dict[str, Any] = {
            "version": 9,
            "protocols": [("range", metadata)],
            "instance": self.instance,
        }
        if under_own_id:
            return self.case.join(self.person, member_id=self.id, **how)
        if self.person.last_error in (25, 82):
            self.person.forget()
        if not self.is_known and self.instance is None:
            chosen = self.case.join(self.person, member_id=f"{self.id}-classic", **how)
            if chosen.get("error_code") != 25:
                return chosen
        answer = self.case.join(self.person, **how)
        if answer.get("error_code") == 79:
            answer = self.case.join(self.person, **how)
        return answer

    def classic_sync(self) -> Answer:
        """A leader divides the topic among all classic clients."""
        leads = self.person.leaders[0] and self.person.leaders[0] == self.person.ids[0][-1]
        assign = self.liver.shares() if leads else None
        return self.case.sync(self.person, assign, version=5, instance=self.instance)

    def classic_heartbeat(self) -> Answer:
        return self.case.heartbeat(self.person, version=4, instance=self.instance)

    @property
    def is_known(self) -> bool:
        """Whether both sides gave it an id."""
        return all(self.person.ids[side] and self.person.ids[side][-1] for side in SIDES)

    @property
    def chosen_id(self) -> str | None:
        """Its id of the classic protocol, if both sides have the same."""
        ids = {self.person.ids[side][-1] for side in SIDES if self.person.ids[side]}
        return ids.pop() if self.is_known and len(ids) == 1 else None

    @property
    def waits(self) -> bool:
        """Whether an answer is still to come."""
        return any(self.person.waiting)


def assigned_partitions(assignment: bytes) -> list[int]:
    """The partitions of the topic in an assignment of the classic protocol."""
    return decode_assignment(assignment).partitions.get(settings.TOPIC, [])


class MixedLiver:
    """Leads one life on both sides."""

    def __init__(self, pair: Pair, life: MixedLife) -> None:
        pair.ends_where_leaders_differ = True
        self.case = Case(pair, 0)
        self.pair = pair
        self.life = life
        self.speakers = [Speaker(self, name) for name in NAMES]
        self.interval_ms = INTERVAL_MS * pair.patience if life.kind == "interval" else 0
        self.described: dict[str, Any] = {}
        """The consumer group as Kafka described it last, or an error without a state."""
        self.classic: dict[str, Any] = {}
        """The classic group as Kafka described it last; without members if it is none."""
        self.is_downgraded = False
        """Whether a consumer group became this classic one, which has not been Stable since."""
        self._start = time.monotonic()

    def lead(self) -> None:
        """Do everything, and look at the group after each request."""
        if self.interval_ms:
            setting = ("consumer.assignment.interval.ms", SET, str(self.interval_ms))
            asked = change(GROUP, self.case.group, setting)
            self.pair.ask("incremental_alter_configs", 1, resources=[asked], validate_only=False)
            self.case.wait(300)
        self._start = time.monotonic()
        in_window = 0
        for act in self.life.acts:
            in_window += 1
            if self.pair.requests >= MOST_REQUESTS:
                break
            if act.kind == "time" or in_window > MOST_IN_WINDOW:
                self._let_time_pass()
                in_window = 0
            elif act.kind == "everyone follows" or not self.speakers[act.who].waits:
                ACTIONS[act.kind](self, act, self.speakers[act.who])
                if self.pair.comparison.differences and not self._all_allowed():
                    return
                self._look()
        self.case.observe()

    def _look(self) -> None:
        if self.life.kind == "patterns":
            self.case.wait(RESOLVED_MS * self.pair.patience)
        was_consumer = bool(self.described.get("members"))
        (self.classic,) = self.pair.look()["groups"]
        groups = [self.case.group]
        answer = self.pair.ask_until_equal(
            "consumer_group_describe", 1, group_ids=groups, include_authorized_operations=False
        )
        (self.described,) = answer["groups"]
        is_rebalancing = self.classic["group_state"] in REBALANCING
        self.is_downgraded = is_rebalancing and (was_consumer or self.is_downgraded)

    def _all_allowed(self) -> bool:
        return all(decision_of(one) is not None for one in self.pair.comparison.differences)

    def _let_time_pass(self) -> None:
        if self.interval_ms:
            spent_ms = int((time.monotonic() - self._start) * 1_000)
            if spent_ms > WINDOW * self.interval_ms:
                raise TooSlow
            self.case.wait(int(PERIOD * self.interval_ms) - spent_ms)
            self._start = time.monotonic()

    def shares(self) -> dict[Person, bytes]:
        """What the leader of a classic group assigns."""
        people = [each.person for each in self.speakers if each.is_classic and each.is_known]
        count = len(people)
        return {
            person: encode_assignment(
                ConsumerAssignment(1, {settings.TOPIC: list(range(at, settings.PARTITIONS, count))})
            )
            for at, person in enumerate(people)
        }

    # --- acts ---

    def join(self, act: MixedAct, speaker: Speaker) -> None:
        if act.variant % 3 == 0:  # a new process of the same client
            speaker.lives += 1
            speaker.id = f"{self.case.group}-{speaker.name}-{speaker.lives}"
        elif act.variant % 7 == 1 and speaker.is_classic and speaker.chosen_id:
            speaker.id = speaker.chosen_id
        topics = (settings.TOPIC,) if act.topics is None else act.topics
        pattern = self._pattern(act)
        if self.described.get("group_state") == "Assigning" and not topics:
            # All that follows would differ too, see
            # docs/understand/differences.md#a-member-without-topics-gets-no-partitions
            topics, pattern = (settings.TOPIC,), None
        if self._conversion_differs(begins_an_epoch=bool(topics) and speaker.instance is None):
            return  # docs/understand/differences.md#a-conversion-shares-out-every-partition-once
        speaker.join(act.version, topics, pattern)

    def _conversion_differs(self, *, begins_an_epoch: bool) -> bool:
        """Whether the classic group would be another consumer group here than in Kafka."""
        told = [member["member_assignment"] for member in self.classic.get("members", [])]
        if not told:
            return False
        if self.classic["group_state"] in REBALANCING and (self.is_downgraded or not any(told)):
            return True
        read = {n for each in told if each for n in assigned_partitions(each)}
        return not begins_an_epoch and len(read) < settings.PARTITIONS

    def _pattern(self, act: MixedAct) -> str | None:
        return act.pattern if self.life.kind == "patterns" and act.version else None

    def beat(self, act: MixedAct, speaker: Speaker) -> None:
        if speaker.is_classic:
            self.classic_heartbeat(act, speaker)
            return
        epochs = {
            "own": speaker.epoch,
            "older": max(speaker.epoch - 1, 1),
            "newer": speaker.epoch + 1,
            "first": 1,
        }
        speaker.heartbeat(
            act.version,
            member_epoch=epochs[act.epoch],
            topic_partitions=speaker.owned(act.owned),
            subscribed_topic_names=None if act.topics is None else list(act.topics),
            subscribed_topic_regex=self._pattern(act),
            rebalance_timeout=settings.LONG_MS if act.variant % 4 == 0 else -1,
        )

    def everyone_follows(self, act: MixedAct, _: Speaker) -> None:
        """Each does what its protocol asks for next."""
        for speaker in self.speakers:
            if speaker.waits:
                continue
            if not speaker.is_classic:
                if speaker.epoch > 0:
                    speaker.heartbeat(act.version, topic_partitions=speaker.owned("own"))
            elif speaker.is_known:
                error = speaker.classic_heartbeat().get("error_code")
                if error in CLASSIC and speaker.classic_join(1).get("error_code") == 0:
                    speaker.classic_sync()

    def leave(self, act: MixedAct, speaker: Speaker) -> None:
        if speaker.is_classic:
            self.classic_leave(act, speaker)
            return
        epoch = -2 if act.variant % 2 and speaker.instance else -1
        speaker.heartbeat(act.version, member_epoch=epoch)
        speaker.epoch, speaker.assigned = 0, {}

    def classic_join(self, act: MixedAct, speaker: Speaker) -> None:
        if speaker.instance and self._others_wait(speaker):
            return  # docs/understand/differences.md#a-conversion-shares-out-every-partition-once
        known = [member["member_id"] for member in self.described.get("members", [])]
        # A classic group in which a member reports partitions may be converted differently, see
        # docs/understand/differences.md#a-conversion-shares-out-every-partition-once
        owned = tuple(range(act.variant % 5)) if act.owned == "part" and known else ()
        answer = speaker.classic_join(
            act.variant % 4, owned, under_own_id=act.variant % 5 == 1 and speaker.id in known
        )
        if answer.get("error_code") == 0 and act.variant % 2:
            speaker.classic_sync()

    def _others_wait(self, speaker: Speaker) -> bool:
        """Whether another member has not reached its target."""
        return any(
            member["instance_id"] != speaker.instance
            and (
                member["member_epoch"] != self.described["assignment_epoch"]
                or member["assignment"] != member["target_assignment"]
            )
            for member in self.described.get("members", [])
        )

    def classic_sync(self, _: MixedAct, speaker: Speaker) -> None:
        speaker.classic_sync()

    def classic_heartbeat(self, _: MixedAct, speaker: Speaker) -> None:
        speaker.classic_heartbeat()

    def classic_leave(self, act: MixedAct, speaker: Speaker) -> None:
        """Leave, or remove a member of the consumer protocol as an administrator does."""
        of: Ref | str = speaker.person.id if speaker.is_classic else speaker.id
        more = ((self.speakers[0].id, None),) if act.variant % 5 == 0 else ()
        self.case.leave(speaker.person, (of, speaker.instance), *more, version=5)

    def commit(self, act: MixedAct, speaker: Speaker) -> None:
        more = {"older": -1, "newer": 1}.get(act.epoch, 0)
        if speaker.is_classic:
            generation = speaker.person.generation(more)
            partitions = (
                act.variant % settings.PARTITIONS,
                (act.variant + 6) % settings.PARTITIONS,
            )
            self.case.commit(
                speaker.person,
                version=9,
                generation=generation,
                topics=[self.case.offsets(partitions=partitions[: 1 + act.version])],
            )
            return
        self.case.commit(
            speaker.person,
            version=9,
            generation=1 if act.epoch == "first" else max(speaker.epoch + more, 0),
            member_id=speaker.id,
            group_instance_id=speaker.instance,
            topics=[self.case.offsets(partitions=(act.variant % settings.PARTITIONS,))],
        )


ACTIONS: dict[str, Callable[[MixedLiver, MixedAct, Speaker], Any]] = {
    "join": MixedLiver.join,
    "beat": MixedLiver.beat,
    "everyone follows": MixedLiver.everyone_follows,
    "leave": MixedLiver.leave,
    "classic join": MixedLiver.classic_join,
    "classic sync": MixedLiver.classic_sync,
    "classic heartbeat": MixedLiver.classic_heartbeat,
    "classic leave": MixedLiver.classic_leave,
    "commit": MixedLiver.commit,
}
