"""``import groupkeeper`` tells every public name, and imports none before it is asked for."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

import groupkeeper as package
from tests.helpers.printed.printed_docs import ROOT
from tests.house.test_tidy import FILES, FOLDERS

INIT = ROOT / "groupkeeper" / "__init__.py"


def for_checkers() -> set[str]:
    """The names that a type checker or an editor sees."""
    return {
        alias.name
        for block in ast.parse(INIT.read_text()).body
        if isinstance(block, ast.If)
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("name", package.__all__)
def test_a_public_name_resolves(name):
    found = getattr(package, name)
    assert getattr(found, "__name__", name) in (name, "Mapping", "dict")


def test_checkers_and_programs_see_the_same_names():
    assert for_checkers() == set(package.__all__)
    assert set(package.__all__) <= set(dir(package))
    assert len(set(package.__all__)) == len(package.__all__)


def test_what_is_not_public_is_refused_by_its_name():
    with pytest.raises(AttributeError, match="'groupkeeper' has no attribute 'GroupCoordinatr'"):
        package.GroupCoordinatr  # noqa: B018


def test_importing_the_package_alone_imports_nothing_of_what_is_in_it():
    asks = "import sys, groupkeeper; print(*sys.modules)"
    command = [sys.executable, "-c", asks]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {name for name in loaded if name.startswith("groupkeeper")} == {"groupkeeper"}
    heavy = {"asyncio", "msgspec", "sqlite3", "kio", "structlog", "pydantic", "pytest"}
    assert not loaded & heavy


def test_nothing_is_imported_by_the_name_of_its_folder_alone():
    wrong = []
    for name in FILES:
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                imported = [node.module or ""]
            wrong += [f"{name}: {each}" for each in imported if each.split(".")[0] in FOLDERS]
    assert wrong == []


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_the_sources_is_a_link_in_the_package(name):
    link = ROOT / "groupkeeper" / name
    assert link.is_symlink()
    assert str(link.readlink()) == f"../{name}"
