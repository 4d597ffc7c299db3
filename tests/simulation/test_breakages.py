"""Each breakage of the code fails one of a few worlds, and for the reason that it is meant to."""

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
    30: "a member stays away from a sync phase that the others end",
    35: "a member is silent for a session after its sync",
    350: "the same",
    56: "the store fails within a fold of SQLite, of a group or of one of its parts, and "
    "a load comes before its groups change",
}
"""Seeds after the first ones which find breakages that few worlds find."""

SEEDS = [*range(25), *RARE, *FOUND]

SEEN_BY = {
    "a bound of a group that counts a replaced offset": 2,
    "a bound of groups that is met one too early": 6,
    "a bound of groups that turns away those that there are": 6,
    "a fold that fails and is not told": 8,
    "a group without a bound": 4,
    "a join phase that goes on beyond what is set for its group": 50,
    "a leave that is let out ahead of its record": 50,
    "a lease that is not taken again after a failure": 35,
    "a load that forgets no route": 4,
    "a member that never synced and stays": 30,
    "a part that counts as its group": 2,
    "a retention of a commit that is ignored": 56,
    "a sync phase that never ends": 419,
    "a sync whose answer does not count": 17,
    "a table that misses what a row set": 8,
    "a wait for a load that is never given up": 801216,
    "an Empty group whose type is not loaded": 13,
    "groups without a bound": 6,
    "requests that are begun for who takes no answer": 12,
}
"""For breakages that few worlds find: the seed of one that does. It runs first, which saves a
quarter of the whole test run. If a seed becomes another world, the others run as for every
breakage.
"""


@pytest.mark.parametrize("name", BREAKAGES)
def test_broken_code_fails_a_world(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it, reason = BREAKAGES[name]
    break_it(monkeypatch)
    told = []
    for seed in dict.fromkeys([SEEN_BY.get(name, SEEDS[0]), *SEEDS]):
        told.append(_failure(seed))
        if re.search(reason, told[-1]):
            return
    pytest.fail(f"not seen in {len(SEEDS)} worlds, which said {told}")


def _failure(seed: int) -> str:
    """Return the failure that a world reports. Broken code may end it in any way."""
    try:
        run_world(seed)
    except Exception as error:  # noqa: BLE001
        return str(error)
    return ""


def test_each_seed_of_the_table_is_of_a_breakage_that_there_is() -> None:
    assert [name for name in SEEN_BY if name not in BREAKAGES] == []
    assert set(SEEN_BY.values()) <= set(SEEDS)
