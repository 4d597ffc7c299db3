"""``make sim``: simulated worlds by the hundred, beside each other, one line at the end.

SEEDS=400     so many worlds (those that ``make test`` runs are not lived again)
SEED=1234     this one, with everything that it has to say
MINUTES=60    as many as there is time for
FIRST=50      from this seed on
WORKERS=2     processes

A wrong value is refused. SEEDS=0 is wrong too: a run without worlds would find no failure.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from typing import NamedTuple

from tests.helpers.daemon.asked_numbers import RefusedError, as_minutes, whole_number
from tests.simulation import worlds
from tests.simulation.consumer_worlds import run_consumer_world
from tests.simulation.rolling_worlds import run_rolling_world
from tests.simulation.seeds import IN_TESTS
from tests.simulation.worlds import Figures, be_quiet

PROGRESS_S = 60.0
"""Seconds between two lines of progress if the output is not a terminal."""

CONSUMERS_EVERY = 3
FAILING_DISK_EVERY = 6

CHUNK = 5
"""The number of worlds that a process runs between two reports."""


class Report(NamedTuple):
    """The results of a few worlds."""

    figures: list[Figures]
    failures: list[tuple[int, str]]


def run_world(seed: int) -> Figures:
    """Run the world of a seed. For some seeds, also run a world of consumer groups, of groups that
    roll between the protocols, or one over SQLite whose disk fails to sync.
    """
    figures = worlds.run_world(seed)
    if seed % CONSUMERS_EVERY == 0:
        for what, number in run_consumer_world(seed).items():
            figures.faults[f"{what} (consumer groups)"] += number
    if seed % CONSUMERS_EVERY == 2:
        for what, number in run_rolling_world(seed).items():
            figures.faults[f"{what} (rolls)"] += number
    if seed % FAILING_DISK_EVERY == 1:
        for what, number in worlds.run_world(seed, "failing disk").faults.items():
            figures.faults[f"{what} (failing disk)"] += number
    return figures


def run_worlds(seeds: list[int]) -> Report:
    """Run these worlds. Called in its own process."""
    be_quiet()
    report = Report([], [])
    for seed in seeds:
        try:
            report.figures.append(run_world(seed))
        except Exception as error:  # noqa: BLE001 - whatever it is, the seed is what counts
            report.failures.append((seed, f"{type(error).__name__}: {error}"))
    return report


def main() -> int:
    """Run the worlds that the environment names. Returns 1 if a world failed, and 2 for a wrong
    setting.
    """
    try:
        seed = whole_number("SEED", -1, least=0)
        first = whole_number("FIRST", IN_TESTS, least=0)
        number = whole_number("SEEDS", 400, least=1)
        workers = whole_number("WORKERS", 2, least=1)
        minutes = _minutes()
    except RefusedError as error:
        say(f"sim: {error}")
        return 2
    if seed >= 0:
        return _one(seed)
    seeds = count(first) if minutes else iter(range(first, first + number))
    return _many(seeds, minutes, workers)


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - for who waits for it


def _one(seed: int) -> int:
    try:
        figures = run_world(seed)
    except Exception:  # noqa: BLE001 - shown, with its seed
        traceback.print_exc()
        say(f"sim: seed {seed} FAILED; again with: make sim SEED={seed}")
        return 1
    say(f"sim: seed {seed} is fine: {figures.operations} requests, {dict(figures.faults)}")
    return 0


def _many(seeds: Iterator[int], minutes: float, workers: int) -> int:
    started_s = printed_s = time.monotonic()
    total = Report([], [])
    waiting: set[Future[Report]] = set()
    with ProcessPoolExecutor(workers) as pool:
        while True:
            in_time = not minutes or time.monotonic() - started_s < 60 * minutes
            while in_time and len(waiting) < 2 * workers and (chunk := _next(seeds)):
                waiting.add(pool.submit(run_worlds, chunk))
            if not waiting:
                break
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                _add(total, future.result())
            printed_s = _print_progress(total, started_s, printed_s)
    return _sum_up(total, time.monotonic() - started_s)


def _add(total: Report, report: Report) -> None:
    total.figures.extend(report.figures)
    total.failures.extend(report.failures)
    for seed, error in report.failures:
        say(f"\nseed {seed}: {error[:500]}\n  again with: make sim SEED={seed}")


def _print_progress(total: Report, started_s: float, printed_s: float) -> float:
    """Print the progress now and then. On a terminal it is always the same line. Return the time of
    the last line.
    """
    now_s = time.monotonic()
    is_person = sys.stderr.isatty()
    if not is_person and now_s - printed_s < PROGRESS_S:
        return printed_s
    lived = len(total.figures) + len(total.failures)
    line = f"{lived} worlds, {len(total.failures)} failed, {now_s - started_s:.0f} s"
    sys.stderr.write(f"\r{line}" if is_person else f"{line}\n")
    return now_s


def _sum_up(total: Report, seconds: float) -> int:
    """Print the result of all worlds. Return the exit code: 1 if a world failed, or if there was no
    world.
    """
    faults: Counter[str] = Counter()
    for figures in total.figures:
        faults += figures.faults
    if sys.stderr.isatty():
        sys.stderr.write("\n")
    told = ", ".join(f"{number} x {name}" for name, number in sorted(faults.items()))
    say(f"faults: {told}")
    say(
        f"sim: {len(total.figures) + len(total.failures)} worlds, {len(total.failures)} failed, "
        f"{sum(f.operations for f in total.figures)} requests, "
        f"{sum(f.seconds for f in total.figures) / 3600:.1f} h of their time in {seconds:.0f} s"
    )
    return 1 if total.failures or not total.figures else 0


def _next(seeds: Iterator[int]) -> list[int]:
    return [seed for _, seed in zip(range(CHUNK), seeds, strict=False)]


def _minutes() -> float:
    """Return the time to run, from MINUTES. Return 0 if it is not set: the number of seeds then
    decides.
    """
    text = os.environ.get("MINUTES")
    return 0.0 if text is None else as_minutes("MINUTES", text)


if __name__ == "__main__":
    sys.exit(main())
