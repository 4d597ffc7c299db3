"""Runs cases, many at once, and keeps what the last line of the target tells."""

from __future__ import annotations

import threading
import traceback
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.conformance.kafka.allowed import Rule, allowed_by
from tests.conformance.kafka.by_chance import explained
from tests.conformance.kafka.comparison import Difference
from tests.conformance.kafka.new_topics import SHARDS, known_topic
from tests.conformance.kafka.pair import Arbitrary, Diverged, Pair, TooSlow
from tests.conformance.kafka.servers import Servers
from tests.conformance.kafka.settings import PARTITIONS, TOPIC

ALIKE = 2
"""A case that differed, and was then alike so often in a row, differed by chance: on a busy machine
a timer of one side fires late, or one side reads a request late. What ``by_chance`` does not
explain is never forgiven.
"""
DIFFERENT = 6
"""One that differed so often in all does differ. At a load of 20 on two cores a session of a second
ended four times before the next request, where it does not on a quiet machine.
"""
RUNS = 16
"""Nothing is run more often. A run that ends before its script does tells nothing for either."""
SLOW_RUNS = 3
"""So often a life is tried whose timers the machine is too slow for, each time with longer ones."""
FORGIVEN_PERCENT = 2
"""So many of the cases of a run may differ by chance: 3,600 random lives came to 0.75 %, and the
worst 360 of them to 1.7 %.
"""
FORGIVEN = 3
"""So many may in any run, however small."""


@dataclass(frozen=True)
class Outcome:
    """What one run of a case found."""

    answers: int
    allowed: Counter[int]
    """Differences by the number of the decision that allows them."""
    rules: frozenset[Rule]
    """The rules of the allow-list that it needed."""
    differences: list[Difference]
    """The others."""
    trouble: str
    """Where the case itself failed: what it wanted to provoke did not happen."""
    arbitrary: bool
    """It ended where Kafka chose a leader in no order."""
    slow: bool
    """It ended where the machine was too busy."""
    steps: tuple[str, ...]
    is_broken: bool = False
    """The trouble is neither an assertion of the script nor a timeout."""

    @property
    def by_chance(self) -> bool:
        """Whether chance of time explains how it differs, and what failed after that."""
        return explained(self.differences) and not (self.is_broken and not self.differences)

    @property
    def differs(self) -> bool:
        """Whether one side did something else than the other, or than the case is about."""
        return bool(self.differences or self.trouble)

    @property
    def clean(self) -> bool:
        """Whether both sides did the same, as far as it went."""
        return not self.differs and not self.slow

    def told(self) -> str:
        """What to do something about, with the way there."""
        found = "\n".join(str(one) for one in self.differences[:8])
        return f"{found}\n{self.trouble}\nthe way there:\n" + "\n".join(self.steps[-90:])


