"""The clients of ``examples/clients``, shown in ``docs/start/clients.md``, run as programs.

Those in Python run in ``make test``, which needs no other language, against the server for tests.
Those in Java, Go and JavaScript run in ``make test-clients`` against the daemon, with the libraries
that the programs beside this file have fetched already: what they name is held to be the same.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.helpers.clients.ecosystem import BUILD_LIMIT_S, CLIENTS, EXAMPLES, PROGRAMS, Unavailable
from tests.helpers.core.group_view import committed
from tests.helpers.daemon.servers import Server
from tests.helpers.daemon.stranger import commands
from tests.helpers.printed.printed_docs import ROOT
from tests.helpers.wire.raw_client import RawClient

IN_PYTHON = sorted(path.name for path in CLIENTS.glob("*.py"))
SAID = "orders 0: 42\n"


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.conformance
def test_there_is_a_client_for_each_python_library_and_each_other_language():
    assert len(IN_PYTHON) == 3
    assert {path.name for path in CLIENTS.iterdir() if path.is_dir()} - {"__pycache__"} == {
        *EXAMPLES
    }


@pytest.mark.conformance
@pytest.mark.groupkeeper(topics={"orders": 12})
@pytest.mark.parametrize("name", IN_PYTHON)
def test_it_joins_commits_and_reads_back_what_it_committed(groupkeeper, name):
    done = _run([sys.executable, str(CLIENTS / name), groupkeeper.bootstrap])
    assert (done.returncode, done.stdout) == (0, SAID), done.stderr
    assert groupkeeper.committed("billing") == {("orders", 0): 42}


@pytest.mark.clients
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=getattr(pytest.mark, kind)) for kind in EXAMPLES]
)
def test_it_does_the_same_in_another_language(own_server: Server, kind: str) -> None:
    try:
        program = EXAMPLES[kind]()
    except Unavailable as lack:
        pytest.skip(str(lack))
    done = _run([*program, f"127.0.0.1:{own_server.port}"])
    assert (done.returncode, done.stdout) == (0, SAID), done.stderr
    with RawClient(own_server.port) as client:
        assert committed(client, "billing") == {("orders", 0): 42}


@pytest.mark.clients
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=getattr(pytest.mark, kind)) for kind in EXAMPLES]
)
def test_the_command_of_the_page_runs_it(own_server: Server, kind: str, tmp_path) -> None:
    """As it is written, in a copy of the checkout; the port alone is another one."""
    try:
        EXAMPLES[kind]()
    except Unavailable as lack:
        pytest.skip(str(lack))
    ignored = shutil.ignore_patterns("target", "node_modules", "__pycache__")
    copy = shutil.copytree(CLIENTS, tmp_path / CLIENTS.relative_to(ROOT), ignore=ignored)
    for file in copy.glob(f"{kind}/*"):
        file.write_text(file.read_text().replace("9092", str(own_server.port)))
    beginning = f"(cd examples/clients/{kind} "
    text = (ROOT / "docs" / "start" / "clients.md").read_text()
    (block,) = [each for each in commands(text) if each.startswith(beginning)]
    done = subprocess.run(
        ["bash", "-ec", block],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert SAID in done.stdout  # beside the colours of Maven
    with RawClient(own_server.port) as client:
        assert committed(client, "billing") == {("orders", 0): 42}


def _jars(file: Path) -> set[tuple[str | None, ...]]:
    found = ElementTree.parse(file).findall(".//{*}dependency")
    return {tuple(part.text for part in dependency) for dependency in found}


def _modules(file: Path) -> set[tuple[str, str]]:
    return set(re.findall(r"^\t(\S+) (v\S+)", file.read_text(), re.MULTILINE))


def _packages(file: Path) -> set[tuple[str, str]]:
    return set(json.loads(file.read_text())["dependencies"].items())


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("file", "libraries"),
    [("java/pom.xml", _jars), ("go/go.mod", _modules), ("node/package.json", _packages)],
)
def test_a_newcomer_is_given_the_libraries_that_were_run(file, libraries):
    named = libraries(CLIENTS / file)
    assert named
    assert named <= libraries(PROGRAMS / file)
