"""The first worlds of groups that roll between the protocols. ``make sim`` runs more."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core import conversion
from tests.simulation.rolling_worlds import run_rolling_world

SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_rolling_world(seed: int) -> None:
    seen = run_rolling_world(seed)
    assert seen["cooperative members give up partitions"]
    assert seen["converted to consumer"] + seen["converted to classic"]


def test_a_seed_is_one_rolling_world() -> None:
    assert run_rolling_world(1) == run_rolling_world(1)


def test_a_conversion_that_looks_only_at_assignments_fails_a_world(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Kafka's does: what a cooperative leader took from a member counts as given up."""
    monkeypatch.setattr(conversion, "_unacknowledged", lambda *_: {})
    with pytest.raises(AssertionError, match="is held by"):
        run_rolling_worlds()


def run_rolling_worlds() -> None:
    for seed in SEEDS:
        run_rolling_world(seed)
