"""Random lives of a group, for Hypothesis to draw and to shrink.

Three people send 5 to 30 requests: with their own id, an older one, another's, none or a made-up
one, with the right generation or a wrong one; administrators look and delete; and in some lives
timeouts are short and time passes. Requests come in windows, time passes between them, and the
windows stand so that no timer which one of them armed fires within another, three timers deep.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from tests.conformance.kafka import settings
from tests.conformance.kafka.allowed import decision_of
from tests.conformance.kafka.case import Case
from tests.conformance.kafka.pair import BY_NAME, SIDES, Pair, Person, Ref, TooSlow
from tests.conformance.kafka.sent import Answer

NAMES = ("a", "b", "c")
TIMEOUT_MS = 1_500
"""A short session or rebalance timeout; longer where the machine was too slow for it."""
PERIOD = 2.5
"""From the start of a window to the start of the next, in timeouts."""
WINDOW = 0.4
"""How long a window may last, in timeouts."""

MOST_IN_WINDOW = 4
"""Requests, so that they fit into it on a slow machine."""

MOST_REQUESTS = 30

KINDS = (
    *["join"] * 6,
    *["everyone joins"] * 3,
    *["everyone syncs"] * 5,
    *["sync"] * 2,
    *["heartbeat"] * 3,
    *["leave"] * 2,
    *["commit"] * 3,
    *["time"] * 2,
    "fetch",
    "admin",
)
IDS = ("own", "own", "own", "own", "own", "own", "none", "older", "other", "made-up")
GENERATIONS = ("own", "own", "own", "own", "own", "older", "newer", "none")
PROTOCOLS = (
    [("range", b"1")],
    [("range", b"1")],
    [("range", b"1")],
    [("range", b"2")],
    [("range", b"1"), ("sticky", b"1")],
    [("sticky", b"1")],
    [],
)
"""No two of these can tie in a vote: Kafka would pick any."""


@dataclass(frozen=True)
class Act:
    """One request, or time that passes."""

    kind: str
    who: int
    member_id: str
    generation: str
    level: int
    """Which version: 0 the lowest, 10 the highest, or nearest to it."""
    variant: int

    def version(self, api: str, least: int = 0) -> int:
        """The version of an API at this level."""
        found = BY_NAME[api]
        span = found.max_version - found.min_version
        return max(found.min_version + self.level * span // 10, least)


@dataclass(frozen=True)
class Life:
    """All that happens to one group."""

    short: bool
    """Timeouts are short, and time passes."""
    static: bool
    """Some joins name an instance."""
    acts: tuple[Act, ...]


def lives() -> st.SearchStrategy[Life]:
    """Lives of 5 to 30 requests."""
    act = st.builds(
        Act,
        kind=st.sampled_from(KINDS),
        who=st.integers(0, len(NAMES) - 1),
        member_id=st.sampled_from(IDS),
        generation=st.sampled_from(GENERATIONS),
        level=st.integers(0, 10) | st.just(10),
        variant=st.integers(0, 41),
    )
    # Not a list of any length: short ones would be drawn far more often.
    acts = st.integers(5, 30).flatmap(lambda n: st.tuples(*[act] * n))
    return st.builds(Life, short=st.booleans(), static=st.booleans(), acts=acts)


class Liver:
    """Leads one life on both sides."""

    def __init__(self, pair: Pair, life: Life) -> None:
        pair.ends_where_leaders_differ = True
        self.case = Case(pair, 0)
        self.pair = pair
        self.life = life
        self.people = self.case.people(*NAMES)
        self.timeout_ms = TIMEOUT_MS * pair.patience
        self._start = time.monotonic()

    def lead(self) -> None:
        """Do everything, and look at the group after each request."""
        in_window = 0
        for act in self.life.acts:
            person = self.people[act.who]
            in_window += 1
            if self.pair.requests >= MOST_REQUESTS:
                break
            if act.kind == "time" or in_window > MOST_IN_WINDOW:
                self._let_time_pass()
                in_window = 0
            elif not any(person.waiting) or act.kind.startswith("everyone"):
                ACTIONS[act.kind](self, act, person)
                if self.pair.comparison.differences and not self._all_allowed():
                    return
                self.pair.look()
        self._let_time_pass()
        self.case.observe()

    def _all_allowed(self) -> bool:
        return all(decision_of(one) is not None for one in self.pair.comparison.differences)

    def _let_time_pass(self) -> None:
        if not self.life.short:
            return
        spent_ms = int((time.monotonic() - self._start) * 1_000)
        if spent_ms > WINDOW * self.timeout_ms:
            raise TooSlow
        self.case.wait(int(PERIOD * self.timeout_ms) - spent_ms)
        self._start = time.monotonic()

    def _id(self, act: Act, person: Person) -> Ref | str:
        other = self.people[(act.who + 1) % len(self.people)]
        ids: dict[str, Ref | str] = {
            "own": person.id,
            "none": "",
            "older": person.old_id,
            "other": other.id,
            "made-up": "made-up",
        }
        return ids[act.member_id]

    def _generation(self, act: Act, person: Person) -> Ref | int:
        more = {"own": 0, "older": -1, "newer": 1}
        return -1 if act.generation == "none" else person.generation(more[act.generation])

    def _instance(self, act: Act) -> str | None:
        """Two of the three are static; now and then one forgets it, or claims another's."""
        if not self.life.static or act.variant % 8 == 0:
            return None
        who = 1 if act.variant % 7 == 0 else act.who
        return f"i-{NAMES[who]}" if who else None

    def _timeout(self, is_short: int) -> int:
        return self.timeout_ms if self.life.short and is_short else settings.LONG_MS

    def join(self, act: Act, person: Person) -> None:
        answer = self._join(act, person)
        if act.member_id == "own" and answer.get("error_code") == 79:
            self._join(act, person)

    def _join(self, act: Act, person: Person) -> Answer:
        if person.last_error in (25, 82) and act.variant % 5:
            person.forget()
        return self.case.join(
            person,
            version=act.version("join_group"),
            member_id=self._id(act, person),
            instance=self._instance(act),
            protocols=PROTOCOLS[act.variant % len(PROTOCOLS)],
            protocol_type="connect" if act.variant == 41 else "consumer",
            session_timeout=self._timeout(act.variant % 2),
            rebalance_timeout=self._timeout(act.variant // 2 % 2),
        )

    def everyone_joins(self, act: Act, _: Person) -> None:
        """Who has been a member joins again, as after REBALANCE_IN_PROGRESS."""
        for person in self._idle_members():
            self.join(replace(act, member_id="own", variant=act.variant // 7 * 7), person)

    def everyone_syncs(self, act: Act, _: Person) -> None:
        """Who has been a member syncs, the leader last."""
        leads = {p: p.leaders[0] == p.ids[0][-1] for p in self._idle_members()}
        for person in sorted(leads, key=leads.__getitem__):
            assign = {p: bytes([n]) for n, p in enumerate(self.people)} if leads[person] else None
            self.case.sync(person, assign, version=act.version("sync_group"))

    def _idle_members(self) -> list[Person]:
        return [
            p
            for p in self.people
            if all(p.ids[s] and p.ids[s][-1] for s in SIDES) and not any(p.waiting)
        ]

    def sync(self, act: Act, person: Person) -> None:
        assign = {p: bytes([n]) for n, p in enumerate(self.people[: act.variant % 4])}
        self.case.sync(
            person,
            assign,
            version=act.version("sync_group"),
            generation=self._generation(act, person),
            member_id=self._id(act, person),
            instance=self._instance(act),
            protocol_name="sticky" if act.variant == 40 else "range",
        )

    def heartbeat(self, act: Act, person: Person) -> None:
        self.case.heartbeat(
            person,
            version=act.version("heartbeat"),
            generation=self._generation(act, person),
            member_id=self._id(act, person),
            instance=self._instance(act),
        )

    def leave(self, act: Act, person: Person) -> None:
        member = (self._id(act, person), self._instance(act))
        more = ((self.people[0].id, None),) if act.variant % 5 == 0 else ()
        self.case.leave(person, member, *more, version=act.version("leave_group"))

    def commit(self, act: Act, person: Person) -> None:
        self.case.commit(
            person,
            version=act.version("offset_commit"),
            generation=self._generation(act, person),
            member_id=self._id(act, person),
            group_instance_id=self._instance(act),
            topics=[
                self.case.offsets(partitions=numbers, offset=act.variant - 7 * entry)
                for entry, numbers in enumerate(_entries(act))
            ],
        )

    def fetch(self, act: Act, person: Person) -> None:
        version = act.version("offset_fetch")
        everything = act.variant % 2 == 0 and version >= 2
        topics = [self.case.wanted(partitions=numbers) for numbers in _entries(act)]
        self.case.fetch(
            person, version=version, topics=topics, everything=everything, require_stable=True
        )

    def admin(self, act: Act, person: Person) -> None:
        match act.variant % 4:
            case 0:
                version = act.version("delete_groups")
                groups = [self.case.group]
                self.case.send(person, "delete_groups", version, groups_names=groups)
            case 1:
                self.case.offset_delete(person, (settings.TOPIC, (act.variant % 13,)))
            case 2:
                self.case.describe(person, version=act.version("describe_groups"))
            case _:
                self.case.reset(person, version=act.version("offset_commit"))


def _entries(act: Act) -> list[tuple[int, ...]]:
    """The entries in which an act names the topic, and the partitions of each: a third of all name
    it in two, and what both name is named twice.
    """
    first, second = act.variant % 13, act.variant % 5
    return [(first,), (first, second)] if act.variant % 3 == 0 else [(first,)]


ACTIONS: dict[str, Callable[[Liver, Act, Person], Any]] = {
    "join": Liver.join,
    "everyone joins": Liver.everyone_joins,
    "everyone syncs": Liver.everyone_syncs,
    "sync": Liver.sync,
    "heartbeat": Liver.heartbeat,
    "leave": Liver.leave,
    "commit": Liver.commit,
    "fetch": Liver.fetch,
    "admin": Liver.admin,
}
