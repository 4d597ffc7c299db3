"""Run a small benchmark in this tree and in the commit in ``bench/guard-base``, by turns.

    make bench-micro                                    all layers, three rounds
    python -m bench.by_turns hot_bench --compiled       whole requests, compiled
    python -m bench.by_turns micro --base HEAD~3 --rounds 5

It prints the medians of all rounds on both sides. Other load on the machine comes and goes, so it
reaches both. The benchmarks are those that print the table of ``bench/figures.py``.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.guard import BASE, compile_in_place, take_commit, take_working_tree

LINE = re.compile(r"(?P<name>\S+ +\S.*?) +(?P<us>\d+\.\d\d)(?:  .*)?")
RUN_LIMIT_S = 600
BENCHMARKS = ("micro", "hot_bench", "append_tail")

Figures = dict[str, float]


def main() -> int:
    """Measure by turns, and print the table."""
    parser = argparse.ArgumentParser(prog="bench.by_turns")
    parser.add_argument("benchmark", nargs="?", default="micro", choices=BENCHMARKS)
    parser.add_argument("--base", default=BASE.read_text().split()[0], help="a commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compiled", action="store_true", help="compile both trees before")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        trees = {"base": Path(name) / "base", "change": Path(name) / "this"}
        try:
            take_commit(chosen.base, trees["base"])
        except subprocess.CalledProcessError:
            print(f"the commit {chosen.base} is not in this clone's history", file=sys.stderr)
            return 2
        take_working_tree(trees["change"])
        if chosen.compiled:
            for tree in trees.values():
                compile_in_place(tree)
        rounds: dict[str, list[Figures]] = {side: [] for side in trees}
        for number in range(chosen.rounds):
            for side in list(trees)[:: -1 if number % 2 else 1]:
                rounds[side].append(run(trees[side], chosen.benchmark))
    show(medians(rounds["base"]), medians(rounds["change"]))
    return 0


def run(tree: Path, benchmark: str) -> Figures:
    """Run the benchmark of a tree, and return its figures."""
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{benchmark}"],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_LIMIT_S,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-4_000:])
    return parse(done.stdout)


def parse(table: str) -> Figures:
    """Return the microseconds of each line of a table, by its layer and operation."""
    lines = (LINE.fullmatch(line) for line in table.splitlines())
    return {line["name"]: float(line["us"]) for line in lines if line}


def medians(rounds: Sequence[Figures]) -> Figures:
    """Return the median of each figure over the rounds."""
    names = dict.fromkeys(name for found in rounds for name in found)
    return {name: statistics.median(f[name] for f in rounds if name in f) for name in names}


def show(base: Mapping[str, float], change: Mapping[str, float]) -> None:
    """Print the figures of both trees, and the growth of each figure that both have."""
    print(f"{'layer      what':55} {'base':>9} {'change':>9}")
    for name in base | change:
        if name in base and name in change:
            growth = f"{change[name] / base[name] - 1:+8.1%}" if base[name] else ""
            print(f"{name:55} {base[name]:9.2f} {change[name]:9.2f} {growth}".rstrip())
        else:
            only = f"{base[name]:9.2f} {'':9}" if name in base else f"{'':9} {change[name]:9.2f}"
            print(f"{name:55} {only}".rstrip())


if __name__ == "__main__":
    sys.exit(main())
