"""The wheel, installed beside its dependencies: each import name has one owner.

``coordinator``, ``protocol``, ``storage`` and ``pipeline`` are words that any distribution may use;
a dependency that brought one of them along would overwrite ours, or be overwritten. What else the
wheel brings has to be found there as well: the console script and the pytest plugin.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.__main__ import IMPORT_NAMES
from coordinator.extras import BRINGS
from coordinator.version import VERSION
from tests.helpers.printed_docs import ROOT

pytestmark = pytest.mark.slow

ASK_OWNERS = "import importlib.metadata as m, json; print(json.dumps(m.packages_distributions()))"


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder of the scripts of an environment that holds the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("groupkeeper-*.whl")
    run(sys.executable, "-m", "venv", folder / "env", cwd=folder)
    scripts = folder / "env" / "bin"
    run(
        *pip,
        "--python",
        scripts / "python",
        "install",
        "--no-compile",
        "-c",
        ROOT / "constraints.txt",
        wheel,
        cwd=folder,
    )
    return scripts


USES_THE_PLUGIN = """
import socket

import pytest

@pytest.mark.groupkeeper(topics={"orders": 3})
def test_a_coordinator_is_there(groupkeeper):
    socket.create_connection(("127.0.0.1", groupkeeper.port), timeout=10).close()
    groupkeeper.commit("billing", {("orders", 2): 7})
    assert groupkeeper.committed("billing") == {("orders", 2): 7}
"""


def test_pytest_finds_the_plugin_of_the_installed_wheel(installed, tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    target = ["--python", installed / "python", "install", "--no-compile"]
    run(*pip, *target, "-c", ROOT / "constraints.txt", "pytest", cwd=tmp_path)
    (tmp_path / "test_theirs.py").write_text(USES_THE_PLUGIN)
    strict = ["--strict-markers", "-W", "error", "-p", "no:cacheprovider"]
    said = run(installed / "python", "-m", "pytest", "-v", *strict, "test_theirs.py", cwd=tmp_path)
    assert "plugins: " in said
    assert f"groupkeeper-{VERSION}" in said
    assert "1 passed" in said


def test_each_import_name_has_one_owner(installed, tmp_path):
    owners = json.loads(run(installed / "python", "-c", ASK_OWNERS, cwd=tmp_path))
    assert [owners[name] for name in IMPORT_NAMES] == [["groupkeeper"]] * len(IMPORT_NAMES)
    ours = {name for name, owner in owners.items() if "groupkeeper" in owner}
    assert ours == set(IMPORT_NAMES)


def test_the_wheel_alone_brings_nothing_of_the_server(installed, tmp_path):
    asks = f"import importlib.util as u; print([n for n in {BRINGS['server']} if u.find_spec(n)])"
    assert run(installed / "python", "-c", asks, cwd=tmp_path) == "[]\n"


def test_what_the_console_script_advises_makes_it_run(installed, tmp_path, monkeypatch):
    done = subprocess.run(
        [installed / "groupkeeper", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    told = re.fullmatch(
        r"groupkeeper: [\w, ]+: not installed; run: (.*), in a checkout of groupkeeper\n",
        done.stderr,
    )
    assert told is not None, done.stderr
    monkeypatch.setenv("PIP_CONSTRAINT", str(ROOT / "constraints.txt"))
    run(*shlex.split(told[1]), cwd=ROOT)
    assert run(installed / "groupkeeper", "--version", cwd=tmp_path) == f"groupkeeper {VERSION}\n"


def test_a_file_that_shadows_a_package_is_named_before_anything_is_imported(installed, tmp_path):
    (tmp_path / "storage.py").write_text("raise SystemExit('imported')\n")
    done = subprocess.run(
        [installed / "python", "-m", "coordinator", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"'storage' is taken from {tmp_path / 'storage.py'}" in done.stderr
    assert "Traceback" not in done.stderr
