"""The worlds see what they are there for: each breakage of the code fails one of a few of them."""

from __future__ import annotations

import pytest

from tests.simulation.breakages import BREAKAGES
from tests.simulation.worlds import run_world

WORLDS = 12


@pytest.mark.parametrize("name", BREAKAGES)
def test_broken_code_fails_a_world(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BREAKAGES[name](monkeypatch)
    for seed in range(WORLDS):
        try:
            run_world(seed)
        except Exception:  # noqa: BLE001 - whatever it breaks
            return
    pytest.fail(f"{WORLDS} worlds did not see {name}")
