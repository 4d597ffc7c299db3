"""House rules that a linter does not know."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib

import pytest

from groupkeeper.coordinator.version import VERSION
from tests.helpers.printed.printed_docs import ROOT

PUBLIC = {"groupkeeper/__init__.py", "pipeline/__init__.py"}
"""What users import from."""
"""Tells the public names."""

ADVISED_LINES = 400
"""A file is one noun; what is longer is two, or says at its head why it is long."""

FOLDERS = ("coordinator", "protocol", "storage", "pipeline", "clients")
"""The sources; each is a link in ``groupkeeper/``, so that all have one import name."""

TEXT = (".py", ".md", ".toml", ".txt", ".sh", ".yml", "Makefile", "run", "Dockerfile")


def _tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        return [name for name in listed.stdout.split("\0") if name]
    # an unpacked archive has no git; its files are the project's
    return [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if ".venv" not in path.parts]


FILES = sorted(n for n in _tracked() if n.endswith(TEXT) and (ROOT / n).is_file())
SOURCES = [
    n
    for n in FILES
    if n.endswith(".py") and n.startswith(("groupkeeper/", *(f"{name}/" for name in FOLDERS)))
]


def test_there_are_files_to_look_at():
    assert "pyproject.toml" in FILES
    assert len(SOURCES) > 20


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_file_is_one_noun_or_says_why_it_is_long(name):
    text = (ROOT / name).read_text()
    lines = text.count("\n")
    assert lines <= ADVISED_LINES or "\nThis file is long because " in (
        ast.get_docstring(ast.parse(text)) or ""
    ), (
        f"{name} has {lines} lines: which two nouns are in it? If it is one, its docstring says "
        "why it is long (docs/style.md#size)"
    )


@pytest.mark.parametrize(
    "name", [n for n in SOURCES if n.endswith("/__init__.py") and n not in PUBLIC]
)
def test_nothing_is_exported_again_from_an_init(name):
    text = (ROOT / name).read_text()
    assert not re.search(r"^\s*(from|import) ", text, re.MULTILINE)


def test_no_file_names_a_place_of_one_machine():
    # built from pieces, so that this file passes its own test
    homes = re.compile("|".join(f"/{place}/" for place in ("home", "root", "Users", "work")))
    found = [name for name in FILES if homes.search((ROOT / name).read_text())]
    assert found == []


def test_no_file_has_both_sides_of_a_merge():
    """A docstring with such lines passes all linters."""
    side = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    assert [name for name in FILES if side.search((ROOT / name).read_text())] == []


def test_no_note_to_do_something_later_stands_alone():
    words = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b")
    found = [name for name in FILES if words.search((ROOT / name).read_text())]
    assert found == []


def test_no_test_is_skipped_or_expected_to_fail():
    marks = re.compile(r"mark\.(" + "|".join(("skip", "xf" + "ail")) + r")\b")
    tests = [name for name in FILES if name.startswith("tests/") and name.endswith(".py")]
    assert [name for name in tests if marks.search((ROOT / name).read_text())] == []


@pytest.mark.parametrize("folder", ["unit", "property", "scenarios", "simulation", "wire"])
def test_deterministic_tests_do_not_sleep_for_real(folder):
    files = {n: (ROOT / n).read_text() for n in FILES if n.startswith(f"tests/{folder}/")}
    assert [name for name, text in files.items() if "time.sleep(" in text] == []
    tests = {name: text for name, text in files.items() if "/test_" in name}
    asleep = [name for name, text in tests.items() if "asyncio.sleep(" in text]
    assert [name for name in asleep if not _runs_on_the_virtual_loop(tests[name])] == []


def _runs_on_the_virtual_loop(text: str) -> bool:
    """Tell whether a test, or a module of the tests that it uses, brings the virtual loop."""
    used = re.findall(r"^from (tests\.[\w.]+) import", text, re.MULTILINE)
    paths = [ROOT / (module.replace(".", "/") + ".py") for module in used]
    texts = [text, *(path.read_text() for path in paths if path.is_file())]
    return any("from tests.helpers.runtime.virtual_loop import" in each for each in texts)


def test_the_version_is_said_once_in_two_places():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION


def test_constraints_pin_exact_versions_and_name_no_address():
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert lines
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in lines)


def test_every_direct_dependency_is_pinned_and_has_its_reason_in_the_decisions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(each for extra in extras for each in extra)]
    names = {re.split(r"[>=;\[ ]", requirement)[0] for requirement in wanted} - {"groupkeeper"}
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    assert names <= pinned
    reasons = (ROOT / "docs" / "decisions" / "0001-dependencies.md").read_text()
    assert [name for name in sorted(names) if f"| {name} |" not in reasons] == []
