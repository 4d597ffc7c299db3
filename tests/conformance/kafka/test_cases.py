"""The scripted cases: Apache Kafka and the daemon answer alike, at several versions of each API."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.kafka import bodies, configs, joining, offsets, static, syncing, topics
from tests.conformance.kafka.case import ALL_VERSIONS, LEVELS, SCRIPTED, Scripted
from tests.conformance.kafka.runner import Outcome

pytestmark = pytest.mark.differential

SUITES = (joining, syncing, static, offsets, configs, topics, bodies)

CHOSEN = [
    pytest.param(scripted, level, id=f"{scripted.name}-{level}")
    for scripted in SCRIPTED
    for level in LEVELS
    if not scripted.by_hand or (ALL_VERSIONS and level == LEVELS[-1])
]


@pytest.mark.parametrize(("scripted", "level"), CHOSEN)
def test_both_sides_answer_alike(
    scripted: Scripted, level: int, outcome_of: Callable[[Scripted, int], Outcome]
) -> None:
    outcome = outcome_of(scripted, level)
    assert outcome.clean, outcome.told()
