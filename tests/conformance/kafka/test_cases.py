"""The scripted cases: Apache Kafka and the daemon answer alike, at several versions of each API."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.kafka import (
    bodies,
    changes_of_topics,
    configs,
    consumer_groups,
    conversions,
    joining,
    odd_values,
    offsets,
    patterns,
    static,
    syncing,
    topics,
)
from tests.conformance.kafka.allowed import DECISIONS, Rule
from tests.conformance.kafka.asked import ASKED
from tests.conformance.kafka.case import LEVELS, SCRIPTED, Scripted
from tests.conformance.kafka.runner import Outcome

pytestmark = pytest.mark.differential

SUITES = (
    *(joining, syncing, static, offsets, configs, topics, changes_of_topics, bodies, odd_values),
    consumer_groups,
    conversions,
    patterns,
)

CHOSEN = [
    pytest.param(scripted, level, id=f"{scripted.name}-{level}")
    for scripted in SCRIPTED
    for level in LEVELS
    if not scripted.by_hand or (ASKED.all_versions and level == LEVELS[-1])
]

NEEDS = {
    "a_member_waits_while_a_static_one_is_replaced": {"bidirectional", "downgrade"},
    "a_static_member_changes_its_protocol_after_another_one_left": {"bidirectional", "upgrade"},
    "a_group_that_has_just_become_classic_becomes_a_consumer_group_again": {"bidirectional"},
}
"""Cases whose differences only show under these migration policies."""

BY_NAME = {scripted.name: scripted for scripted in SCRIPTED}

RULES = [
    pytest.param(BY_NAME[rule.case], rule, id=f"{number}-{rule.case}-{rule.fields}")
    for number, decision in enumerate(DECISIONS, 1)
    for rule in decision.rules
    if rule.case not in NEEDS or (ASKED.policy or "bidirectional") in NEEDS[rule.case]
]


@pytest.mark.parametrize(("scripted", "level"), CHOSEN)
def test_both_sides_answer_alike(
    scripted: Scripted, level: int, outcome_of: Callable[[Scripted, int], Outcome]
) -> None:
    outcome = outcome_of(scripted, level)
    assert outcome.clean, outcome.told()


@pytest.mark.parametrize(("scripted", "rule"), RULES)
def test_what_may_differ_does(
    scripted: Scripted, rule: Rule, outcome_of: Callable[[Scripted, int], Outcome]
) -> None:
    """A rule that its case does not need allows what nobody decided."""
    assert any(rule in outcome_of(scripted, level).rules for level in LEVELS)
