"""Count the instructions of one request, in this tree and in the commit in ``bench/guard-base``.

    make guard                              callgrind's count, interpreted and compiled (a minute)
    python -m bench.guard --interpreted     one of the two: 20 s (or --compiled)
    python -m bench.guard --bytecodes       executed bytecodes instead; needs no valgrind

It counts from ``data_received`` to ``transport.write``, with a store in memory and fixed inputs. So
other load on the machine does not change the figures. The work of the kernel and of a disk is not
counted (docs/reference/figures.md, "Instructions").
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.helpers.daemon import compiled_modules

ROOT = Path(__file__).resolve().parents[1]
LOAD = ROOT / "bench/guard_load.py"
MARKS = ROOT / "bench/guard_marks.c"
BASE = ROOT / "bench/guard-base"

MAX_GROWTH = 0.05
"""The check fails if the instructions of a request have grown by more than this since the base."""

MAX_BESIDE_CLASSIC = 1.15
"""The check fails if the ratio of an unchanged consumer heartbeat to a classic heartbeat of the
same tree is larger.
"""

CONSUMER = "consumer heartbeat"
"""A heartbeat of the consumer protocol that changes nothing. The base may not serve it."""

PHASES = ("heartbeat", "commit of 1", "commit of 10", "fetch of 10", CONSUMER)
REQUESTS = 20 * 64
"""The requests in each phase of ``guard_load``."""

TOOLS = {"valgrind": "valgrind", "cc": "gcc libc6-dev"}
"""Program that is needed to count instructions -> the Debian packages that contain it."""

Count = Callable[[Path], dict[str, float]]


def main() -> int:
    """Count in both trees, and print the tables."""
    parser = argparse.ArgumentParser(prog="bench.guard")
    parser.add_argument("--base", default=BASE.read_text().split()[0], help="a commit")
    one = parser.add_mutually_exclusive_group()
    for way in ("interpreted", "compiled", "bytecodes"):
        one.add_argument(f"--{way}", dest="way", action="store_const", const=way)
    chosen = parser.parse_args()
    missing = [] if chosen.way == "bytecodes" else [n for n in TOOLS if shutil.which(n) is None]
    if missing:
        packages = " ".join(TOOLS[name] for name in missing)
        names = " and ".join(missing)
        print(f"bench.guard needs {names} (Debian: apt install {packages})", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        trees = [Path(name) / "base", Path(name) / "this"]  # paths of equal length
        try:
            take_commit(chosen.base, trees[0])
        except subprocess.CalledProcessError:
            print(f"the commit {chosen.base} is not in this clone's history", file=sys.stderr)
            return 2
        take_working_tree(trees[1])
        ways = [chosen.way] if chosen.way else ["interpreted", "compiled"]
        return max(compare(way, trees) for way in ways)


def compare(way: str, trees: list[Path]) -> int:
    """Count in both trees in one way, and print the table."""
    count: Count = bytecodes
    if way != "bytecodes":
        count = partial(instructions, way=way, marks=built_marks(trees[0].parent))
    with ThreadPoolExecutor(len(trees)) as both:
        if way == "compiled":
            list(both.map(compile_in_place, trees))
        before, after = both.map(count, trees)
    return show(way, before, after)


# --- The two trees --------------------------------------------------------------------------------


def take_commit(commit: str, tree: Path) -> None:
    """Write the files of a commit into ``tree``."""
    tree.mkdir()
    archive = tree.with_suffix(".tar")
    git = ["git", "archive", "--output", str(archive), commit]
    subprocess.run(git, cwd=ROOT, check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["tar", "-xf", str(archive), "-C", str(tree)], check=True)


def take_working_tree(tree: Path) -> None:
    """Copy the files of this tree, committed or not."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        source, target = ROOT / name, tree / name
        if source.is_symlink() or source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target, follow_symlinks=False)


def compile_in_place(tree: Path) -> None:
    """Put the compiled modules of a tree beside their sources."""
    shutil.copytree(compiled_modules.built(tree), tree, dirs_exist_ok=True)


# --- Counting -------------------------------------------------------------------------------------


def built_marks(directory: Path) -> Path:
    """Compile ``guard_marks.c`` into a library in a directory, and return its path. ``guard_load``
    calls the library to begin and end a count.
    """
    library = directory / "marks.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(MARKS)], check=True)
    return library


def instructions(tree: Path, way: str, marks: Path) -> dict[str, float]:
    """Count with callgrind. Return the instructions of one request in each phase."""
    counts = tree.with_suffix(f".{way}")
    counts.mkdir()
    tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
    tool.append(f"--callgrind-out-file={counts}/out")
    run_load(tree, tool, [str(marks)], LD_PRELOAD=str(marks))
    found = {}
    for dump in counts.glob("out.*"):  # one for each phase
        text = dump.read_text()
        phase = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
        total = re.search(r"^totals: (\d+)$", text, re.MULTILINE)
        assert phase is not None, text[:1_000]
        assert total is not None, text[:1_000]
        found[phase[1]] = int(total[1]) / REQUESTS
    return found


def bytecodes(tree: Path) -> dict[str, float]:
    """Count bytecodes with the interpreter."""
    counted: dict[str, float] = json.loads(run_load(tree, [], []))
    return counted


def run_load(tree: Path, tool: list[str], marks: list[str], **environment: str) -> str:
    """Run the load on a tree, and return its output."""
    fixed = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [*tool, sys.executable, "-P", str(LOAD), *marks],
        cwd=tree,
        env=os.environ | fixed | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-4_000:])
    return done.stdout


def show(way: str, before: dict[str, float], after: dict[str, float]) -> int:
    """Print the table. Return 1 if a request became too expensive."""
    print(f"{way:18} {'base':>9} {'change':>9}")
    for phase in PHASES:
        if phase in before:
            growth = after[phase] / before[phase] - 1
            print(f"{phase:18} {before[phase]:9,.0f} {after[phase]:9,.0f} {growth:+8.1%}")
        else:
            print(f"{phase:18} {'none':>9} {after[phase]:9,.0f}")
    beside = after[CONSUMER] / after["heartbeat"]
    is_above = beside > MAX_BESIDE_CLASSIC
    limit = f"limit {MAX_BESIDE_CLASSIC}{': EXCEEDED' if is_above else ''}"
    print(f"an unchanged consumer heartbeat: {beside:.2f} of a classic one, {limit}")
    too_dear = [
        phase
        for phase in PHASES
        if phase in before and after[phase] > before[phase] * (1 + MAX_GROWTH)
    ]
    if too_dear:
        print(f"more than {MAX_GROWTH:.0%} dearer than the base: {', '.join(too_dear)}")
    return 1 if too_dear or is_above else 0


if __name__ == "__main__":
    sys.exit(main())
