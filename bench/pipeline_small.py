"""Measure the processor time of `groupkeeper pipeline run` for a thousand new events.

    python -m bench.pipeline_small [events of the day before them, such as 240000]

The first run has the events of the day, if there are any. The second run has a thousand more. It is
measured without the classes that an earlier JVM has kept (``--jvm-cache off``), and with them, as
on a machine with a scheduler. All processes of the command count: Python, Spark's JVM, and what
they start.
"""

from __future__ import annotations

import ctypes
import gzip
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from bench.pipeline import DAY, SEGMENT_EVENTS, lines

NEW_EVENTS: Final = 1_000
_PR_SET_CHILD_SUBREAPER: Final = 36


def write_segments(log: Path, source: Iterator[str], first: int, events: int) -> None:
    """Write the next ``events`` events of the source as segments. ``first`` is the seq of the first
    event.
    """
    day = log / f"dt={DAY}"
    day.mkdir(parents=True, exist_ok=True)
    end = first + events
    for start in range(first, end, SEGMENT_EVENTS):
        last = min(end, start + SEGMENT_EVENTS) - 1
        with gzip.open(day / f"events-bench-{start}-{last}.jsonl.gz", "wt") as file:
            file.writelines(islice(source, last - start + 1))


def run(log: Path, tables: Path, jvm_cache: Path | str) -> tuple[float, float]:
    """Run the command. Return the processor time and the wall time in seconds."""
    before, began = _children_s(), time.monotonic()
    command = [sys.executable, "-m", "groupkeeper", "pipeline", "run"]
    command += ["--log-dir", str(log), "--out", str(tables), "--jvm-cache", str(jvm_cache)]
    subprocess.run(command, check=True, capture_output=True)
    wall_s = time.monotonic() - began
    while _has_children():
        pass
    return _children_s() - before, wall_s


def _has_children() -> bool:
    """Wait for the end of a child process, such as Spark's JVM after its parent has ended. Return
    False if there is no child.
    """
    try:
        os.wait()
    except ChildProcessError:
        return False
    return True


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Run the measurement. Return the exit code."""
    before = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        log, other_log, cache = (Path(folder, name) for name in ("log", "other-log", "cache"))
        tables, again = Path(folder, "tables"), Path(folder, "again")
        source = lines(before + NEW_EVENTS)
        if before:
            write_segments(log, source, 1, before)
            cpu_s, wall_s = run(log, tables, "off")
            print(f"{before:,} events: {cpu_s:.1f} s of CPU, {wall_s:.1f} s", flush=True)
            shutil.copytree(tables, again)
        write_segments(log, source, before + 1, NEW_EVENTS)
        cpu_s, wall_s = run(log, tables, "off")
        print(f"{NEW_EVENTS:,} events more: {cpu_s:.1f} s of CPU, {wall_s:.1f} s", flush=True)
        write_segments(other_log, lines(NEW_EVENTS), 1, NEW_EVENTS)
        run(other_log, Path(folder, "other"), cache)  # its JVM writes the classes
        cpu_s, wall_s = run(log, again, cache)
        print(f"with kept classes: {cpu_s:.1f} s of CPU, {wall_s:.1f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
