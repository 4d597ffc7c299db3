"""The search for slow frames: which request, of all within the limits, holds the loop for longest?

A recipe of each API is changed again and again, and what is slower is kept and changed further: it
climbs towards the worst frame of the API. At the end the worst of each API are measured three times
more, on fresh coordinators, and the least counts: what a busy machine made slow is not slow.

``python -m tests.fuzz.slow SECONDS SEED``; ``make fuzz`` starts it. Its seeds are what was once the
worst, in ``slow_recipes.json``; ``KEEP=1`` writes what was found into it.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog

from groupkeeper.coordinator.daemon.process import calm_collector
from groupkeeper.coordinator.server.watch import SLOW_S
from groupkeeper.protocol.versions import APIS, ApiKey
from tests.fuzz.prepared import ExactWatch, Prepared, new_loop
from tests.fuzz.recipes import Recipe, changed, extremes
from tests.helpers.daemon.asked_numbers import switch

SEEDS: Final = Path(__file__).with_name("slow_recipes.json")
KEPT_AN_API: Final = 6
"""Recipes of an API that are changed further."""
FRAMES_A_COORDINATOR: Final = 300
"""What earlier frames left behind must not slow down later ones without end."""
TIMES: Final = 3
SHARE_OF_CHECKS: Final = 0.2
"""Of the time, for the measurements at the end."""
SHM: Final = Path("/dev/shm")


class Measured(NamedTuple):
    """What a recipe cost: the CPU time of its slowest callback."""

    seconds: float
    callback: str
    recipe: Recipe
    frame_bytes: int


class Bench:
    """A prepared coordinator, made anew when a frame has spoilt it."""

    def __init__(self, directory: Path, watch: ExactWatch) -> None:
        """Nothing is prepared yet."""
        self._directory = directory
        self._watch = watch
        self._prepared: Prepared | None = None
        self._frames = 0
        self._number = 0

    async def measure(self, recipe: Recipe, *, fresh: bool = False) -> Measured:
        """Send the frames of a recipe."""
        prepared = self._prepared
        if (
            fresh
            or prepared is None
            or self._frames >= FRAMES_A_COORDINATOR
            or not prepared.is_intact
        ):
            prepared = await self._renew()
        else:
            await prepared.mend()
        self._frames += 1
        recipe, frame = recipe.fitting()
        seconds, callback = await prepared.send([frame] * recipe.copies)
        if bugs := prepared.coordinator.stats.bugs:
            raise AssertionError(f"{bugs} bugs of the core, after {recipe.plain()}")
        return Measured(seconds, callback, recipe, len(frame))

    async def end(self) -> None:
        """Stop what runs."""
        if self._prepared is not None:
            await self._prepared.stop()
            self._prepared = None

    async def _renew(self) -> Prepared:
        await self.end()
        for file in self._directory.iterdir():
            file.unlink()
        self._number += 1
        self._frames = 0
        self._prepared = prepared = Prepared(self._directory / f"{self._number}.db", self._watch)
        await prepared.start()
        return prepared


class Search:
    """The worst recipes so far, by API."""

    def __init__(self, rng: random.Random, seeds: list[Recipe]) -> None:
        """Begin with one of everything, in the newest version, and what was once the worst."""
        self._rng = rng
        self.worst: dict[int, list[Measured]] = {int(api.key): [] for api in APIS}
        drawn = [recipe for api in APIS for recipe in extremes(int(api.key), api.max_version)]
        rng.shuffle(drawn)
        self._untried = [*seeds, *drawn]
        self._seeds_left = len(seeds)

    @property
    def has_seeds(self) -> bool:
        """True while a seed was not tried."""
        return self._seeds_left > 0

    def next(self) -> Recipe:
        """A seed that was not tried, or a change of a recipe that is among the worst."""
        if self._untried:
            self._seeds_left -= 1
            return self._untried.pop(0)
        rng = self._rng
        worst = [of_api for of_api in self.worst.values() if of_api]
        # Half of the tries go to the APIs that are slow already.
        weights = [of_api[0].seconds for of_api in worst]
        of_api = rng.choices(worst, weights)[0] if rng.random() < 0.5 else rng.choice(worst)
        return changed(rng, rng.choice(of_api).recipe)

    def took(self, measured: Measured) -> None:
        """Keep it if it is among the worst of its API."""
        of_api = self.worst[measured.recipe.key]
        of_api.append(measured)
        of_api.sort(key=lambda each: -each.seconds)
        del of_api[KEPT_AN_API:]


def read_seeds() -> list[Recipe]:
    """What was once the worst of its API."""
    return [Recipe(**plain) for plain in json.loads(SEEDS.read_text())]


def write_seeds(found: list[Measured]) -> None:
    """Keep the worst of each API beside what is there, one line a recipe."""
    known = [recipe.plain() for recipe in read_seeds()]
    plains = [*known, *(p for p in (each.recipe.plain() for each in found) if p not in known)]
    lines = ",\n".join(json.dumps(plain, ensure_ascii=False) for plain in plains)
    SEEDS.write_text(f"[\n{lines}\n]\n")


@asynccontextmanager
async def a_bench(watch: ExactWatch) -> Any:
    """A bench whose store lies in memory, where the system has that."""
    with tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None) as directory:
        bench = Bench(Path(directory), watch)
        try:
            yield bench
        finally:
            await bench.end()


async def search(seconds: float, seed: int, watch: ExactWatch) -> tuple[list[Measured], int]:
    """Search for so long; returns the worst of each API, measured again, and how many were
    tried.
    """
    began_s = time.monotonic()
    found = Search(random.Random(seed), read_seeds())
    async with a_bench(watch) as bench:
        until_s = began_s + seconds * (1 - SHARE_OF_CHECKS)
        tried = await climb(found, bench.measure, lambda: time.monotonic() < until_s)
        checked = []
        for of_api in found.worst.values():
            checked += [await again(bench, each) for each in of_api[:1]]
    return sorted(checked, key=lambda each: -each.seconds), tried


async def climb(
    found: Search,
    measure: Callable[[Recipe], Awaitable[Measured]],
    has_time: Callable[[], bool],
) -> int:
    """Try every seed, even if a busy machine leaves no time for it, then more while there is time.
    Returns how many were tried.
    """
    tried = 0
    while found.has_seeds or has_time():
        found.took(await measure(found.next()))
        tried += 1
    return tried


async def again(bench: Bench, measured: Measured) -> Measured:
    """Measure what seems slow again, and return the least."""
    if measured.seconds < SLOW_S / 2:
        return measured
    return min([await bench.measure(measured.recipe, fresh=True) for _ in range(TIMES)])


def slow_ones(found: list[Measured]) -> list[str]:
    """A complaint for each recipe that holds the loop for too long."""
    return [f"{_line(each)}: {each.recipe.plain()}" for each in found if each.seconds > SLOW_S]


def table(found: list[Measured]) -> Iterator[str]:
    """The worst of each API, the slowest first."""
    for each in found:
        yield _line(each)


def _line(each: Measured) -> str:
    name = ApiKey(each.recipe.key).name
    copies = f" x{each.recipe.copies}" if each.recipe.copies > 1 else ""
    return (
        f"{each.seconds * 1000:6.1f} ms  {name} v{each.recipe.version}{copies}, "
        f"{each.frame_bytes:,} bytes, {each.callback}"
    )


def main(seconds: float, seed: int) -> int:
    """Search; 1 if some callback took longer than it may."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    calm_collector()
    watch = ExactWatch()
    loop = new_loop(watch)
    try:
        found, tried = loop.run_until_complete(search(seconds, seed, watch))
    finally:
        loop.close()
    for line in table(found):
        print(line)
    if switch("KEEP"):
        write_seeds(found)
    wrong = slow_ones(found)
    for each in wrong:
        print(f"SLOW {each}")
    print(f"slow: {tried} frames tried, the slowest callback {found[0].seconds * 1000:.0f} ms")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
