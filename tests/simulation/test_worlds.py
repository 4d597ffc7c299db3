"""The first worlds, and those that found something. More of them: ``make sim``."""

from __future__ import annotations

import pytest

from tests.simulation.seeds import FOUND, IN_TESTS
from tests.simulation.worlds import run_world


@pytest.mark.parametrize("seed", [*range(IN_TESTS), *FOUND])
def test_world(seed: int) -> None:
    run_world(seed)


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_a_seed_is_one_world(seed: int) -> None:
    assert run_world(seed) == run_world(seed)
