"""Measure the slowest appends to SQLite, of 8 and of 64 commits.

    python -m bench.append_tail [DIRECTORY]
    python -m bench.by_turns append_tail --base HEAD~1 --rounds 8

Appends follow each other. "Weighted" means that each append counts as often as it takes time: so
requests that come evenly see it. Appends are slow while the write-ahead log is copied into the
database. Other load on the machine and on its disk changes these figures much, so compare only
medians of rounds by turns. As root, ``chrt -f 5`` before the command gives it the CPU before all
other processes.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from bench.figures import Figure, show
from bench.storage_bench import Load
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage

WARM = 1_500
"""The appends that do not count. The files reach their size in this time."""
MEASURED = 2_500


async def figures(directory: Path) -> AsyncIterator[Figure]:
    """Measure a new store in the directory for each size of an append."""
    for commits in (8, 64):
        # A store that folds would write other pages too.
        storage = SqliteOffsetStorage(directory / f"{commits}.db", fold_after=10**9)
        load = Load(storage, groups=100, commits=commits)
        await load.start()
        for _ in range(WARM):
            await load.append()
        gc.collect()
        cpu_s = -(time.process_time() - time.thread_time())
        took = [await load.append() for _ in range(MEASURED)]
        cpu_s += time.process_time() - time.thread_time()
        await storage.close()
        took.sort()
        what = f"append of {commits},"
        yield Figure("storage", f"{what} p50", took[len(took) // 2] * 1e6)
        for percent in (95, 99):
            slow = weighted(took, percent / 100)
            yield Figure("storage", f"{what} weighted p{percent}", slow * 1e6)
        yield Figure("storage", f"{what} CPU of the writer", cpu_s / MEASURED * 1e6)


def weighted(took: Sequence[float], share: float) -> float:
    """Return the time of the append that runs when this share of the whole time is over, if the
    appends (sorted) run from the fastest to the slowest.
    """
    left = sum(took) * share
    for each in took:
        left -= each
        if left <= 0:
            return each
    return took[-1]


async def main() -> None:
    """Measure in a directory, by default a temporary one."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        show([figure async for figure in figures(Path(name))])


if __name__ == "__main__":
    asyncio.run(main())
