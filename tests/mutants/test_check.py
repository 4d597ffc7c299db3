"""The check fails when it should: seen on a small project of its own, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

from tests.mutants.__main__ import FILES, FOLDERS, ROOT, main
from tests.mutants.chosen_tests import ELSEWHERE, LAYERS, OWN, chosen_tests
from tests.mutants.equivalents import EQUIVALENTS
from tests.mutants.mutant import draw
from tests.mutants.mutator import mutants_of
from tests.mutants.named import NAMED

LIMIT = """
    def has_room(count, limit):
        return count < limit
"""
GOOD_TEST = """
    from shop.limit import has_room

    def test_limit():
        assert has_room(1, 2)
        assert not has_room(2, 2)
        assert not has_room(3, 2)
"""
WEAK_TEST = """
    from shop.limit import has_room

    def test_limit():
        assert has_room(1, 2)
"""
SCRIPT = """
    import sys
    from pathlib import Path
    from tests.mutants.__main__ import run
    from tests.mutants.check import Named, Plan

    def run_world(seed):
        from shop.limit import has_room
        assert seed != {failing_world}
        assert has_room(0, 9)

    sys.path.insert(0, ".")
    sys.exit(run(Plan(
        root=Path.cwd(),
        drawn_from=["shop/limit.py"],
        tests_of=lambda path: {tests},
        worlds={worlds},
        run_world=run_world,
        warm=[],
        named=[{named}],
        equivalents={equivalents},
        drawn=10,
        seed=14,
    )))
