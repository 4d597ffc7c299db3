"""``make fuzz``: coverage-guided on the readers and the handlers, a search for slow frames, and an
onslaught on the daemon.

All four run side by side for ``MINUTES=10``; ``ONLY=daemon`` (or ``readers``, ``handlers``,
``slow``) runs one, ``SEED=7`` draws other requests. ``KEEP=1`` merges what adds coverage into the
corpus, and the worst frames into ``slow_recipes.json``. What broke something lies in ``var/fuzz``
and is replayed with ``python -m tests.fuzz.replay FILE``.
What is no number, or none that makes sense, is refused; who ends it leaves nothing running.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.judge import complaints, line
from tests.fuzz.onslaught import Onslaught
from tests.fuzz.seeds import CORPUS, name_of
from tests.fuzz.target import TARGETS
from tests.helpers.daemon.asked_numbers import RefusedError, as_minutes, switch, whole_number

ROOT = Path(__file__).parent.parent.parent
WORK = ROOT / "var" / "fuzz"
LIMITS = ("-max_len=4096", "-timeout=60", "-rss_limit_mb=2048", "-print_final_stats=1")
KEPT_BYTES = 1_024
"""A longer input is not worth its place in the repository."""

OTHERS = ("slow", "daemon")
"""What runs beside the targets of libFuzzer."""

_BEGAN_S = time.monotonic()


class Guided:
    """One target under atheris, in a process of its own."""

    def __init__(self, target: str, seconds: int, seed: int) -> None:
        """Begin."""
        self.target = target
        self.found = WORK / f"found-{target}"
        self.log_file = WORK / f"{target}.log"
        self.found.mkdir(parents=True, exist_ok=True)
        options = [f"-max_total_time={seconds}", f"-seed={seed}", *LIMITS]
        options.append(f"-artifact_prefix={WORK}/{target}-")
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.fuzz.guided", target, *options),
                    *(str(self.found), str(CORPUS)),
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self) -> str:
        """Wait for the end; returns what was found, "" for nothing."""
        code = self.process.wait()
        if code == 0 and self.figure("stat::number_of_executed_units"):
            return ""
        tail = self.log_file.read_text(errors="replace")[-1_500:]
        return f"{self.target}: exit code {code}, see {self.log_file}\n{tail}"

    def figure(self, name: str) -> int:
        """One of libFuzzer's figures; 0 where the log has none."""
        found = re.findall(rf"{name}:\s*(\d+)", self.log_file.read_text(errors="replace"))
        return int(found[-1]) if found else 0

    def line(self) -> str:
        """What it did."""
        runs = self.figure("stat::number_of_executed_units")
        return f"{self.target} {runs:,} inputs, {self.figure('cov')} places covered"


class Slow:
    """The search for slow frames, in a process of its own."""

    def __init__(self, seconds: int, seed: int) -> None:
        """Begin."""
        self.log_file = WORK / "slow.log"
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.slow", str(seconds), str(seed)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self) -> str:
        """Wait for the end; returns what was found, "" for nothing."""
        code = self.process.wait()
        lines = self.log_file.read_text(errors="replace").splitlines()
        slow = [row for row in lines if row.startswith("SLOW ")]
        if code == 0 and not slow:
            return ""
        return "\n".join([f"slow: exit code {code}, see {self.log_file}", *(slow or lines[-15:])])

    def worst(self) -> list[str]:
        """The slowest frame of each API, and at last how many were tried."""
        return self.log_file.read_text(errors="replace").splitlines()


