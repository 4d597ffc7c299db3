"""Measure what a request costs while members, groups, partitions and offsets grow.

    python -m bench.scale                       all curves, some minutes
    python -m bench.scale --only groups         one of them
    python -m bench.scale --write               all, and docs/reference/scale.md with its charts
    python -m bench.scale_point groups 1000     one point, as JSON

Every point is a process of its own: a coordinator on memory storage is filled, and then 1,024
connections without sockets send requests, 64 at a time. Each names one of the groups or members,
and they are spread evenly. CPU is the best of many rounds. It grows when the processor's caches are
too small, or shared with others, so the executed bytecodes stand beside it. Memory is what the
process grew by while it was filled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill

from bench.curves import Curve, draw

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "scale.md"
SVG = PAGE.with_suffix(".svg")

POINTS = {
    "members": (10, 100, 1_000, 5_000, 20_000),
    "groups": (1, 10, 100, 1_000, 10_000),
    "partitions": (1, 10, 100, 1_000),
    "offsets": (1_000, 10_000, 100_000, 1_000_000),
}
REPEATS = 3
MAX_GROWTH = 1.1
"""The most that a request may cost with many members or groups, compared with few."""
OWN = 1_000
"""From this number of members or groups on, each connection has its own. With fewer, connections
share them, and their data stays in the processor's caches.
"""

POINT_LIMIT_S = 300

WORDS = {
    "members": "members, 5,000 in a group at most",
    "groups": "groups of one member and ten offsets",
    "partitions": "partitions of one commit and one fetch",
    "offsets": "stored offsets, a thousand in each group",
}
COLUMNS = {
    "bytes": "memory of one, bytes",
    "heartbeat_us": "heartbeat, us",
    "heartbeat_ops": "bytecodes",
    "commit_us": "commit, us",
    "commit_ops": "bytecodes",
    "fetch_us": "fetch, us",
    "fetch_ops": "bytecodes",
    "gc_young_ms": "collector's pause, ms",
    "gc_full_ms": "a full collection, ms",
}
"""Figure of a point -> the head of its column in a table."""

Rows = Sequence[Mapping[str, float]]


def measure(curve: str) -> Rows:
    """Measure each point in new processes, by turns. Return the best of each figure."""
    runs: list[list[dict[str, float]]] = []
    for _ in range(REPEATS):
        runs.append([])
        for count in POINTS[curve]:
            command = [sys.executable, "-m", "bench.scale_point", curve, str(count)]
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=POINT_LIMIT_S
            )
            runs[-1].append(json.loads(done.stdout))
    return [
        {key: min(run[key] for run in same) for key in same[0]} for same in zip(*runs, strict=True)
    ]


def growth(curve: str, rows: Rows, least: int = 0) -> dict[str, float]:
    """Return how much more a request costs at the most expensive point than at the first point with
    at least ``least`` items: one value for each figure.
    """
    first = next(n for n, count in enumerate(POINTS[curve]) if count >= least)
    keys = [key for key in rows[0] if key.endswith(("_us", "_ops"))]
    return {key: max(row[key] for row in rows[first:]) / rows[first][key] for key in keys}


def table(curve: str, rows: Rows) -> str:
    """Return the table of a curve."""
    keys = [key for key in COLUMNS if key in rows[0]]
    lines = [
        f"| {' | '.join([WORDS[curve], *(COLUMNS[key] for key in keys)])} |",
        f"|{' ---: |' * (1 + len(keys))}",
    ]
    for count, row in zip(POINTS[curve], rows, strict=True):
        lines.append(f"| {' | '.join([f'{count:,}', *(_cell(key, row[key]) for key in keys)])} |")
    return "\n".join(lines) + "\n"


def _cell(key: str, figure: float) -> str:
    return f"{figure:,.0f}" if key == "bytes" or key.endswith("_ops") else f"{figure:,.2f}"


def read(page: str) -> dict[str, Rows]:
    """Return the figures of a page, as its tables have them."""
    found: dict[str, Rows] = {}
    for curve, words in WORDS.items():
        head, _, *lines = page.partition(f"| {words} |")[2].partition("\n\n")[0].splitlines()
        has_beats = COLUMNS["heartbeat_us"] in head
        keys = [key for key in COLUMNS if has_beats or not key.startswith("heartbeat")]
        cells = [[cell.replace(",", "") for cell in line.split("|")[2:-1]] for line in lines]
        found[curve] = [dict(zip(keys, map(float, row), strict=True)) for row in cells]
    return found


def written(found: Mapping[str, Rows], run: str) -> str:
    """Return the page; ``run`` describes the day and the machine."""
    members = POINTS["members"][-1]
    longest = max(row["gc_young_ms"] for rows in found.values() for row in rows)
    full = max(row["gc_full_ms"] for rows in found.values() for row in rows)
    more = max(
        times - 1
        for curve in ("members", "groups")
        for key, times in growth(curve, found[curve]).items()
        if key.endswith("_ops")
    )
    facts = [
        f"With {members:,} members, each needs {found['members'][-1]['bytes']:,.0f} bytes of "
        f"memory. An offset needs {found['offsets'][-1]['bytes']:,.0f} bytes.",
        "A request does the same work with few and with many members or groups: the number of "
        f"Python's bytecodes that it executes grows by {more:.0%} at most. Its time grows more, "
        "because with many members its data is not in the nearest caches of the processor. (From "
        f"{OWN:,} members or groups on, each of the 1,024 connections has its own.)",
        f"While requests were served, the garbage collector paused the process for at most "
        f"{longest:.1f} ms. A full collection takes up to {full:.0f} ms, and is rare. It examines "
        "only objects made since the start.",
    ]
    bullets = "\n".join(fill(f"- {fact}", 100, subsequent_indent="  ") for fact in facts)
    tables = "\n".join(
        f"## {curve.capitalize()}\n\n{table(curve, rows)}{_remark(curve, rows)}"
        for curve, rows in found.items()
    )
    return f"""\
