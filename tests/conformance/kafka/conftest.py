"""Both pairs of servers, all scripted cases at once, and the last line with the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NoReturn

import pytest

from tests.conformance.kafka import servers
from tests.conformance.kafka.asked import ASKED
from tests.conformance.kafka.case import LEVELS, Case, Scripted
from tests.conformance.kafka.pair import Pair
from tests.conformance.kafka.runner import Bench, Figures, Outcome, run
from tests.helpers.clients.ecosystem import Unavailable

IN_FLIGHT = 24
"""Cases at once. They mostly wait: for timers, and for whether somebody is parked."""

FIGURES = Figures()
LACK = pytest.StashKey[str]()
"""Why nothing could be compared: what this machine lacks, or what nobody can mean."""


@pytest.fixture(scope="session")
def figures() -> Figures:
    """What the last line tells."""
    return FIGURES


@pytest.fixture(scope="session")
def benches(request: pytest.FixtureRequest) -> Iterator[dict[bool, Bench]]:
    """The pair of servers for most cases, and (``True``) that with the small limits.

    What no selected test needs is not started.
    """
    if ASKED.refusal:
        _give_up(request, ASKED.refusal)
    wanted = {scripted.small for scripted, _ in _selected(request)} or {False}
    names = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    if not names.isdisjoint({"told_by", "mixed_told_by"}):
        wanted.add(False)
    with ThreadPoolExecutor(2) as pool:
        starting = [pool.submit(servers.start, small=small) for small in sorted(wanted)]
        with servers.stopped_in_the_end(starting):
            try:
                started = [one.result() for one in starting]
            except Unavailable as lack:
                _give_up(request, str(lack))
            yield {one.kafka.small: Bench.of(one) for one in started}


def _give_up(request: pytest.FixtureRequest, why: str) -> NoReturn:
    request.config.stash[LACK] = why
    pytest.exit(why, returncode=2)


@pytest.fixture(scope="session")
def outcome_of(
    request: pytest.FixtureRequest, benches: dict[bool, Bench], figures: Figures
) -> Iterator[Callable[[Scripted, int], Outcome]]:
    """The outcome of a scripted case at a level; all that were selected run side by side."""
    jobs: dict[tuple[str, int], Future[Outcome]] = {}
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        for scripted, level in dict.fromkeys(_selected(request)):
            work = partial(_at_level, scripted, level)
            name = f"{scripted.name}-{level}"
            jobs[scripted.name, level] = pool.submit(
                run, benches[scripted.small], name, work, figures
            )
        yield lambda scripted, level: jobs[scripted.name, level].result()
        for job in jobs.values():
            job.cancel()


def _selected(request: pytest.FixtureRequest) -> Iterator[tuple[Scripted, int]]:
    """The scripted cases that this run is about, and at which levels."""
    for item in request.session.items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if isinstance(params.get("scripted"), Scripted):
            levels = [params["level"]] if "level" in params else LEVELS
            yield from ((params["scripted"], level) for level in levels)


def _at_level(scripted: Scripted, level: int, pair: Pair) -> None:
    scripted.script(Case(pair, level))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in which too many cases differed by chance, though each was alike again."""
    if FIGURES.too_many:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """Tell the figures, after everything that pytest itself tells; or why there are none."""
    if (lack := config.stash.get(LACK, None)) is not None:
        print("", f"differential: nothing was compared: {lack}", sep="\n")  # noqa: T201
    if FIGURES.cases:
        print("", *FIGURES.once, FIGURES.line(), sep="\n")  # noqa: T201 - for who waits for it
