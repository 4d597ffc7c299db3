"""Compare groupkeeper with Apache Kafka and with a bare echo, by turns, in one run.

    make bench                  about six minutes
    make bench BUSY=2           the same while two loops keep both cores busy
    python -m bench.beside_kafka --python /usr/bin/python3 --rounds 5

Every figure is the median of its rounds, with the smallest and the largest. A ratio is the median
of the ratios of the rounds, because the speed of a shared machine changes from minute to minute.
CPU is that of the process and its children. It needs a JDK, Maven, Go and a C compiler.

Every wait has a time limit. The whole run has one too: when it is over, the finished rounds are
printed.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

from bench.machine import speed
from bench.sides import ROOT, Side, started

WHATS = ("heartbeat", "commit", "fetch")
SECONDS = 2.0
IDLE_SECONDS = 6.0
FEW = {"groups": 16, "members": 4}
IDLE = {"groups": 500, "members": 10}
WIDTH = 26
BURN = "while True: pass"
LIMIT_S = 900
"""The limit of the whole run. Five rounds take six minutes on a quiet machine."""


class Goal(NamedTuple):
    """The largest ratio of ours to the other that is good enough."""

    load: str
    figure: str
    beside: str
    quiet: float
    busy: float | None


GOALS = (
    Goal("heartbeat", "CPU us", "Kafka", 0.35, 0.50),
    Goal("commit", "CPU us", "Kafka", 0.60, 0.80),
    Goal("fetch", "CPU us", "Kafka", 0.45, 0.70),
    Goal("heartbeat, equal rate", "p99 us", "Kafka", 1.0, 1.0),
    Goal("commit, equal rate", "p99 us", "Kafka", 1.0, 1.0),
    Goal("rebalance of 500", "p50 ms", "Kafka", 0.6, 0.9),
    Goal("rebalance of 500", "to form, ms", "Kafka", 1.0, 0.9),
    Goal("5,000 idle members", "cores", "Kafka", 0.25, None),
    Goal("5,000 idle members", "memory, MiB", "Kafka", 0.10, None),
)
ECHO_GOAL = 0.6
"""The largest ratio of our user time of a heartbeat to the whole time of the bare echo."""

Rows = dict[tuple[str, str], dict[str, list[float]]]
"""(load, figure) -> name of a server -> the figure in each round."""


class OutOfTime(Exception):
    """The limit of the whole run is over."""


class Comparison:
    """Runs the rounds, and adds what they find to ``rows``. ``sides`` are the servers by name."""

    def __init__(self, sides: dict[str, Side], directory: Path, rows: Rows) -> None:
        self.sides = sides
        self.directory = directory
        self.rows = rows

    def warm(self) -> None:
        """Create the members, and run everything, so that the JVM has compiled Kafka's code."""
        for name, side in self.sides.items():
            side.ask(do="open", what="few", **FEW)
            for what in WHATS:
                for _ in range(4 if name == "Kafka" else 1):
                    side.ask(do="requests", what=what, seconds=SECONDS)
            if name != "echo":
                side.ask(do="rebalance", members=500, rounds=3)

    def round(self, number: int) -> None:
        """Measure everything once on each server. The order of the servers changes every round."""
        for what, figure in speed(self.directory).items():
            self.rows["the machine", what][""].append(figure)
        sides = list(self.sides.values())[:: 1 if number % 2 else -1]
        rates: dict[str, list[float]] = defaultdict(list)
        for what in WHATS:
            for side in sides:
                found = side.ask(do="requests", what=what, seconds=SECONDS)
                self._requests(what, side.name, found)
                if side.name != "echo":
                    rates[what].append(found["requests"] / found["seconds"])
        servers = [side for side in sides if side.name != "echo"]
        for what in WHATS[:2]:
            rate = min(rates[what]) / 4
            for side in servers:
                found = side.ask(do="requests", what=what, seconds=SECONDS, rate=rate)
                self._keep(f"{what}, equal rate", side.name, found, {"p50 us", "p99 us"})
        for side in servers:
            found = side.ask(do="rebalance", members=500, rounds=3)
            row = {"p50 ms": "round_ms", "to form, ms": "form_ms", "CPU ms": "cpu_ms"}
            for figure, key in row.items():
                self.rows["rebalance of 500", figure][side.name].append(found[key])

    def _requests(self, what: str, name: str, found: dict[str, float]) -> None:
        each = 1e6 / found["requests"]
        found["user us"] = found["user_s"] * each
        found["system us"] = found["system_s"] * each
        found["CPU us"] = found["user us"] + found["system us"]
        found["requests/s"] = found["requests"] / found["seconds"]
        wanted = {"user us", "system us", "CPU us", "requests/s", "p50 us", "p99 us"}
        self._keep(what, name, found, wanted)

    def _keep(self, load: str, name: str, found: dict[str, float], figures: set[str]) -> None:
        found |= {key.replace("_us", " us"): found[key] for key in ("p50_us", "p99_us")}
        for figure in sorted(figures):
            self.rows[load, figure][name].append(found[figure])

    def idle(self, rounds: int) -> None:
        """Measure members that only heartbeat, every three seconds."""
        sides = list(self.sides.values())
        for side in sides:
            side.ask(do="open", what="idle", **IDLE)
        for number in range(rounds):
            for side in sides[:: 1 if number % 2 else -1]:
                found = side.ask(do="idle", seconds=IDLE_SECONDS, every_s=3.0)
                self._requests("5,000 idle members", side.name, found)
                found["cores"] = (found["user_s"] + found["system_s"]) / found["seconds"]
                found["memory, MiB"] = found["resident_mib"]
                self._keep("5,000 idle members", side.name, found, {"cores", "memory, MiB"})


