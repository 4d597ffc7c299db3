"""The mutation check: which mutants there are, which were caught, and whether that is enough."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.forks import ForkServer, Job, Outcome
from tests.mutants.mutant import Mutant, draw
from tests.mutants.mutator import mutants_of

LEAST_CAUGHT = 0.95
"""Of all mutants that are not equivalent."""


@dataclass(frozen=True)
class Named:
    """A mutant that a person thought of. ``old`` occurs exactly once in the file."""

    path: str
    old: str
    new: str
    breaks: str
    """What goes wrong with it, in one line."""


@dataclass(frozen=True)
class Plan:
    """What is checked, and with what."""

    root: Path
    drawn_from: Sequence[str]
    tests_of: Callable[[str], Sequence[Sequence[str]]]
    """The tests that the mutants of a file meet, in stages."""
    worlds: int
    """How many simulated worlds a mutant meets that the tests of its file let pass."""
    run_world: Callable[[int], None]
    warm: Sequence[str]
    """Modules that are imported once, by the parent of all."""
    named: Sequence[Named]
    equivalents: Mapping[str, str]
    """Key of a mutant that changes nothing -> why that is so."""
    drawn: int
    seed: int
    only: str = ""
    package: str = ""
    """What a file is imported from, with its dot, where the folder does not tell."""


@dataclass(frozen=True)
class _Candidate:
    """A mutant on its way through the tests."""

    path: str
    line: int
    source: bytes
    is_named: bool
    shown: str
    key: str


def check(plan: Plan) -> int:
    """Run the mutants of a plan, say what became of each; 0 if enough of them were caught."""
    started_s = time.monotonic()
    try:
        named = [_named_candidate(plan.root, each) for each in plan.named]
        drawn, equivalent = _draw(plan)
    except LookupError as error:
        _say(f"mutants: {error.args[0]}")
        return 1
    candidates = [each for each in [*named, *drawn] if plan.only in each.shown]
    if not candidates:
        _say("mutants: none is left to be tried; look at DRAWN and ONLY")
        return 2
    server = ForkServer(plan.root, plan.warm, plan.run_world)
    survivors: list[_Candidate] = []
    timeouts = 0
    catchers: set[tuple[str, ...]] = set()
    for candidate, outcome in _outcomes(plan, server, candidates):
        timeouts += outcome.is_timeout
        if outcome.caught_by:
            catchers.add(outcome.stage)
        else:
            survivors.append(candidate)
        verdict = f"by {outcome.caught_by}" if outcome.caught_by else "SURVIVED"
        _say(f"{candidate.path}:{candidate.line} {candidate.shown}\n    {verdict}")
    if not _passes_unchanged(plan, server, catchers):
        return 1
    for survivor in survivors:
        _say(f"Survived: {survivor.path}:{survivor.line}\n    {survivor.key}")
    caught = len(candidates) - len(survivors)
    share = caught / len(candidates)
    _say(
        f"mutants: {len(named)} named and {len(drawn) + equivalent} drawn: {caught} caught "
        f"({timeouts} by a timeout), {len(survivors)} survived, {equivalent} equivalent: "
        f"{share:.1%} of {len(candidates)} in {time.monotonic() - started_s:.0f} s "
        f"({_cpu_s():.0f} s of processors)"
    )
    return int(share < LEAST_CAUGHT or any(survivor.is_named for survivor in survivors))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - for who waits for it


def _named_candidate(root: Path, named: Named) -> _Candidate:
    source = (root / named.path).read_text()
    times = source.count(named.old)
    if times != 1:
        raise LookupError(
            f"a named mutant is out of date: {named.path} holds its old text {times} times, not "
            f"once; change it in tests/mutants/named.py ({named.breaks}):\n{named.old}"
        )
    line = source[: source.index(named.old)].count("\n") + 1
    mutated = source.replace(named.old, named.new).encode()
    return _Candidate(named.path, line, mutated, True, f"named: {named.breaks}", named.breaks)


def _draw(plan: Plan) -> tuple[list[_Candidate], int]:
    """The drawn ones that are to be run, and how many others are known to be equivalent."""
    sources = {path: (plan.root / path).read_bytes() for path in plan.drawn_from}
    every = [mutant for path, source in sources.items() for mutant in mutants_of(path, source)]
    stale = plan.equivalents.keys() - {mutant.key for mutant in every}
    if stale:
        raise LookupError(
            "an equivalent mutant is out of date: the code that it changes is no longer there; "
            f"look at it again in tests/mutants/equivalents.py:\n{min(stale)}"
        )
    drawn = draw(every, plan.drawn, plan.seed)
    meant = [mutant for mutant in drawn if mutant.key not in plan.equivalents]
    return [_drawn_candidate(m, sources[m.path]) for m in meant], len(drawn) - len(meant)


def _drawn_candidate(mutant: Mutant, source: bytes) -> _Candidate:
    line = source[: mutant.start].count(b"\n") + 1
    shown = f"{mutant.operator}, {mutant.function}: {mutant.text}"
    return _Candidate(mutant.path, line, mutant.source(source), False, shown, mutant.key)


def _passes_unchanged(plan: Plan, server: ForkServer, stages: set[tuple[str, ...]]) -> bool:
    """A test that fails anyway would catch every mutant: what caught one must pass without it."""
    jobs = [
        Job(" ".join(stage) or "worlds", "", None, [stage], 0 if stage else plan.worlds)
        for stage in sorted(stages)
    ]
    for outcome in server.run(jobs):
        if outcome.caught_by:
            _say(f"mutants: the code as it is does not pass: {outcome.caught_by}")
            return False
        _say(f"unchanged, {outcome.job.name}: passes in {outcome.seconds:.0f} s")
    return True


def _outcomes(
    plan: Plan, server: ForkServer, candidates: Sequence[_Candidate]
) -> Iterator[tuple[_Candidate, Outcome]]:
    by_name = {str(at): candidate for at, candidate in enumerate(candidates)}
    jobs = [
        Job(
            name,
            plan.package + each.path.removesuffix(".py").replace("/", "."),
            each.source,
            plan.tests_of(each.path),
            plan.worlds,
        )
        for name, each in by_name.items()
    ]
    for outcome in server.run(jobs):
        yield by_name[outcome.job.name], outcome
