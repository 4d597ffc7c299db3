"""A fork server: a warm process whose children each run one mutant against its tests.

The parent has imported pytest, its plugins and the libraries, and nothing of the project that can
be mutated; so a child is up in no time, imports the project with one file changed, and ends at the
first failure.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis
import pytest

AT_A_TIME = 4
"""Two a core: with one each, half of the time was waited for threads and sockets of tests."""
CPU_LIMIT_S = 150
"""What a child may burn; the slowest set of tests, with its worlds, takes half of it."""
OWN_CPU_LIMIT_S = 12
"""What it may burn while only the module's own tests run, which take two seconds at most."""
WALL_LIMIT_S = 1_800
"""For one that waits for ever; much, for the machine may have other work."""
MEMORY_LIMIT_BYTES = 4 << 30


@dataclass(frozen=True)
class Job:
    """One child: a file that is replaced (or none), and what must notice it."""

    name: str
    module: str
    source: bytes | None
    tests: Sequence[Sequence[str]]
    """What is run, stage by stage: most mutants end in the first, and nothing else is collected."""
    worlds: int


@dataclass(frozen=True)
class Outcome:
    """What became of a child. ``caught_by`` is the first failure; empty: all tests passed."""

    job: Job
    caught_by: str
    stage: tuple[str, ...]
    """The tests of the last stage that began; none: the worlds."""
    is_timeout: bool
    seconds: float


class ForkServer:
    """Runs jobs in children of this process, a few at a time."""

    def __init__(self, root: Path, warm: Sequence[str], run_world: Callable[[int], None]) -> None:
        """Import what is never mutated; ``run_world`` is called in children alone."""
        self._root = root
        self._run_world = run_world
        for plugin in entry_points(group="pytest11"):
            if plugin.value.split(".")[0] != "groupkeeper":
                plugin.load()
        for name in warm:
            importlib.import_module(name)
        # Nothing depends on chance, on a database of several children, or on a busy machine.
        hypothesis.settings.register_profile(
            "mutants",
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=[hypothesis.HealthCheck.too_slow],
        )

    def run(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run them all, and tell the outcome of each as soon as it is known."""
        waiting = list(reversed(jobs))
        running: dict[int, tuple[Job, Path, float]] = {}
        with TemporaryDirectory(prefix="mutants-") as folder:
            gc.collect()
            gc.freeze()  # children write to no page of the parent's objects
            try:
                while waiting or running:
                    while waiting and len(running) < AT_A_TIME:
                        job = waiting.pop()
                        place = Path(folder) / str(len(jobs) - len(waiting))
                        # a child that is not in ``running`` would never be ended
                        with _no_sigterm():
                            running[self._fork(job, place)] = (job, place, time.monotonic())
                    pid = _ended()
                    with _no_sigterm():  # a child that has ended must not be signalled
                        _, status = os.waitpid(pid, 0)
                        known = running.pop(pid, None)
                    if known is not None:
                        job, place, started_s = known
                        yield _outcome(job, place, status, time.monotonic() - started_s)
            finally:
                for pid in running:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)

    def _fork(self, job: Job, place: Path) -> int:
        place.mkdir()
        (place / "stage").write_text("[]")
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            return pid
        try:
            _limit()
            with (place / "output").open("w") as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            os.chdir(self._root)
            (place / "caught").write_text(json.dumps(self._first_failure(job, place)))
        except BaseException:  # noqa: BLE001 - a child never comes back into the parent's code
            traceback.print_exc()
        finally:
            os._exit(0)

    def _first_failure(self, job: Job, place: Path) -> str:
        """Run the tests, then the worlds, in a child."""
        if job.source is not None:
            sys.meta_path.insert(0, _Replaced(job.module, self._root, job.source))
        for at, tests in enumerate(filter(None, job.tests)):
            is_last = at == len(job.tests) - 1
            soft_s = CPU_LIMIT_S if is_last else min(OWN_CPU_LIMIT_S, CPU_LIMIT_S)
            resource.setrlimit(resource.RLIMIT_CPU, (soft_s, CPU_LIMIT_S))
            (place / "stage").write_text(json.dumps([*tests]))
            before = [f"--ignore={done}" for stage in job.tests[:at] for done in stage]
            failed = _first_failed([*tests, *before, f"--basetemp={place / f'tmp{at}'}"])
            if failed:
                return failed
        (place / "stage").write_text("[]")
        for seed in range(job.worlds):
            try:
                self._run_world(seed)
            except Exception as error:  # noqa: BLE001 - whatever it is, it noticed
                return f"world {seed}: {type(error).__name__} {error}"
        return ""


def _first_failed(arguments: Sequence[str]) -> str:
    noted = _FirstFailure()
    options = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider"]
    options.append("--hypothesis-profile=mutants")
    # pytest's own importer, which rewrites assertions, would come before ours: where the project is
    # installed in editable mode it takes all of it, since it brings a plugin (pytest #11783).
    options.append("--assert=plain")
    code = pytest.main([*options, *arguments], plugins=[noted])
    return noted.failed or f"pytest ended with {code!r}" if code else ""


class _FirstFailure:
    """A pytest plugin that remembers what failed first."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = str(report.nodeid)


class _Replaced(SourceFileLoader):
    """Finds and loads one module from a source of its own; its file stays as it is."""

    def __init__(self, module: str, root: Path, source: bytes) -> None:
        super().__init__(module, str(root / module.replace(".", "/")) + ".py")
        self._source = source

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def get_code(self, fullname: str) -> Any:
        return compile(self._source, self.path, "exec", dont_inherit=True)


@contextlib.contextmanager
def _no_sigterm() -> Iterator[None]:
    """What is done in here is done to its end; then the signal is heard."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ended() -> int:
    """Wait until a child has ended; it is still there to be waited for."""
    found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    assert found is not None, "there is no child to wait for"
    return found.si_pid


def _limit() -> None:
    """Bound a mutant that never ends: by its own time, for the machine may be busy."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
    with contextlib.suppress(ValueError):  # the limit of the machine is lower already
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    signal.alarm(WALL_LIMIT_S)


def _outcome(job: Job, place: Path, status: int, seconds: float) -> Outcome:
    killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    is_timeout = killed_by in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL)
    answer = place / "caught"
    if is_timeout:
        caught_by = "a timeout"
    elif answer.is_file():
        caught_by = json.loads(answer.read_text())
    else:  # a crash, or no memory left
        output = (place / "output").read_text(errors="replace").strip().splitlines()
        caught_by = f"its process ended (signal {killed_by}): {output[-1] if output else ''}"
    stage = tuple(json.loads((place / "stage").read_text()))
    return Outcome(job, caught_by, stage, is_timeout, seconds)
