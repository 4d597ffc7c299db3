"""A case at work: the same requests to both sides in the same order, and what came back when.

A ``Person`` is one client with one connection to each side. A request names ids and generations by
whose they are (``Ref``), since each side makes up its own. After each request both sides get time
until the same people have been answered: who is parked on one side must be parked on the other.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any
from uuid import UUID

from groupkeeper.protocol.versions import APIS, Api
from tests.conformance.kafka import settings
from tests.conformance.kafka.allowed import decision_of
from tests.conformance.kafka.comparison import CLOSED, ON_TIME, PARKED, Comparison
from tests.conformance.kafka.sent import Answer, Received, Sent
from tests.helpers.wire.raw_client import API_KEYS, RawClient

BY_NAME: dict[str, Api] = {
    name: next(api for api in APIS if api.key == key) for name, key in API_KEYS.items()
}

KAFKA, OURS = SIDES = (0, 1)
QUIET_S = 0.04
"""Nobody more is answered after this long."""
PATIENCE_S = 1.0
"""How long two sides may differ in who has been answered."""
LATE_S = 0.5
"""How far apart two answers may come that a timer sent."""
TIMEOUT_S = 20


class Ref:
    """A value that each side has its own of."""

    def __init__(self, of_side: Callable[[int], Any], shown: str) -> None:
        self.of_side = of_side
        self.shown = shown

    def __repr__(self) -> str:
        return self.shown


class Diverged(Exception):
    """The two sides went different ways; nothing after this can be compared."""


class Arbitrary(Exception):
    """Kafka chose a leader in no order (that of a hash map), and not the one that we chose."""


class TooSlow(Exception):
    """The machine was too busy: which timers fired before which request is chance."""


class Person:
    """One client: a connection to each side, the ids that it was given, and its generation."""

    def __init__(self, pair: Pair, name: str) -> None:
        self.name = name
        self.ids: list[list[str]] = [[], []]
        self.generations = [-1, -1]
        self.leaders = ["", ""]
        self.waiting: list[Sent | None] = [None, None]
        self.received: list[list[Received]] = [[], []]
        self.compared = [0, 0]
        """How many of them have been."""
        self._pair = pair
        self._clients: list[RawClient | None] = [None, None]

    def forget(self) -> None:
        """Start afresh, as clients do whose id is no longer known."""
        for ids in self.ids:
            if ids and ids[-1]:
                ids.append("")

    @property
    def last_error(self) -> int:
        """The error code that Kafka gave it last."""
        code = self.received[KAFKA][-1].answer.get("error_code", 0) if self.received[KAFKA] else 0
        return int(code)

    @property
    def id(self) -> Ref:
        """The last member id that each side gave it, ``""`` before."""
        return Ref(lambda side: (self.ids[side] or [""])[-1], f"<{self.name}>")

    @property
    def old_id(self) -> Ref:
        """The member id before the last one."""
        return Ref(lambda side: (["", "", *self.ids[side]])[-2], f"<{self.name} before>")

    def generation(self, more: int = 0) -> Ref:
        """Its generation, or one that many later."""
        shown = f"<generation of {self.name}{(more and f' {more:+}') or ''}>"
        return Ref(lambda side: self.generations[side] + more, shown)

    def client(self, side: int) -> RawClient:
        """Its connection to a side."""
        found = self._clients[side]
        if found is None:
            found = RawClient(self._pair.ports[side], client_id=self.name, timeout_s=TIMEOUT_S)
            found.call("api_versions", 0)  # a busy server accepts connections late
            self._clients[side] = found
        return found

    def hang_up(self) -> None:
        """Close both connections; the next request opens new ones."""
        for side in SIDES:
            client, self._clients[side] = self._clients[side], None
            self.waiting[side] = None
            if client is not None:
                client.close()

    def take(self, side: int) -> None:
        """Read the answer that has come."""
        sent = self.waiting[side]
        assert sent is not None
        try:
            answer = self.client(side).receive(sent.api, sent.version, sent.correlation_id)
        except ConnectionError:
            client, self._clients[side] = self._clients[side], None
            assert client is not None
            client.close()
            answer = CLOSED
        self.waiting[side] = None
        sent.answer = answer
        self.received[side].append(Received(sent, answer, time.monotonic()))
        if sent.api == "join_group" and answer is not CLOSED:
            if answer["member_id"] and answer["error_code"] in (0, 79):
                self.ids[side].append(answer["member_id"])
            if answer["error_code"] == 0:
                self.generations[side] = answer["generation_id"]
                self.leaders[side] = answer["leader"]


class Pair:
    """Both sides of one case."""

    def __init__(
        self, ports: tuple[int, int], name: str, group: str, topic_ids: tuple[UUID, UUID]
    ) -> None:
        self.ports = ports
        self.group = group
        self.comparison = Comparison(name, group, ports)
        self.steps: list[str] = []
        """What was sent and what came, for whoever reads a difference."""
        self.requests = 0
        self.patience = 1
        """By what the timeouts of a generated case are multiplied: the machine may be busy."""
        self.ends_where_leaders_differ = False
        self._history: list[Sent] = []
        """All that people sent to our side."""
        self._leaders = ["", ""]
        self._topic_ids = topic_ids
        self._people: dict[str, Person] = {}
        self._watch = Person(self, "watch")

    def person(self, name: str) -> Person:
        """The client of that name."""
        return self._people.setdefault(name, Person(self, name))

    @property
    def topic_id(self) -> Ref:
        """The id of the topic that all cases share."""
        return Ref(lambda side: self._topic_ids[side], f"<id of {settings.TOPIC}>")

    def send(self, person: Person, api: str, version: int, **values: Any) -> Answer:
        """Send to both sides and compare all that comes at once.

        Returns Kafka's answer, ``PARKED`` while there is none.
        """
        return self.send_all([(person, api, version, values)])[0]

    def send_all(self, requests: list[tuple[Person, str, int, dict[str, Any]]]) -> list[Answer]:
        """Send several requests without waiting between them, each by another person."""
        for person, api, version, values in requests:
            shown = f"{person.name}: {api} v{version} {_short(_told_of(values))}"
            self.steps.append(shown)
            self.requests += 1
            for side in SIDES:
                client = person.client(side)
                own = resolved(values, side)
                try:
                    number = client.send(api, version, **own)
                except ConnectionError:
                    number = 0  # the caller reads the end of the connection in place of an answer
                sent = person.waiting[side] = Sent(api, version, number, shown, own)
                self._history += [sent] * (side == OURS)
        before = {person: len(person.received[KAFKA]) for person, *_ in requests}
        self._settle()
        self._compare()
        return [
            person.received[KAFKA][count].answer if len(person.received[KAFKA]) > count else PARKED
            for person, count in before.items()
        ]

    def wait(self, milliseconds: int) -> None:
        """Let time pass, and compare what comes meanwhile, and when."""
        self.steps.append(f"{milliseconds} ms pass")
        end = time.monotonic() + milliseconds / 1_000
        while (left := end - time.monotonic()) > 0:
            self._collect(min(left, 0.25))
        self._settle()
        self._compare()

    def wait_for(self, *people: Person) -> list[Answer]:
        """Wait until both sides have answered these; returns Kafka's answers."""
        end = time.monotonic() + TIMEOUT_S
        while any(person.waiting[side] for person in people for side in SIDES):
            if time.monotonic() > end:
                break
            self._collect(0.25)
        self._settle()
        self._compare()
        return [p.received[KAFKA][-1].answer for p in people]

    def look(self) -> Answer:
        """Compare what both sides tell of the case's group. Returns Kafka's answer."""
        return self.ask_until_equal("describe_groups", 5, groups=[self.group])

    def observe(self, *groups: str) -> None:
        """Compare what both sides tell of the groups: members, state and offsets."""
        for group in groups or (self.group,):
            self.steps.append(f"looking at {group}")
            self.ask_until_equal("describe_groups", 5, groups=[group])
            self.ask_until_equal("offset_fetch", 7, group_id=group, topics=None)

    def ask_until_equal(
        self, api: str, version: int, mask: Callable[[Answer], Answer] = dict, **values: Any
    ) -> Answer:
        """Compare once both sides are at rest: Kafka shows some things later than it answers.

        ``mask`` takes out what is not to be compared. Returns Kafka's answer.
        """
        end = time.monotonic() + PATIENCE_S
        compared, found = self.comparison.answers, len(self.comparison.differences)
        while True:
            answers = [mask(self._watch.client(s).call(api, version, **values)) for s in SIDES]
            del self.comparison.differences[found:]
            self.comparison.answers = compared
            self.comparison.compare(f"after {self._last()}", api, version, *answers)
            if len(self.comparison.differences) == found or time.monotonic() > end:
                return answers[0]
            time.sleep(0.03)

    def ask(
        self, api: str, version: int, mask: Callable[[Answer], Answer] = dict, **values: Any
    ) -> Answer:
        """Ask both sides, by nobody in particular; ``mask`` takes out what others' cases change.

        Returns Kafka's answer.
        """
        shown = f"{api} v{version} {_short(_told_of(values))}"
        self.steps.append(shown)
        answers = []
        for side in SIDES:
            try:
                answer = self._watch.client(side).call(api, version, **resolved(values, side))
            except ConnectionError:
                self._watch.hang_up()
                answer = CLOSED
            answers.append(answer if answer is CLOSED else mask(answer))
        self.comparison.compare(shown, api, version, *answers)
        return answers[0]

    def close(self) -> None:
        """Hang up."""
        for person in (*self._people.values(), self._watch):
            person.hang_up()

    def _last(self) -> str:
        told = (s for s in reversed(self.steps) if not s.startswith(("looking", "   ->")))
        return next(told, "the start")

    def _people_waiting(self, side: int) -> set[Person]:
        return {person for person in self._people.values() if person.waiting[side]}

    def _collect(self, wait_s: float) -> bool:
        """Take what has come to either side; says whether anything did."""
        sockets = {
            person.client(side).socket: (person, side)
            for side in SIDES
            for person in self._people_waiting(side)
        }
        ready, _, _ = select.select(list(sockets), [], [], wait_s)
        for one in ready:
            person, side = sockets[one]
            person.take(side)
        return bool(ready)

    def _settle(self) -> None:
        give_up = time.monotonic() + PATIENCE_S
        quiet_since = time.monotonic()
        passed = False
        while True:
            waiting = [self._people_waiting(side) for side in SIDES]
            if not waiting[KAFKA] and not waiting[OURS]:
                return
            if self._collect(0.01):
                quiet_since = time.monotonic()
            now = time.monotonic()
            even = self._people_waiting(KAFKA) == self._people_waiting(OURS)
            if even and not passed:
                self._pass_through()
                passed = True
            elif (even and now > quiet_since + QUIET_S) or now > give_up:
                return

    def _pass_through(self) -> None:
        """Ask both sides something that waits its turn behind what has been sent.

        A server that is busy has not read a request yet that seems to be parked.
        """
        nobody = {"group_id": self.group, "generation_id": 0, "member_id": "nobody"}
        for side in SIDES:
            self._watch.client(side).call("heartbeat", 3, **nobody)

    def _compare(self) -> None:
        """Compare what has come since the last time, person by person."""
        fresh = []
        for person in self._people.values():
            theirs, mine = (person.received[side][person.compared[side] :] for side in SIDES)
            fresh += [(person, *both) for both in zip_longest(theirs, mine)]
            person.compared = [len(person.received[side]) for side in SIDES]
            self._pair_ids(person)
        if self.ends_where_leaders_differ:
            self._check_leaders([(theirs, mine) for _, theirs, mine in fresh])
        # First the answers with new ids: the other answers name these ids too.
        for person, theirs, mine in fresh:
            self._compare_one(person, theirs, mine)

    def _check_leaders(self, fresh: list[tuple[Received | None, Received | None]]) -> None:
        """A group whose leader stays away gets any other member as its leader."""
        for theirs, mine in fresh:
            if theirs is None or mine is None or theirs.sent.api != "join_group":
                continue
            both = [theirs.answer, mine.answer]
            if any(answer.get("error_code") != 0 for answer in both):
                continue
            leaders = [answer["leader"] for answer in both]
            stays = [leaders[side] == self._leaders[side] for side in SIDES]
            if not any(stays) and not self.comparison.stands_for(leaders[0], leaders[1]):
                raise Arbitrary
            self._leaders = leaders

    def _pair_ids(self, person: Person) -> None:
        for kafka, ours in zip(*person.ids, strict=False):
            self.comparison.pair(kafka, ours)

    def _compare_one(self, person: Person, theirs: Received | None, mine: Received | None) -> None:
        one = theirs or mine
        assert one is not None
        sent = one.sent
        kafka = theirs.answer if theirs else PARKED
        ours = mine.answer if mine else PARKED
        self.steps.append(f"   -> {person.name}: {_short(kafka)}")
        given_up_by = mine.sent.given_up_by(self._history) if mine and not theirs else ""
        self.comparison.compare(
            self._told(sent), sent.api, sent.version, kafka, ours, given_up_by=given_up_by
        )
        if theirs and mine and abs(theirs.at_s - mine.at_s) > LATE_S:
            late = f"{'ours' if mine.at_s > theirs.at_s else 'Kafka'} is late"
            self.comparison.compare(self._told(sent), sent.api, sent.version, ON_TIME, {late: 0})
        if theirs is None or mine is None:
            if decision_of(self.comparison.differences[-1]) is None:
                raise Diverged(self._told(sent))
            person.hang_up()

    def _told(self, sent: Sent) -> str:
        last = self._last()
        return sent.shown if last == sent.shown else f"{sent.shown}, after {last}"


def resolved(value: Any, side: int) -> Any:
    """The value as a side gets it."""
    if isinstance(value, Ref):
        return value.of_side(side)
    if isinstance(value, Mapping):
        return {key: resolved(item, side) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [resolved(item, side) for item in value]
    return value


SELF_EVIDENT = {"group_id", "session_timeout", "rebalance_timeout", "protocol_type", "reason"}


def _told_of(values: dict[str, Any]) -> dict[str, Any]:
    """A request without what it has like all others."""
    usual = {settings.LONG_MS, "consumer", "a case", None, -1}
    return {
        name: value
        for name, value in values.items()
        if not (name in SELF_EVIDENT and (name == "group_id" or value in usual))
    }


def _short(values: Any) -> str:
    text = repr(values)
    return text if len(text) < 700 else text[:700] + "…"
