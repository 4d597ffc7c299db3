"""Each breakage of the code fails one of a few worlds, and for the reason that it is meant to."""

from __future__ import annotations

import re

import pytest

from tests.simulation.breakages import BREAKAGES
from tests.simulation.breakages_of_disks import DISKS
from tests.simulation.seeds import FOUND
from tests.simulation.world import StoreKind
from tests.simulation.worlds import run_world

RARE = {
    27: "a shard asks nothing of its store until a renewal has told of a lost lease",
    50: "a timer rings once, and nothing else makes its shard look",
    117: "members stay away from a sync phase, and nobody joins",
    97: "a member stays away from a sync phase that the others end",
    213: "a member is silent for a session after its sync",
    36: "an append fails while the next one of its shard waits",
    26: "a load comes between the parts of a group",
    128: "ends of partitions are in a row, and a load comes before they are folded",
    56: "a fold of SQLite fails, and a load comes before its groups change",
    74: "the store fails within a fold of SQLite, of a group or of one of its parts, and "
    "a load comes before its groups change",
}
"""Seeds after the first ones which find breakages that few worlds find."""

SEEDS = [*range(25), *RARE, *FOUND]

MORE = range(25, 300)
"""Seeds for a breakage that the ones above do not find any more. They take minutes, and are not
needed while ``SEEN_BY`` is right.
"""

SEEN_BY = {
    "a bound of a group that counts a replaced offset": 2,
    "a bound of groups that is met one too early": 6,
    "a bound of groups that turns away those that there are": 6,
    "a commit that nobody made": 1,
    "a deletion that takes more than it names": 1,
    "a fold that fails and is not told": 56,
    "a fold that runs ahead of the log": 2,
    "a group that is not read when it is named": 4,
    "a group without a bound": 4,
    "a heartbeat of another generation": 3,
    "a heartbeat that counts in Stable alone": 22,
    "a heartbeat that sets no alarm": 7,
    "a join that is superseded and not answered": 5,
    "a lease that is not taken again after a failure": 36,
    "a leave that does not wait for its record": 3,
    "a leave that is let out ahead of its record": 7,
    "a load that forgets no route": 4,
    "a log whose time goes back": 3,
    "a member that leaves by the answer alone": 3,
    "a member that never synced and stays": 97,
    "a part that counts as its group": 26,
    "a removal that is not written": 1,
    "a retention of a commit that is ignored": 6,
    "a retention of a commit that never ends": 3,
    "a static member that a join phase puts out": 5,
    "a static member that was replaced and is told that it is unknown": 3,
    "a stop that answers nobody": 5,
    "a sync whose answer does not count": 213,
    "a sweep that takes a topic that stands": 4,
    "a sweep that takes offsets without an id": 1,
    "a sync phase that never ends": 117,
    "a table that misses what a row set": 128,
    "a wait for a load that is never given up": 801216,
    "an Empty group whose type is not loaded": 13,
    "an append that is never given up": 1,
    "groups without a bound": 6,
    "offsets that are looked at once": 2,
    "offsets that expire while they are consumed": 1,
    "offsets that never expire": 2,
    "offsets without an id that take none": 1,
    "requests that are begun for who takes no answer": 12,
}
"""For breakages that the first worlds do not find: the seed of one that does. It runs first, which
saves minutes. If a seed becomes another world, the others run as for every breakage; then look for
a seed again.
"""


@pytest.mark.parametrize("name", BREAKAGES)
def test_broken_code_fails_a_world(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it, reason = BREAKAGES[name]
    break_it(monkeypatch)
    told = []
    for seed in dict.fromkeys([SEEN_BY.get(name, SEEDS[0]), *SEEDS, *MORE]):
        told.append(_failure(seed))
        if re.search(reason, told[-1]):
            return
    pytest.fail(f"not seen in {len(told)} worlds, which said {told}")


DISK_SEEDS = range(300)

DISK_SEEN_BY = {
    "a checkpoint that fails silently": 123,
    "a last checkpoint after a failed sync": 269,
    "a start that trusts the cache": 50,
    "a start that trusts the index of the WAL": 20,
    "appends after a failed sync": 5,
    "checkpoints that SQLite makes": 39,
}
"""As ``SEEN_BY``."""


@pytest.mark.parametrize("name", DISKS)
def test_broken_code_fails_a_world_whose_disk_fails_to_sync(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it, reason = DISKS[name]
    break_it(monkeypatch)
    told = []
    for seed in dict.fromkeys([DISK_SEEN_BY.get(name, 0), *DISK_SEEDS]):
        told.append(_failure(seed, "failing disk"))
        if re.search(reason, told[-1]):
            return
    pytest.fail(f"not seen in {len(told)} worlds, which said {told}")


def _failure(seed: int, store: StoreKind = "") -> str:
    """Return the failure that a world reports. Broken code may end it in any way."""
    try:
        run_world(seed, store)
    except Exception as error:  # noqa: BLE001
        return str(error)
    return ""


def test_each_seed_of_the_table_is_of_a_breakage_that_there_is() -> None:
    assert [name for name in SEEN_BY if name not in BREAKAGES] == []
    assert [name for name in DISK_SEEN_BY if name not in DISKS] == []
    assert set(SEEN_BY.values()) <= set(SEEDS)