def keep(guided: list[Guided]) -> int:
    """Merge what adds coverage into the corpus; returns how many files that were."""
    kept = 0
    for each in guided:
        with tempfile.TemporaryDirectory() as merged:
            for path in CORPUS.iterdir():
                shutil.copy(path, merged)
            itself = WORK / f"guided-{each.target}"
            itself.write_text(
                f'#!/bin/sh\nexec {sys.executable} -m tests.fuzz.guided {each.target} "$@"\n'
            )
            itself.chmod(0o755)
            subprocess.run(
                [str(itself), "-set_cover_merge=1", merged, str(each.found)],
                cwd=ROOT,
                env={**os.environ, "FUZZ_ITSELF": str(itself)},
                check=True,
                capture_output=True,
            )
            for path in Path(merged).iterdir():
                data = path.read_bytes()
                file = CORPUS / name_of(data)
                if len(data) <= KEPT_BYTES and not file.exists():
                    file.write_bytes(data)
                    kept += 1
    return kept


def tell(text: str) -> None:
    """A line of progress."""
    print(f"[{time.monotonic() - _BEGAN_S:5.0f} s] {text}", flush=True)


def main() -> int:
    """Run what was asked for; 0 where nothing was found, 2 where nonsense is asked for."""
    try:
        minutes = as_minutes("MINUTES", os.environ.get("MINUTES", "10"))
        seed = whole_number("SEED", 1, least=1)  # libFuzzer draws a seed if it is 0
        keeps = switch("KEEP")
        only = os.environ.get("ONLY") or ""
        if only and only not in (*TARGETS, *OTHERS):
            known = f"{', '.join([*TARGETS, OTHERS[0]])} or {OTHERS[1]}"
            raise RefusedError(f"ONLY={only} is refused: give {known}")
    except RefusedError as error:
        print(f"fuzz: {error}")
        return 2
    # A shell ignores SIGINT for a process that it starts in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)  # the daemon ends too
    try:
        return _run(minutes, seed, only, keeps=keeps)
    except KeyboardInterrupt:
        print("fuzz: ended before it was done")
        return 130


def _interrupt(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the end
    signal.raise_signal(signal.SIGINT)  # the signal then ends the tasks of the loop


def _run(minutes: float, seed: int, only: str, *, keeps: bool) -> int:
    WORK.mkdir(parents=True, exist_ok=True)
    names = [name for name in TARGETS if only in ("", name)]
    tell(f"{minutes:g} minutes of {only or ', '.join([*TARGETS, *OTHERS])}")
    seconds = max(1, int(minutes * 60))
    guided: list[Guided] = []
    slow: Slow | None = None
    wrong: list[str] = []
    lines: list[str] = []
    try:
        guided.extend(Guided(name, seconds, seed) for name in names)
        if only in ("", "slow"):
            slow = Slow(seconds, seed)
        if only in ("", "daemon"):
            complained, line_ = _onslaught(minutes, seed)
            wrong += complained
            lines.append(line_)
        for each in guided:
            found = each.wait()
            wrong += [found] if found else []
            lines.insert(0, each.line())
            tell(each.line())
        if slow is not None:
            found = slow.wait()
            wrong += [found] if found else []
            for row in slow.worst():
                tell(row)
            lines.append(slow.worst()[-1] if slow.worst() else "slow: nothing")
    finally:
        for process in [each.process for each in [*guided, slow] if each is not None]:
            process.kill()
    if keeps and guided and not wrong:
        tell(f"{keep(guided)} inputs kept in {CORPUS.relative_to(ROOT)}")
    for each_wrong in wrong:
        print(f"FOUND {each_wrong}")
    print(f"fuzz: {'FAILED' if wrong else 'ok'}, {minutes:g} minutes; {'; '.join(lines)}")
    return 1 if wrong else 0


def _onslaught(minutes: float, seed: int) -> tuple[list[str], str]:
    """Attack the daemon; returns the complaints, and what was done."""
    with tempfile.TemporaryDirectory() as directory:
        figures = Onslaught(Path(directory), seed, tell).run(minutes)
        wrong = [f"daemon: {complaint}" for complaint in complaints(figures)]
        if wrong:
            shutil.copy(Path(directory) / "daemon.log", WORK / "daemon.log")
    return wrong, f"daemon {line(figures)}"


if __name__ == "__main__":
    sys.exit(main())
