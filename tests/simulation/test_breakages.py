"""The worlds see what they are there for: each breakage of the code fails one of a few of them, and
for the reason that it is meant to.
"""

from __future__ import annotations

import re

import pytest

from tests.simulation.breakages import BREAKAGES
from tests.simulation.seeds import FOUND
from tests.simulation.worlds import run_world

RARE = {
    27: "a shard asks nothing of its store until a renewal has told of a lost lease",
    50: "a timer rings once, and nothing else makes its shard look",
    419: "members stay away from a sync phase, and nobody joins",
    35: "a member is silent for a session after its sync",
    350: "the same",
    116: "a load leaves out a group that is then named again, over a store that reads them by name",
    56: "the store fails within a fold of SQLite, of a group or of one of its parts, and "
    "a load comes before its groups change",
}
"""Seeds behind the first ones that see what few worlds see."""

SEEDS = [*range(25), *RARE, *FOUND]


@pytest.mark.parametrize("name", BREAKAGES)
def test_broken_code_fails_a_world(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it, reason = BREAKAGES[name]
    break_it(monkeypatch)
    told = []
    for seed in SEEDS:
        told.append(_failure(seed))
        if re.search(reason, told[-1]):
            return
    pytest.fail(f"not seen in {len(SEEDS)} worlds, which said {told}")


def _failure(seed: int) -> str:
    """What a world says; broken code may end it in any way."""
    try:
        run_world(seed)
    except Exception as error:  # noqa: BLE001
        return str(error)
    return ""
