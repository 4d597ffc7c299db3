"""The wheel, installed beside its dependencies: all of ours is found as ``groupkeeper``.

``clients``, ``coordinator``, ``protocol``, ``storage`` and ``pipeline`` are words that any project
may use for folders of its own. What else the wheel brings has to be found there as well: the
console script and the pytest plugin.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from groupkeeper.coordinator.cli.extras import BRINGS
from groupkeeper.coordinator.version import VERSION
from tests.helpers.printed.printed_docs import ROOT
from tests.house.test_tidy import FOLDERS

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


THEIRS = """
import clients.own, coordinator.own, pipeline.own, protocol.own, storage.own

def test_their_folders_are_theirs(groupkeeper):
    owns = [clients.own, coordinator.own, pipeline.own, protocol.own, storage.own]
    names = ["clients", "coordinator", "pipeline", "protocol", "storage"]
    assert [each.NAME for each in owns] == names
"""


def test_pytest_finds_the_plugin_in_a_project_that_has_folders_of_our_names(installed, tmp_path):
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "own.py").write_text(f"NAME = {name!r}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    target = ["--python", installed / "python", "install", "--no-compile"]
    run(*pip, *target, "-c", ROOT / "constraints.txt", "pytest", cwd=tmp_path)
    (tmp_path / "test_plugin.py").write_text(USES_THE_PLUGIN)
    (tmp_path / "test_theirs.py").write_text(THEIRS)
    strict = ["--strict-markers", "-W", "error", "-p", "no:cacheprovider"]
    said = run(installed / "python", "-m", "pytest", "-v", *strict, cwd=tmp_path)
    assert "plugins: " in said
    assert f"groupkeeper-{VERSION}" in said
    assert "2 passed" in said


def test_all_of_ours_has_one_import_name_of_which_we_are_the_only_owner(installed, tmp_path):
    owners = json.loads(run(installed / "python", "-c", ASK_OWNERS, cwd=tmp_path))
    assert owners["groupkeeper"] == ["groupkeeper"]
    assert [name for name, owner in owners.items() if "groupkeeper" in owner] == ["groupkeeper"]


def test_the_source_distribution_holds_all_that_the_wheel_does(installed, tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path]
    run(*build, cwd=ROOT)
    (wheel,) = installed.parents[1].glob("*.whl")
    with zipfile.ZipFile(wheel) as made:
        wanted = {name for name in made.namelist() if name.startswith("groupkeeper/")}
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as sources:
        held = {name.partition("/")[2] for name in sources.getnames()}
    assert len(wanted) > 200
    assert wanted - held == set()


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


def test_no_folder_of_a_project_is_taken_for_one_of_ours(installed, tmp_path):
    script = "from groupkeeper import GroupCoordinator, GroupkeeperServer; import storage"
    (tmp_path / "storage.py").write_text("print('theirs')\n")
    assert run(installed / "python", "-c", script, cwd=tmp_path) == "theirs\n"