def ratios(
    rows: Rows, load: str, figure: str, beside: str, beside_figure: str | None = None
) -> list[float]:
    """Return the ratio of our figure to another side's, for each round that both sides finished."""
    ours, other = rows[load, figure]["ours"], rows[load, beside_figure or figure][beside]
    return [a / b for a, b in zip(ours, other, strict=False) if b]


def show(rows: Rows, *, busy: bool) -> int:
    """Print the table. Return the number of goals that were missed or not measured."""
    names = ("ours", "Kafka", "echo")
    print(f"{'load':22} {'figure':28} {''.join(f'{name:>{WIDTH}}' for name in names)}  ours/Kafka")
    goals = {
        (goal.load, goal.figure): limit
        for goal in GOALS
        if (limit := goal.busy if busy else goal.quiet) is not None
    }
    missed = 0
    for (load, figure), row in rows.items():
        if load == "the machine":
            print(f"{load:22} {figure:28} {spread(row[''])}")
            continue
        cells = "".join(spread(row[name]) for name in names)
        found = ratios(rows, load, figure, "Kafka")
        text, is_missed = compared(found, goals.pop((load, figure), None))
        missed += is_missed
        print(f"{load:22} {figure:28} {cells}  {text}".rstrip())
    for load, figure in goals:
        print(f"{load:22} {figure:28} not measured")
    found = ratios(rows, "heartbeat", "user us", "echo", "CPU us")
    text, is_missed = compared(found, None if busy else ECHO_GOAL)
    print(f"user time of a heartbeat / the echo's whole time: {text}")
    return missed + is_missed + len(goals)


def compared(found: list[float], limit: float | None) -> tuple[str, bool]:
    """Return ratios as text with their goal, and whether they miss it."""
    text = spread(found).strip()
    if limit is None:
        return text, False
    is_missed = not found or statistics.median(found) > limit
    return f"{text}  goal {limit}{': MISSED' if is_missed else ''}", is_missed


def spread(figures: list[float]) -> str:
    """Return the median, and in parentheses the smallest and the largest."""
    if not figures:
        return " " * WIDTH
    low, high = short(min(figures)), short(max(figures))
    return f"{f'{short(statistics.median(figures))} ({low}-{high})':>{WIDTH}}"


def short(figure: float) -> str:
    """Return a figure with three digits, or with all digits before the point if it has more."""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


@contextmanager
def limited(limit_s: int) -> Iterator[None]:
    """Raise ``OutOfTime`` after the limit. SIGTERM ends the run, and its servers with it."""

    def out_of_time(*_: object) -> NoReturn:
        raise OutOfTime(f"the limit of {limit_s} s is over")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)


@contextmanager
def burning(loops: int) -> Iterator[None]:
    """Keep so many cores busy within the block."""
    processes = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def compare(comparison: Comparison, rounds: int, busy: int) -> None:
    """Run all rounds, and say on standard error how long each took."""
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:4.0f} s  {what}", file=sys.stderr, flush=True)

    comparison.warm()
    say("warm")
    with burning(busy):
        for number in range(rounds):
            comparison.round(number)
            say(f"round {number + 1} of {rounds}")
        if not busy:
            comparison.idle(rounds)
            say("idle members")


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(prog="bench.beside_kafka")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", type=int, default=0, help="loops that keep cores busy")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the daemon")
    parser.add_argument("--json", type=Path, help="write every single figure into a file")
    parser.add_argument("--limit-s", type=int, default=LIMIT_S, help="of the whole run")
    chosen = parser.parse_args()
    version = subprocess.run([chosen.python, "-VV"], capture_output=True, text=True, check=True)
    print(f"{version.stdout.strip()}, {chosen.python}; {chosen.busy} busy loops", flush=True)
    (ROOT / "var").mkdir(exist_ok=True)
    rows: Rows = defaultdict(lambda: defaultdict(list))
    try:
        with (
            limited(chosen.limit_s),
            tempfile.TemporaryDirectory(dir=ROOT / "var") as name,
            started(Path(name), chosen.python) as sides,
        ):
            compare(Comparison(sides, Path(name), rows), chosen.rounds, chosen.busy)
    except OutOfTime as over:
        print(f"{over}: the rounds before it")
    missed = show(rows, busy=bool(chosen.busy))
    if chosen.json is not None:
        figures = [[*key, sides] for key, sides in rows.items()]
        chosen.json.write_text(json.dumps(figures, indent=1))
    if missed:
        print(f"{missed} goals missed or not measured")


if __name__ == "__main__":
    main()
