"""The decisions of docs/differences.md: what may differ from Apache Kafka, and where.

The page's table is printed from here (``python -m tests.helpers.printed_docs``), and this is the
comparison's allow-list: a difference that no decision covers fails the target. ``shown_by`` names
the cases that show a decision; one without any concerns what no comparison can reach, such as a
store that fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.conformance.kafka.comparison import PARKED, Difference

MOST = 15
"""More decisions than this are too many to call the daemon Kafka's equal."""


@dataclass(frozen=True)
class Rule:
    """Where a difference may be found, and what it may be."""

    apis: frozenset[str]
    fields: str
    """A regular expression over the whole path."""
    holds: Callable[[Any, Any], bool]
    """Whether this is it, given Kafka's value and ours."""
    cases: str = ""
    """A regular expression over the names of the cases that may show it; any, where empty."""
    versions: range = range(100)

    def covers(self, found: Difference) -> bool:
        """Say whether it allows this difference."""
        return (
            found.api in self.apis
            and found.version in self.versions
            and re.fullmatch(self.fields, found.field) is not None
            and (not self.cases or re.match(self.cases, found.case) is not None)
            and self.holds(found.kafka, found.ours)
        )


@dataclass(frozen=True)
class Decision:
    """One way in which we differ on purpose: one reason, wherever it shows."""

    title: str
    apis: str
    versions: str
    fields: str
    why: str
    rules: tuple[Rule, ...] = ()


def _rule(apis: str, fields: str, holds: Callable[[Any, Any], bool], **more: Any) -> Rule:
    return Rule(frozenset(apis.split()), fields, holds, **more)


def _answered(*codes: int) -> Callable[[Any, Any], bool]:
    """Kafka lets wait what we answer with one of these."""
    return lambda kafka, ours: kafka == PARKED and ours.get("error_code") in codes


DECISIONS: tuple[Decision, ...] = (
    Decision(
        "Nobody waits in vain",
        "JoinGroup, SyncGroup",
        "all",
        "the answer",
        "Where Kafka never answers, or only when a timeout ends, we answer at once: the older of "
        "two joins or syncs of one member (REBALANCE_IN_PROGRESS), a parked sync of a member that "
        "is removed (UNKNOWN_MEMBER_ID), a join that names a protocol twice (the first counts), "
        "the members that wait for one that was sent away because the group is full.",
        (
            _rule("join_group sync_group", "", _answered(27)),
            _rule("sync_group", "", _answered(25)),
            _rule("join_group", "", _answered(0), cases="the_slowest_of_too_many_is_sent_away"),
            _rule("join_group", ".*", lambda *_: True, cases="a_protocol_named_twice"),
        ),
    ),
)


def decision_of(found: Difference) -> int | None:
    """The number of the decision that allows a difference; None where none does."""
    for number, decision in enumerate(DECISIONS, 1):
        if any(rule.covers(found) for rule in decision.rules):
            return number
    return None
