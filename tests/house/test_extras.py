"""What an installation brings: its extras, their lower bounds, and code that must not need them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib

from groupkeeper.coordinator.cli.extras import BRINGS
from tests.helpers.printed.printed_docs import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
INSTALLING = (ROOT / "docs" / "start" / "installing.md").read_text()

BLOCKED = "import sys; sys.modules.update(dict.fromkeys({blocked}))\n"
"""None there is a package that cannot be imported, nor found."""

USES_THE_BASE = """
import groupkeeper.coordinator.testkit.pytest_plugin
from groupkeeper import GroupCoordinator, OffsetManager, SyncGroupkeeperServer, open_storage

with SyncGroupkeeperServer(topics={"orders": 1}) as server:
    server.commit("billing", {("orders", 0): 42})
    print(server.committed("billing"))
"""

IS_THE_COMMAND = """
from groupkeeper.__main__ import main
sys.argv = ["groupkeeper", {command!r}]
main()
"""


def brought(requirements: list[str]) -> set[str]:
    """The distributions, and the extras of ours, that some requirements name."""
    named = {re.split(r"[>=<!; ]", each)[0] for each in requirements}
    ours = {each for name in named for each in re.findall(r"^groupkeeper\[(.*)\]$", name)}
    return {name for name in named if not name.startswith("groupkeeper[")} | {
        f"[{each}]" for names in ours for each in names.split(",")
    }


def test_the_table_of_extras_is_that_of_the_project():
    rows = re.findall(r"^\| (none|`\w+`) \| .* \| (.*) \|$", INSTALLING, re.MULTILINE)
    table = {}
    for name, cell in rows:
        named = re.findall(r"`(\w+)`", cell)
        cell = re.sub(r"all of (`\w+`((,| and) `\w+`)*)", "", cell)
        plain = {each.strip() for each in cell.split(",")} - {""}
        table[name.strip("`")] = plain | {f"[{each}]" for each in named}
    assert table.pop("none") == brought(PROJECT["dependencies"])
    assert table == {name: brought(wanted) for name, wanted in EXTRAS.items()}
    assert BRINGS.keys() <= EXTRAS.keys()


def test_the_program_knows_what_each_of_its_extras_brings():
    names = {"kafka-python": "kafka"}
    wanted = {
        extra: {names.get(each, each.replace("-", "_")) for each in brought(EXTRAS[extra])}
        for extra in BRINGS
    }
    wanted["pipeline"] = wanted["pipeline"] - {"[admin]"} | wanted["admin"]
    assert {extra: set(brings) for extra, brings in BRINGS.items()} == wanted


def bounds(requirements: list[str]) -> dict[str, str]:
    found = (re.match(r"([\w-]+)>=([\w.]+)", each) for each in requirements)
    return {each[1]: each[2] for each in found if each is not None}


def test_the_oldest_versions_that_are_tested_are_the_lower_bounds():
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    pinned = dict(line.replace("_", "-").split("==") for line in lines if line[:1] != "#")
    tested = ("server", "admin", "zookeeper", "consul", "patterns")
    named = [each for extra in tested for each in EXTRAS[extra]]
    wanted = bounds([*PROJECT["dependencies"], *named])
    assert {name: pinned.get(name) for name in wanted} == wanted


def test_the_oldest_versions_import_no_file_whose_tests_run_in_another_target():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    deselected = options["addopts"][-1].removeprefix("not ").split(" and not ")
    elsewhere = re.search(r"^ELSEWHERE := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert elsewhere is not None
    assert sorted(elsewhere[1].split("|")) == sorted(deselected)


def run(script: str, blocked: set[str]) -> subprocess.CompletedProcess[str]:
    script = BLOCKED.format(blocked=sorted(blocked)) + script
    return subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_what_the_run_on_the_oldest_versions_leaves_out_exists():
    """pytest says nothing of a test to deselect that is not there. Nothing else may be left out."""
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    assert re.findall(r"LEFT_OUT='(.*?)'", makefile) == ["$(RUN_ELSEWHERE)"]
    assert re.findall(r"DESELECTED='(.*?)'", makefile) == [
        "$(NEED_NEW_LIBRDKAFKA) $(NEED_NEW_TYPER)"
    ]
    (tests,) = re.findall(
        r"^NEED_NEW_LIBRDKAFKA := \$\(addprefix tests/conformance/,(.*)\)$", makefile, re.MULTILINE
    )
    for test in tests.split():
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}" in (ROOT / "tests/conformance" / file).read_text()


def test_without_an_extra_tests_and_hosts_have_all_they_need():
    done = run(USES_THE_BASE, {each for brings in BRINGS.values() for each in brings})
    assert (done.returncode, done.stdout) == (0, "{('orders', 0): 42}\n"), done.stderr


def test_without_the_command_line_the_command_says_in_one_line_what_installs_it():
    done = run(IS_THE_COMMAND.format(command="--version"), {"typer", "click"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("groupkeeper: typer: not installed; run: ")
    assert done.stderr.endswith("[server]'\n")
    assert done.stderr.count("\n") == 1


def test_without_the_command_line_a_daemon_says_so_in_a_line_of_json():
    done = run(IS_THE_COMMAND.format(command="serve"), {"typer", "click"})
    assert (done.returncode, done.stdout) == (2, "")
    line = json.loads(done.stderr)
    assert line["event"] == "start_failed"
    assert line["reason"].startswith("typer: not installed; run: ")
    assert line["reason"].endswith("[server]'")


def test_without_the_command_line_a_job_names_the_extra_that_has_all_of_it():
    done = run(IS_THE_COMMAND.format(command="pipeline"), {"typer", "click"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("[pipeline]'\n")
