"""Measure what a request costs while members, groups, partitions and offsets grow.

    python -m bench.scale [--svg docs/reference/scale.svg]     all curves, some minutes
    python -m bench.scale_point groups 1000                    one point, as JSON

Every point is a process of its own: a coordinator on memory storage is filled, and then 1,024
connections without sockets send requests, 64 at a time. Each names one of the groups or members,
and they are spread evenly. CPU is the best of many rounds. It grows when the processor's caches are
too small, or shared with others, so the executed bytecodes stand beside it. Memory is what the
process grew by while it was filled.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from bench.curves import Curve, draw

POINTS = {
    "members": (10, 100, 1_000, 5_000, 20_000),
    "groups": (1, 10, 100, 1_000, 10_000),
    "partitions": (1, 10, 100, 1_000),
    "offsets": (1_000, 10_000, 100_000, 1_000_000),
}
"""Members of one group; groups of one member and ten offsets; partitions of one commit and one
fetch; stored offsets, a thousand in each group."""

REPEATS = 3
MAX_GROWTH = 1.1
"""The most that a request may cost with many members or groups, compared with the fewest."""


def measure(curve: str) -> list[dict[str, float]]:
    """Measure each point in new processes, by turns. Return the best of each figure."""
    runs: list[list[dict[str, float]]] = []
    for _ in range(REPEATS):
        runs.append([])
        for count in POINTS[curve]:
            command = [sys.executable, "-m", "bench.scale_point", curve, str(count)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            runs[-1].append(json.loads(done.stdout))
    return [
        {key: min(run[key] for run in same) for key in same[0]} for same in zip(*runs, strict=True)
    ]


def show(curve: str, found: list[dict[str, float]]) -> None:
    """Print the table of a curve."""
    keys = list(found[0])
    print(f"{curve:>10} {' '.join(f'{key:>13}' for key in keys)}")
    for count, row in zip(POINTS[curve], found, strict=True):
        print(f"{count:10,} {' '.join(f'{row[key]:13,.2f}' for key in keys)}", flush=True)
    if curve in ("members", "groups"):
        growth = {
            key: max(row[key] for row in found) / found[0][key]
            for key in keys
            if key.endswith(("_us", "_ops"))
        }
        said = ", ".join(
            f"{key} {times:.2f}{' TOO MUCH' if times > MAX_GROWTH else ''}"
            for key, times in growth.items()
        )
        print(f"{'':10} the dearest beside the first: {said}")


def main() -> None:
    """Measure all curves, or one."""
    parser = argparse.ArgumentParser(prog="bench.scale")
    parser.add_argument("--only", choices=POINTS)
    parser.add_argument("--svg", type=Path)
    chosen = parser.parse_args()
    curves = []
    for curve in [chosen.only] if chosen.only else POINTS:
        found = measure(curve)
        show(curve, found)
        lines = {
            key.removesuffix("_us"): [row[key] for row in found]
            for key in found[0]
            if key.endswith("_us")
        }
        curves.append(Curve(curve, POINTS[curve], lines))
    if chosen.svg is not None:
        chosen.svg.write_text(draw(curves))


if __name__ == "__main__":
    main()