"""


@pytest.fixture
def run_check(tmp_path):
    """Runs the check over a module; returns the exit code and the lines."""

    def run(test, source=LIMIT, worlds=0, failing_world=-1, named="", equivalents=None):
        (tmp_path / "shop").mkdir()
        (tmp_path / "shop" / "limit.py").write_text(dedent(source))
        (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
        if test:
            (tmp_path / "test_limit.py").write_text(dedent(test))
        script = dedent(SCRIPT).format(
            tests=[["test_limit.py"]] if test else [],
            worlds=worlds,
            failing_world=failing_world,
            named=named,
            equivalents=equivalents or {},
        )
        ended = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.stderr == ""
        return ended.returncode, ended.stdout.splitlines()

    return run


def test_mutants_of_a_tested_module_are_caught(run_check):
    code, lines = run_check(GOOD_TEST)
    assert code == 0
    assert lines[-1].startswith(
        "mutants: 0 named and 3 drawn: 3 caught (0 by a timeout), 0 survived, 0 equivalent: 100.0%"
    )


ENDING_TEST = """
    import os, signal, time

    def test_that_ends_the_check():
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(600)
"""


def test_who_ends_the_check_ends_what_it_runs(run_check):
    """Its output is a pipe: a child that went on would keep it open."""
    code, lines = run_check(ENDING_TEST)
    assert code == 130
    assert lines == ["mutants: ended before it was done"]


def test_module_without_tests_fails_the_check(run_check):
    code, lines = run_check("")
    assert code == 1
    assert lines[-1].startswith("mutants: 0 named and 3 drawn: 0 caught")
    assert "    SURVIVED" in lines


def test_a_check_of_nothing_is_no_success(run_check):
    code, lines = run_check(GOOD_TEST, source="LIMIT = 3\n")
    assert code == 2
    assert lines == ["mutants: none is left to be tried; look at DRAWN and ONLY"]


def test_boundary_that_no_test_watches_fails_the_check_and_is_named(run_check):
    code, lines = run_check(WEAK_TEST)
    assert code == 1
    assert "    shop/limit.py has_room: count < limit -> count <= limit" in lines
    assert "2 caught" in lines[-1]
    assert "66.7% of 3" in lines[-1]


def test_survivor_that_is_shown_to_be_equivalent_does_not_count(run_check):
    key = "shop/limit.py has_room: count < limit -> count <= limit"
    code, lines = run_check(WEAK_TEST, equivalents={key: "for the sake of the argument"})
    assert code == 0
    assert "2 caught (0 by a timeout), 0 survived, 1 equivalent: 100.0% of 2" in lines[-1]


def test_proof_for_code_that_is_gone_fails_the_check(run_check):
    key = "shop/limit.py has_room: count < most -> count <= most"
    code, lines = run_check(GOOD_TEST, equivalents={key: "it was so once"})
    assert code == 1
    assert lines[-1] == key


def test_named_survivor_fails_the_check_even_where_the_share_is_high(run_check):
    many = "".join(f"    def f{n}(a): return a == {n}\n" for n in range(40))
    calls = "".join(
        f"        assert limit.f{n}({n}) and not limit.f{n}({n + 1})\n" for n in range(40)
    )
    test = f"    from shop import limit\n\n    def test_all():\n{calls}"
    named = "Named('shop/limit.py', 'return a == 7', 'return a == 7 or a == 99', '99 is taken')"
    code, lines = run_check(test, source=f"\n{many}", named=named)
    assert code == 1
    assert "1 named and 10 drawn: 10 caught" in lines[-1]
    assert "Survived: shop/limit.py:9" in lines


def test_named_mutant_whose_text_is_gone_fails_the_check(run_check):
    named = "Named('shop/limit.py', 'return count > limit', '', 'the limit is turned round')"
    code, lines = run_check(GOOD_TEST, named=named)
    assert code == 1
    assert "holds its old text 0 times" in lines[0]
    assert "the limit is turned round" in lines[0]


def test_world_catches_what_no_test_does(run_check):
    code, lines = run_check("", source=LIMIT + "\n    assert not has_room(2, 2)\n", worlds=1)
    assert code == 0
    assert "    by world 0: AssertionError " in lines


def test_test_that_fails_anyway_catches_nothing(run_check):
    code, lines = run_check(
        dedent(GOOD_TEST) + "def test_other():\n    assert not has_room(0, 9)\n"
    )
    assert code == 1
    assert lines[-1] == "mutants: the code as it is does not pass: test_limit.py::test_other"


def test_world_that_fails_anyway_catches_nothing(run_check):
    code, lines = run_check("", worlds=2, failing_world=1)
    assert code == 1
    assert lines[-1].startswith("mutants: the code as it is does not pass: world 1: AssertionError")


def test_mutant_that_never_ends_is_caught_by_a_timeout_and_that_is_said(run_check, monkeypatch):
    source = "def down(n):\n    while n > 0:\n        n -= 1\n    return n\n"
    test = "from shop.limit import down\n\ndef test_down():\n    assert down(3) == 0\n"
    monkeypatch.setitem(
        globals(),
        "SCRIPT",
        SCRIPT.replace(
            "    sys.path.insert",
            "    import tests.mutants.forks as f; f.CPU_LIMIT_S = 2\n    sys.path.insert",
        ),
    )
    code, lines = run_check(test, source=source)
    assert code == 0
    assert "    by a timeout" in lines
    assert "(0 by a timeout)" not in lines[-1]


def test_tests_are_chosen_from_what_is_there():
    for folder, tests in LAYERS.items():
        assert (ROOT / folder).is_dir()
        assert [name for name in tests if not (ROOT / name).exists()] == []
    for module, tests in ELSEWHERE.items():
        assert (ROOT / f"{module}.py").is_file()
        assert [name for name in tests if not (ROOT / name).is_file()] == []
    for module, tests in OWN.items():
        assert (ROOT / f"{module}.py").is_file()
        assert [name for name in tests if not (ROOT / f"tests/unit/{name}.py").is_file()] == []


def test_module_is_met_by_its_own_tests_first_then_by_those_of_its_layer():
    own, layer = chosen_tests(ROOT, "coordinator/core/deadlines.py")
    assert own == ["tests/unit/coordinator/core/test_deadlines.py"]
    assert layer[0] == "tests/unit/coordinator/core"
    own, layer = chosen_tests(ROOT, "coordinator/core/assignors/sticky.py")
    assert own == ["tests/unit/coordinator/core/assignors/test_sticky.py"]
    assert chosen_tests(ROOT, "coordinator/daemon/app.py") == []


@pytest.mark.parametrize("module", OWN)
def test_own_tests_are_among_those_of_the_layer_which_are_seen_to_pass(module):
    own, layer = chosen_tests(ROOT, f"{module}.py")
    assert [name for name in own if not name.startswith(tuple(layer))] == []


@pytest.mark.parametrize("named", NAMED, ids=lambda named: named.breaks)
def test_named_mutant_changes_one_place_of_the_code_as_it_is(named):
    source = (ROOT / named.path).read_text()
    assert source.count(named.old) == 1, "the code has changed: change tests/mutants/named.py"
    mutated = source.replace(named.old, named.new)
    compile(mutated, named.path, "exec", dont_inherit=True)
    assert mutated != source


def test_named_mutants_have_names_of_their_own():
    assert len({named.breaks for named in NAMED}) == len(NAMED) >= 30


def test_every_module_that_mutants_are_drawn_from_has_tests_to_meet():
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    files = [*FILES, *(str(path.relative_to(ROOT)) for path in paths)]
    assert [file for file in files if not chosen_tests(ROOT, file)] == []
    assert {"storage", "coordinator/server", "coordinator/web"} <= set(FOLDERS)
    assert FILES == ("coordinator/embed/life.py",)


def test_drawn_mutants_of_the_layers_are_python_and_proofs_are_of_mutants_that_exist():
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    sources = {str(path.relative_to(ROOT)): path.read_bytes() for path in paths}
    every = [mutant for path, source in sources.items() for mutant in mutants_of(path, source)]
    assert len({mutant.key for mutant in every}) == len(every) > 3_000
    assert EQUIVALENTS.keys() <= {mutant.key for mutant in every}, "look at these again"
    for mutant in draw(every, 100, 14):
        compile(mutant.source(sources[mutant.path]), mutant.path, "exec", dont_inherit=True)


NONSENSE = [("DRAWN", "-3"), ("DRAWN", "abc"), ("DRAWN", ""), ("SEED", "x"), ("SEED", "1.5")]


@pytest.mark.parametrize(("name", "text"), NONSENSE)
def test_nonsense_is_refused(monkeypatch, capsys, name, text):
    """DRAWN=-3 would draw all but three."""
    monkeypatch.setenv(name, text)
    assert main() == 2
    told = f"mutants: {name}={text} is refused: give a whole number from 0 on\n"
    assert capsys.readouterr().out == told
