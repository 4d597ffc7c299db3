"""Count the instructions of one request, in this tree and in the commit in ``bench/guard-base``.

    make guard                              callgrind's count, interpreted (a minute)
    python -m bench.guard --compiled        the same with the hot path compiled (some minutes)
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
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOAD = ROOT / "bench/guard_load.py"
BASE = ROOT / "bench/guard-base"

MAX_GROWTH = 0.05
"""The check fails if a request needs more than this, compared with the base."""

MARK = "clock_getres*"
"""The C function that the load calls as a mark. Callgrind then writes and resets its counts."""

PHASES = ("heartbeat", "commit of 1", "commit of 10", "fetch of 10")
REQUESTS = 20 * 64
"""The requests in each phase of ``guard_load``."""


def main() -> int:
    """Count in both trees, and print the table."""
    parser = argparse.ArgumentParser(prog="bench.guard")
    parser.add_argument("--base", default=BASE.read_text().split()[0], help="a commit")
    parser.add_argument("--compiled", action="store_true", help="with the hot path compiled")
    parser.add_argument(
        "--bytecodes", action="store_true", help="count bytecodes, without valgrind"
    )
    chosen = parser.parse_args()
    if not chosen.bytecodes and shutil.which("valgrind") is None:
        print("bench.guard needs valgrind (Debian: apt install valgrind)", file=sys.stderr)
        return 2
    count = bytecodes if chosen.bytecodes else instructions
    with tempfile.TemporaryDirectory() as name:
        trees = [Path(name) / "base", Path(name) / "change"]
        try:
            take_commit(chosen.base, trees[0])
        except subprocess.CalledProcessError:
            print(f"the commit {chosen.base} is not in this clone's history", file=sys.stderr)
            return 2
        take_working_tree(trees[1])
        if chosen.compiled:
            for tree in trees:
                compile_in_place(tree)
        with ThreadPoolExecutor(2) as both:
            before, after = both.map(count, trees)
    return show(before, after)


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
    """Build the compiled modules of a tree, and put them beside their sources."""
    wheels = tree.with_suffix(".wheels")
    wheel = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(wheels), "."]
    pip = [sys.executable, "-m", "pip", *wheel]
    subprocess.run(
        pip, cwd=tree, env=os.environ | {"HATCH_BUILD_HOOK_ENABLE_MYPYC": "1"}, check=True
    )
    with zipfile.ZipFile(next(wheels.iterdir())) as made:
        made.extractall(tree, [name for name in made.namelist() if name.endswith(".so")])


# --- Counting -------------------------------------------------------------------------------------


def instructions(tree: Path) -> dict[str, float]:
    """Count instructions with callgrind."""
    counts = tree.with_suffix(".counts")
    counts.mkdir()
    tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}/out"]
    run_load(tree, [*tool, f"--dump-before={MARK}"], "marks")
    found = {}
    for position, phase in enumerate(PHASES):  # there are dumps between two phases too
        dumped = (counts / f"out.{2 * position + 3}").read_text()
        total = re.search(r"^totals: (\d+)", dumped, re.MULTILINE)
        assert total is not None, "callgrind wrote no total"
        found[phase] = int(total[1]) / REQUESTS
    return found


def bytecodes(tree: Path) -> dict[str, float]:
    """Count bytecodes with the interpreter."""
    counted: dict[str, float] = json.loads(run_load(tree, [], "bytecodes"))
    return counted


def run_load(tree: Path, tool: list[str], how: str) -> str:
    """Run the load on a tree, and return its output."""
    fixed = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [*tool, sys.executable, "-P", str(LOAD), how],
        cwd=tree,
        env=os.environ | fixed,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-4_000:])
    return done.stdout


def show(before: dict[str, float], after: dict[str, float]) -> int:
    """Print the table. Return 1 if a request became too expensive."""
    print(f"{'a request':14} {'base':>9} {'change':>9}")
    for phase in PHASES:
        growth = after[phase] / before[phase] - 1
        print(f"{phase:14} {before[phase]:9,.0f} {after[phase]:9,.0f} {growth:+8.1%}")
    too_dear = [phase for phase in PHASES if after[phase] > before[phase] * (1 + MAX_GROWTH)]
    if too_dear:
        print(f"more than {MAX_GROWTH:.0%} dearer than the base: {', '.join(too_dear)}")
    return 1 if too_dear else 0


if __name__ == "__main__":
    sys.exit(main())
