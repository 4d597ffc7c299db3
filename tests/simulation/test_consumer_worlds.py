"""The first worlds of consumer groups. ``make sim`` runs more."""

from __future__ import annotations

import pytest

from tests.simulation.consumer_worlds import run_consumer_world
from tests.simulation.seeds import CONSUMERS_FOUND, CONSUMERS_IN_TESTS


@pytest.mark.parametrize("seed", [*range(CONSUMERS_IN_TESTS), *CONSUMERS_FOUND])
def test_consumer_world(seed: int) -> None:
    run_consumer_world(seed)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_is_one_world_of_consumers(seed: int) -> None:
    assert run_consumer_world(seed) == run_consumer_world(seed)


@pytest.mark.parametrize(
    ("seed", "happened"),
    [
        (3, "converted to classic empty"),  # the policy is "upgrade"
        (7, "ConsumerClient refused"),  # "downgrade"
        (11, "ClassicClient refused"),  # "disabled"
        (13, "converted to classic by replacement"),  # "bidirectional"
    ],
)
def test_worlds_have_every_policy_and_conversion(seed: int, happened: str) -> None:
    assert run_consumer_world(seed)[happened]