# Scale

What a request costs while the numbers of members, groups, partitions and offsets grow. For people
who size a machine. `python -m bench.scale --write` measures this, and prints the page and its
charts. The code was not compiled. A time is the CPU time in the fastest tenth of many short rounds.

This run: {run}.

![CPU time of a request](scale.svg)

{bullets}

Each table is for one of these numbers, which grows from line to line. Every request has ten
partitions, except in the table of partitions. "Memory of one" is the growth of the process, divided
by the number. So in the first lines it mostly shows what the coordinator needs anyway. It includes
the records that the `memory:` store keeps. "Bytecodes" is how many of Python's bytecodes a request
executes.

{tables}"""


def _remark(curve: str, rows: Rows) -> str:
    if curve not in ("members", "groups"):
        return ""

    def said(least: int, unit: str) -> str:
        times = growth(curve, rows, least).items()
        return ", ".join(f"{key[: -len(unit)]} {t:.2f}" for key, t in times if key.endswith(unit))

    facts = (
        f"The most bytecodes of a line, divided by those of the first line: {said(0, '_ops')}. "
        f"The longest time of a line, divided by that of the first line: {said(0, '_us')}; "
        f"divided by that of the line of {OWN:,}: {said(OWN, '_us')}."
    )
    return f"\n{fill(facts, 100)}\n"


def curves(found: Mapping[str, Rows]) -> list[Curve]:
    """Return the charts."""
    return [
        Curve(
            curve,
            POINTS[curve],
            {
                key.removesuffix("_us"): [row[key] for row in rows]
                for key in rows[0]
                if key.endswith("_us")
            },
        )
        for curve, rows in found.items()
    ]


def show_growth(curve: str, rows: Rows) -> None:
    """Print what grows more than it may."""
    for key, times in growth(curve, rows, 0).items():
        if key.endswith("_ops") and times > MAX_GROWTH:
            print(f"{key}: {times:.2f} times the first, which is too much")
    for key, times in growth(curve, rows, OWN).items():
        if key.endswith("_us") and times > MAX_GROWTH:
            print(f"{key}: {times:.2f} times {OWN:,}, which is too much")


def main() -> None:
    """Measure all curves, or one."""
    parser = argparse.ArgumentParser(prog="bench.scale")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--only", choices=POINTS)
    one.add_argument("--write", action="store_true", help="write the page and its charts")
    chosen = parser.parse_args()
    found = {}
    for curve in [chosen.only] if chosen.only else POINTS:
        found[curve] = measure(curve)
        print(table(curve, found[curve]), flush=True)
        if curve in ("members", "groups"):
            show_growth(curve, found[curve])
    if chosen.write:
        day, python = f"{datetime.now(tz=UTC):%Y-%m-%d}", sys.version.split()[0]
        page = written(found, f"{day}, Python {python}, load average {os.getloadavg()[1]:.0f}")
        PAGE.write_text(page)
        SVG.write_text(draw(curves(read(page))))


if __name__ == "__main__":
    main()
