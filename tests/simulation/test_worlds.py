"""Worlds from seeds: ``SEEDS=400`` for more, ``SEED=17`` for one. A failure names its seed."""

from __future__ import annotations

import os

import pytest

from tests.simulation.worlds import run_world

SEEDS = (
    [int(os.environ["SEED"])] if "SEED" in os.environ else range(int(os.environ.get("SEEDS", "50")))
)


@pytest.mark.parametrize("seed", SEEDS)
def test_world(seed: int) -> None:
    run_world(seed)
