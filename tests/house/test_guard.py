"""What `make guard` says of its counts; the counting itself takes valgrind and a minute."""

from __future__ import annotations

import sys

from bench import guard


def counted(each: float) -> dict[str, float]:
    return dict.fromkeys(guard.PHASES, each)


def test_a_request_that_became_too_dear_fails(capsys):
    after = counted(1_000) | {"commit of 10": 1_051}
    assert guard.show(counted(1_000), after) == 1
    assert capsys.readouterr().out.splitlines()[-1] == (
        "more than 5% dearer than the base: commit of 10"
    )


def test_what_grows_no_more_than_allowed_passes(capsys):
    assert guard.show(counted(1_000), counted(1_050)) == 0
    assert "+5.0%" in capsys.readouterr().out


def test_without_the_history_of_the_base_one_line_says_so(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["guard", "--bytecodes", "--base", "0" * 40])
    assert guard.main() == 2
    assert capsys.readouterr().err == f"the commit {'0' * 40} is not in this clone's history\n"


def test_the_base_is_one_commit_with_a_reason():
    commit, reason = guard.BASE.read_text().strip().split(maxsplit=1)
    assert len(commit) == 40
    assert reason
