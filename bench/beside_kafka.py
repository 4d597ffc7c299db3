"""Compare groupkeeper with Apache Kafka and with a bare echo, by turns, in one run.

    make bench                  about eight minutes
    make bench BUSY=2           the same while two loops keep both cores busy
    python -m bench.beside_kafka --python /usr/bin/python3 --rounds 5

Every figure is the median of its rounds, with the smallest and the largest. A ratio is the median
of the ratios of the rounds, because the speed of a shared machine changes from minute to minute.
CPU is that of the process and its children. It needs a JDK, Maven, Go and a C compiler.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from bench.machine import speed
from bench.sides import ROOT, Side, started

WHATS = ("heartbeat", "commit", "fetch")
SECONDS = 2.0
IDLE_SECONDS = 6.0
FEW = {"groups": 16, "members": 4}
IDLE = {"groups": 500, "members": 10}
WIDTH = 26
BURN = "while True: pass"


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
"""Our user time of a heartbeat, at most, in parts of the bare echo's whole time."""

Rows = dict[tuple[str, str], dict[str, list[float]]]


class Comparison:
    """The rounds, and what they found."""

    def __init__(self, sides: dict[str, Side], directory: Path) -> None:
        self.sides = sides
        self.directory = directory
        self.rows: Rows = defaultdict(lambda: defaultdict(list))

    def warm(self) -> None:
        """Create the members, and run everything once for Kafka's compiler."""
        for name, side in self.sides.items():
            side.ask(do="open", what="few", **FEW)
            for what in WHATS:
                for _ in range(4 if name == "Kafka" else 1):
                    side.ask(do="requests", what=what, seconds=SECONDS)
            if name != "echo":
                side.ask(do="rebalance", members=500, rounds=3)

    def round(self, number: int) -> None:
        """Measure everything once on each side; every other round begins with the other side."""
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
        servers = [side for side in self.sides.values() if side.name != "echo"]
        for side in servers:
            side.ask(do="open", what="idle", **IDLE)
        for number in range(rounds):
            for side in servers[:: 1 if number % 2 else -1]:
                found = side.ask(do="idle", seconds=IDLE_SECONDS, every_s=3.0)
                found["cores"] = (found["user_s"] + found["system_s"]) / found["seconds"]
                found["memory, MiB"] = found["rss_mib"]
                wanted = {"cores", "memory, MiB", "p50 us", "p99 us"}
                self._keep("5,000 idle members", side.name, found, wanted)


def ratios(rows: Rows, load: str, figure: str, beside: str) -> list[float]:
    """Return ours to another, round by round."""
    row = rows[load, figure]
    return [a / b for a, b in zip(row["ours"], row[beside], strict=True) if b]


def show(rows: Rows, *, busy: bool) -> int:
    """Print the table. Return the number of goals that were missed."""
    names = ("ours", "Kafka", "echo")
    print(f"{'load':22} {'figure':28} {''.join(f'{name:>{WIDTH}}' for name in names)}  ours/Kafka")
    missed = 0
    for (load, figure), row in rows.items():
        if load == "the machine":
            print(f"{load:22} {figure:28} {spread(row[''])}")
            continue
        cells = "".join(spread(row[name]) for name in names)
        found = ratios(rows, load, figure, "Kafka")
        text = f"{load:22} {figure:28} {cells}  {spread(found).strip()}"
        for goal in GOALS:
            limit = goal.busy if busy else goal.quiet
            if (goal.load, goal.figure) == (load, figure) and limit is not None:
                is_missed = statistics.median(found) > limit
                missed += is_missed
                text += f"  goal {limit}{': MISSED' if is_missed else ''}"
        print(text)
    beside_echo = [
        user / whole
        for user, whole in zip(
            rows["heartbeat", "user us"]["ours"], rows["heartbeat", "CPU us"]["echo"], strict=True
        )
    ]
    is_missed = not busy and statistics.median(beside_echo) > ECHO_GOAL
    goal = "" if busy else f"  goal {ECHO_GOAL}{': MISSED' if is_missed else ''}"
    print(f"user time of a heartbeat / the echo's whole time: {spread(beside_echo).strip()}{goal}")
    return missed + is_missed


def spread(figures: list[float]) -> str:
    """Return the median, and in parentheses the smallest and the largest."""
    if not figures:
        return " " * WIDTH
    low, high = short(min(figures)), short(max(figures))
    return f"{f'{short(statistics.median(figures))} ({low}-{high})':>{WIDTH}}"


def short(figure: float) -> str:
    """Return three digits, or all that stand before the point."""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(prog="bench.beside_kafka")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", type=int, default=0, help="loops that keep cores busy")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the daemon")
    parser.add_argument("--json", type=Path, help="write every single figure into a file")
    chosen = parser.parse_args()
    version = subprocess.run([chosen.python, "-VV"], capture_output=True, text=True, check=True)
    print(f"{version.stdout.strip()}, {chosen.python}; {chosen.busy} busy loops", flush=True)
    (ROOT / "var").mkdir(exist_ok=True)
    burning: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(dir=ROOT / "var") as name:
        directory = Path(name)
        with started(directory, chosen.python) as sides:
            comparison = Comparison(sides, directory)
            comparison.warm()
            try:
                burn = [sys.executable, "-c", BURN]
                burning.extend(subprocess.Popen(burn) for _ in range(chosen.busy))
                for number in range(chosen.rounds):
                    comparison.round(number)
                if not chosen.busy:
                    comparison.idle(chosen.rounds)
            finally:
                for process in burning:
                    process.kill()
                    process.wait()
    missed = show(comparison.rows, busy=bool(chosen.busy))
    if chosen.json is not None:
        chosen.json.write_text(
            json.dumps([[*key, sides] for key, sides in comparison.rows.items()], indent=1)
        )
    if missed:
        print(f"{missed} goals missed")


if __name__ == "__main__":
    main()
