"""What ``make sim`` prints, and when it fails."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation import run
from tests.simulation.worlds import Figures


@pytest.fixture(autouse=True)
def worlds(monkeypatch):
    """Worlds that cost nothing; the third one fails."""

    def run_world(seed):
        assert seed != 3, "a partition is held by two"
        return Figures(100, 40, Counter(), Counter(kill=2), 1_800.0)

    monkeypatch.setattr(run, "run_world", run_world)
    monkeypatch.setattr(run, "be_quiet", lambda: None)


def summed_up(seeds, capsys):
    total = run.Report([], [])
    run._add(total, run.live(seeds))
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


def test_one_seed_alone_fails_with_its_traceback(capsys):
    assert run._one(3) == 1
    told = capsys.readouterr()
    assert "a partition is held by two" in told.err
    assert told.out == "sim: seed 3 FAILED; again with: make sim SEED=3\n"
