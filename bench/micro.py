"""Measure each layer of the hot path: all small benchmarks in one table.

    python -m bench.micro       this tree
    make bench-micro            this tree and the commit in bench/guard-base, by turns

It measures CPU time in the best of many short rounds, so that other load on the machine changes the
figures little. docs/reference/figures.md explains them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import uvloop

from bench import assignors_bench, core_bench, hot_bench, protocol_bench, storage_bench
from bench.figures import show


async def main() -> None:
    """Measure from the inner layers to the outer ones, and print all figures at the end."""
    figures = [*protocol_bench.figures(), *core_bench.figures(), *assignors_bench.figures()]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        figures += [figure async for figure in storage_bench.figures(directory)]
        figures += [figure async for figure in hot_bench.figures(directory)]
    show(figures)


if __name__ == "__main__":
    uvloop.run(main())
