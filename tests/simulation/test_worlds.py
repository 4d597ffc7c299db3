"""The first worlds, and those that found something. ``make sim`` runs more."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation import run, worlds
from tests.simulation.seeds import FOUND, IN_TESTS
from tests.simulation.world import World
from tests.simulation.worlds import run_world


@pytest.mark.parametrize("seed", [*range(IN_TESTS), *FOUND])
def test_world(seed: int) -> None:
    run_world(seed)


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 7, 9])
def test_world_of_a_shared_store(seed: int) -> None:
    run_world(seed, "shared memory")


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5, 6, 7])
def test_world_of_a_journal(seed: int) -> None:
    run_world(seed, "journal")


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_world_of_a_journal_that_is_not_folded(seed: int) -> None:
    figures = run_world(seed, "journal that is not folded")
    assert figures.faults["fold while folds fail"]


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 139])
def test_world_of_a_disk_that_fails_to_sync(seed: int) -> None:
    figures = run_world(seed, "failing disk")
    assert figures.faults["failed sync"]
    assert figures.faults["power cut"]


def test_make_sim_has_worlds_whose_disk_fails_to_sync() -> None:
    assert run.run_world(1).faults["failed sync (failing disk)"]


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_a_seed_is_one_world(seed: int) -> None:
    assert run_world(seed) == run_world(seed)


async def go_round(_: World) -> None:
    while True:  # noqa: ASYNC110 - that is the fault
        await asyncio.sleep(0)


async def wait_for_what_never_comes(world: World) -> None:
    while not world.is_over:  # noqa: ASYNC110 - as the worlds wait for a process
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("endless", [go_round, wait_for_what_never_comes])
def test_a_world_that_never_ends_fails(monkeypatch: pytest.MonkeyPatch, endless) -> None:
    """In the first case the virtual time stands still, and in the second it continues."""

    async def trouble(world: World, _: object) -> None:
        await endless(world)

    monkeypatch.setattr(worlds, "MOST_TURNS", 20_000)
    monkeypatch.setattr(worlds, "_trouble", trouble)
    monkeypatch.setattr(run, "be_quiet", lambda: None)
    report = run.run_worlds([7])
    assert report.figures == []
    ((seed, error),) = report.failures
    assert seed == 7
    assert error.startswith("EndlessError: does not end: 20000 turns of the loop")
