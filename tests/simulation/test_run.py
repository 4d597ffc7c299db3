"""What ``make sim`` prints, and when it fails."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation import run
from tests.simulation.worlds import Figures


@pytest.fixture(autouse=True)
def worlds(monkeypatch):
    """Replace worlds by ones that do nothing. The third one fails."""

    def run_world(seed):
        assert seed != 3, "a partition is held by two"
        return Figures(100, 40, Counter(), Counter(kill=2), 1_800.0)

    monkeypatch.setattr(run, "run_world", run_world)
    monkeypatch.setattr(run, "be_quiet", lambda: None)


def summed_up(seeds, capsys):
    total = run.Report([], [])
    run._add(total, run.run_worlds(seeds))
    status = run._sum_up(total, 12.0)
    return status, capsys.readouterr().out.splitlines()


def test_the_last_line_has_the_figures(capsys):
    status, lines = summed_up([1, 2], capsys)
    assert status == 0
    assert lines == [
        "faults: 4 x kill",
        "sim: 2 worlds, 0 failed, 200 requests, 1.0 h of their time in 12 s",
    ]


def test_a_failing_seed_prints_the_line_that_reproduces_it(capsys):
    status, lines = summed_up([1, 2, 3], capsys)
    assert status == 1
    assert "seed 3: AssertionError: a partition is held by two" in lines
    assert "  again with: make sim SEED=3" in lines
    assert lines[-1].startswith("sim: 3 worlds, 1 failed")


def test_a_run_without_a_world_is_not_fine(capsys):
    status, lines = summed_up([], capsys)
    assert status == 1
    assert lines[-1].startswith("sim: 0 worlds, 0 failed")


def test_one_seed_alone_fails_with_its_traceback(capsys):
    assert run._one(3) == 1
    told = capsys.readouterr()
    assert "a partition is held by two" in told.err
    assert told.out == "sim: seed 3 FAILED; again with: make sim SEED=3\n"


NONSENSE = [
    ("SEEDS", "0"),
    ("SEEDS", "-3"),
    ("SEEDS", ""),
    ("FIRST", "x"),
    ("FIRST", "-1"),
    ("SEED", "1.5"),
    ("SEED", "-1"),
    ("WORKERS", "0"),
    ("MINUTES", "0"),
    ("MINUTES", "soon"),
    ("MINUTES", "nan"),
    ("MINUTES", "inf"),
]


@pytest.mark.parametrize(("name", "text"), NONSENSE)
def test_nonsense_is_refused(monkeypatch, capsys, name, text):
    """Otherwise a run without worlds would report that all of them are fine."""
    monkeypatch.setenv(name, text)
    assert run.main() == 2
    assert capsys.readouterr().out.startswith(f"sim: {name}={text} is refused: give ")


@pytest.fixture
def asked(monkeypatch):
    """Return the worlds that would run, without a run."""
    for name in ("SEED", "SEEDS", "FIRST", "MINUTES", "WORKERS"):
        monkeypatch.delenv(name, raising=False)

    def many(seeds, minutes, workers):
        return next(seeds), minutes, workers

    monkeypatch.setattr(run, "_many", many)
    return monkeypatch


def test_what_makes_sense_is_run(asked):
    assert run.main() == (run.IN_TESTS, 0.0, 2)
    asked.setenv("FIRST", "0")
    asked.setenv("MINUTES", "0.5")
    asked.setenv("WORKERS", "1")
    assert run.main() == (0, 0.5, 1)
    asked.setenv("SEED", "0")
    assert run.main() == 0
