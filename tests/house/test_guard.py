"""What `make guard` says of its counts; the counting itself takes valgrind and a minute."""

from __future__ import annotations

import os
import sys

from bench import guard
from tests.helpers.daemon import compiled_modules


def counted(each: float) -> dict[str, float]:
    return dict.fromkeys(guard.PHASES, each)


def test_a_request_that_became_too_dear_fails(capsys):
    after = counted(1_000) | {"commit of 10": 1_051}
    assert guard.show("compiled", counted(1_000), after) == 1
    assert capsys.readouterr().out.splitlines()[-1] == (
        "more than 5% dearer than the base: commit of 10"
    )


def test_what_grows_no_more_than_allowed_passes(capsys):
    assert guard.show("compiled", counted(1_000), counted(1_050)) == 0
    assert "+5.0%" in capsys.readouterr().out


def test_a_request_that_the_base_does_not_serve_is_only_shown(capsys):
    before = counted(1_000)
    del before[guard.CONSUMER]
    assert guard.show("compiled", before, counted(1_000)) == 0
    assert "consumer heartbeat      none     1,000\n" in capsys.readouterr().out


def test_a_consumer_heartbeat_that_is_too_dear_beside_a_classic_one_fails(capsys):
    before = counted(1_000)
    del before[guard.CONSUMER]
    assert guard.show("compiled", before, counted(1_000) | {guard.CONSUMER: 1_160}) == 1
    assert capsys.readouterr().out.splitlines()[-1] == (
        "an unchanged consumer heartbeat: 1.16 of a classic one, limit 1.15: EXCEEDED"
    )


def test_without_valgrind_one_line_says_what_to_install(monkeypatch, capsys, tmp_path):
    (tmp_path / "cc").write_text("")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["guard"])
    assert guard.main() == 2
    said = "bench.guard needs valgrind (Debian: apt install valgrind)\n"
    assert capsys.readouterr().err == said


def test_what_is_compiled_is_built_once_and_the_oldest_builds_go(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled_modules, "BUILDS", tmp_path / "builds")
    built = []

    def build(tree, wheels, filled):
        filled.mkdir()
        built.append(tree)

    monkeypatch.setattr(compiled_modules, "_build", build)
    trees = [tmp_path / f"tree{n}" for n in range(compiled_modules.KEPT + 1)]
    places = []
    for number, tree in enumerate(trees):
        tree.mkdir()
        (tree / "pyproject.toml").write_text(str(number))
        places.append(compiled_modules.built(tree))
        os.utime(places[-1], (number, number))
        assert compiled_modules.built(tree) == places[-1]
        os.utime(places[-1], (number, number))
    assert built == trees
    assert [place.exists() for place in places] == [False] + [True] * compiled_modules.KEPT


def test_without_the_history_of_the_base_one_line_says_so(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["guard", "--bytecodes", "--base", "0" * 40])
    assert guard.main() == 2
    assert capsys.readouterr().err == f"the commit {'0' * 40} is not in this clone's history\n"


def test_the_base_is_one_commit_with_a_reason():
    commit, reason = guard.BASE.read_text().strip().split(maxsplit=1)
    assert len(commit) == 40
    assert reason