@dataclass
class Figures:
    """What all cases of a run did."""

    cases: int = 0
    answers: int = 0
    differences: int = 0
    allowed: Counter[int] = field(default_factory=Counter)
    once: list[str] = field(default_factory=list)
    """Of cases that differed by chance: what was sent, and what differed."""
    arbitrary: int = 0
    """Generated cases that ended early, where Kafka picks a leader in no order."""
    slow: int = 0
    """Generated cases that were given up, since the machine was too busy for their timers."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, outcome: Outcome) -> None:
        """Count a case."""
        with self._lock:
            self.cases += 1
            self.answers += outcome.answers
            self.differences += len(outcome.differences)
            self.allowed += outcome.allowed
            self.arbitrary += outcome.arbitrary
            self.slow += outcome.slow

    def differed_once(self, name: str, told: str) -> None:
        """Keep what differed in a case that was then alike, and what was sent."""
        with self._lock:
            self.once.append(f"{name} differed, and was then alike {ALIKE} times in a row:\n{told}")

    @property
    def forgivable(self) -> int:
        """How many cases may differ by chance."""
        return max(FORGIVEN, self.cases * FORGIVEN_PERCENT // 100)

    @property
    def too_many(self) -> bool:
        """Whether more did: that is no longer chance."""
        return len(self.once) > self.forgivable

    def line(self) -> str:
        """The last line of the target."""
        by = ", ".join(f"{n} by decision {number}" for number, n in sorted(self.allowed.items()))
        return (
            f"differential: {self.cases} cases, {self.answers} answers compared, "
            f"{self.differences} differences, {self.allowed.total()} allowed ({by or 'none'}); "
            f"{len(self.once)} cases differed and were then alike {ALIKE} times in a row "
            f"({'TOO MANY, ' * self.too_many}at most {self.forgivable} may), "
            f"{self.arbitrary} ended where Kafka chooses at random, {self.slow} were given up on a "
            "machine too busy for their timers"
        )


@dataclass(frozen=True)
class Bench:
    """A pair of servers, and the ids of the topic that all cases share."""

    servers: Servers
    topic_ids: tuple[uuid.UUID, uuid.UUID]

    @classmethod
    def of(cls, servers: Servers) -> Bench:
        """Ask both sides for the ids, once both know the topic."""
        kafka, ours = servers.ports
        everywhere = range(SHARDS)
        kafkas_id = known_topic(kafka, TOPIC, PARTITIONS, everywhere)
        return cls(servers, (kafkas_id, known_topic(ours, TOPIC, PARTITIONS, everywhere)))

    def pair(self, name: str) -> Pair:
        """Both sides, for a case with a group of its own."""
        group = f"{name}-{uuid.uuid4().hex[:6]}"
        pair = Pair(self.servers.ports, name, group, self.topic_ids)
        pair.comparison.pair(*map(str, self.topic_ids))
        return pair


def run_once(bench: Bench, name: str, script: Callable[[Pair], None], patience: int = 1) -> Outcome:
    """Run one case once."""
    pair = bench.pair(name)
    pair.patience = patience
    trouble = ""
    arbitrary = slow = broken = False
    try:
        script(pair)
    except Arbitrary:
        arbitrary = True
    except TooSlow:
        slow = True
    except Diverged:
        pass  # the comparison has recorded the difference
    except Exception as why:  # noqa: BLE001  told with the outcome: often the first difference's fault
        trouble = traceback.format_exc()
        broken = not isinstance(why, AssertionError | TimeoutError)
    finally:
        pair.close()
    found = pair.comparison.differences
    allowed = list(map(allowed_by, found))
    return Outcome(
        pair.comparison.answers,
        Counter(by[0] for by in allowed if by is not None),
        frozenset(by[1] for by in allowed if by is not None),
        [one for one, by in zip(found, allowed, strict=True) if by is None],
        trouble,
        arbitrary,
        slow,
        tuple(pair.steps),
        broken,
    )


def settled(name: str, once: Callable[[int], Outcome], figures: Figures) -> Outcome:
    """Run a case until it is known whether both sides do the same in it.

    ``once`` runs it with that patience, each time with the same requests. One that differed is run
    again until it was ``ALIKE`` times in a row alike, or differed ``DIFFERENT`` times in all; what
    comes to neither differs too. So does at once what chance of time does not explain.
    """
    seen: Outcome | None = None
    differed = alike = slow = 0
    for _ in range(RUNS):
        outcome = once(2 ** min(slow, SLOW_RUNS - 1))
        if outcome.differs:
            seen, alike, differed = outcome, 0, differed + 1
        elif outcome.slow:
            slow += 1
        elif not outcome.arbitrary:
            alike += 1
        if outcome.differs and not outcome.by_chance:
            break
        if differed == DIFFERENT or alike == ALIKE:
            break
        if seen is None and (outcome.clean or slow == SLOW_RUNS):
            break
    if seen is not None and alike == ALIKE:
        figures.differed_once(name, seen.told())
    elif seen is not None:
        outcome = seen
    figures.add(outcome)
    return outcome


def run(bench: Bench, name: str, script: Callable[[Pair], None], figures: Figures) -> Outcome:
    """Run a case as often as it takes to know whether both sides do the same in it."""
    return settled(name, partial(run_once, bench, name, script), figures)
