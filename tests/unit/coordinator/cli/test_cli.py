"""The command line in-process: what it prints and how it exits."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.extras import BRINGS, lacking
from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.daemon.setting_names import setting_names
from groupkeeper.coordinator.version import VERSION
from tests.helpers.printed.printed_docs import ROOT


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch):
    for variable in [v for v in os.environ if v.startswith("GROUPKEEPER_")]:
        monkeypatch.delenv(variable)


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), prog_name="groupkeeper")


def test_version_is_printed():
    result = run("--version")
    assert (result.exit_code, result.output) == (0, f"groupkeeper {VERSION}\n")


def test_without_a_command_the_help_is_shown():
    result = run()
    assert result.exit_code == 0
    assert "check-config" in result.output


def test_an_unknown_command_exits_2_and_names_the_nearest():
    result = run("serv")
    assert result.exit_code == 2
    assert "Did you mean 'serve'?" in result.output


def test_check_config_prints_every_setting_and_its_origin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "g.toml"
    file.write_text("[kafka]\nnode_id = 7\n")
    monkeypatch.setenv("GROUPKEEPER_HTTP__LISTEN", "127.0.0.1:1")
    result = run("check-config", "--config", str(file))
    assert result.exit_code == 0
    lines = {line.split(" = ")[0]: line for line in result.output.splitlines()}
    assert list(lines) == list(setting_names())
    assert lines["kafka.node_id"].split() == ["kafka.node_id", "=", "7", "#", str(file)]
    assert lines["http.listen"].endswith("# GROUPKEEPER_HTTP__LISTEN")
    assert lines["kafka.listen"].endswith("# default")


def test_check_config_prints_relative_paths_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = run("check-config").output
    assert f'storage.url = "sqlite:///{tmp_path}/groupkeeper.db"' in output
    assert f'log.dir = "{tmp_path}/groupkeeper-log"' in output


@pytest.mark.parametrize("url", ["redis://x", "postgresql://x", "sqlite://relative.db"])
def test_check_config_refuses_a_store_that_serve_would_refuse(url, monkeypatch):
    monkeypatch.setenv("GROUPKEEPER_STORAGE__URL", url)
    result = run("check-config")
    assert result.exit_code == 2
    assert "storage.url" in result.stderr.splitlines()[-1]


def test_check_config_hides_passwords(monkeypatch):
    monkeypatch.setenv("GROUPKEEPER_STORAGE__URL", "postgresql://me:hush@db/groups")
    output = run("check-config").output
    assert "postgresql://me:***@db/groups" in output
    assert "hush" not in output


def test_a_daemon_with_wrong_settings_exits_2_with_one_json_line(tmp_path):
    file = tmp_path / "g.toml"
    file.write_text("[kafka]\nlistn = 1\nnode_id = 'x'\n")
    result = run("serve", "--config", str(file))
    assert result.exit_code == 2
    line = json.loads(result.output)
    assert line["event"] == "start_failed"
    assert all(problem.startswith(f"{file}: kafka.") for problem in line["problems"])
    assert line["reason"] == "; ".join(line["problems"])
    assert len(line["problems"]) == 2


def test_the_environment_alone_can_ask_for_the_console_form(tmp_path, monkeypatch):
    monkeypatch.setenv("GROUPKEEPER_LOGGING__FORMAT", "console")
    result = run("serve", "--config", str(tmp_path / "absent.toml"))
    assert result.exit_code == 2
    assert result.output.startswith(f"groupkeeper: {tmp_path}/absent.toml: no such file")


def test_wrong_settings_exit_2_with_one_line_a_problem(tmp_path):
    file = tmp_path / "g.toml"
    file.write_text("[kafka]\nlistn = 1\nnode_id = 'x'\n")
    result = run("check-config", "--config", str(file))
    assert result.exit_code == 2
    lines = result.output.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"groupkeeper: {file}: kafka.") for line in lines)


STOPPED_WHILE_IMPORTING = """
import os, signal, sys
import groupkeeper.__main__ as entry
entry.importlib.util.find_spec = lambda name: os.kill(os.getpid(), signal.{signal})
sys.argv = ["groupkeeper", {command!r}, "--help"]
entry.main()
"""


@pytest.mark.parametrize(
    ("command", "number", "code"),
    [("serve", "SIGTERM", 0), ("serve", "SIGINT", 0), ("check-config", "SIGTERM", -signal.SIGTERM)],
)
def test_a_signal_during_the_imports_ends_a_daemon_cleanly(command, number, code):
    script = STOPPED_WHILE_IMPORTING.format(signal=number, command=command)
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", "")


@pytest.fixture
def _not_installed(monkeypatch):
    """Run from the sources alone, whatever the environment of the tests has."""

    def distribution(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", distribution)


@pytest.mark.usefixtures("_not_installed")
def test_a_job_says_what_is_missing_and_its_help_needs_nothing(monkeypatch):
    monkeypatch.setitem(BRINGS, "pipeline", ("no_such_distribution",))
    asked = CliRunner().invoke(app, ["pipeline", "run", "--help"])
    assert (asked.exit_code, "Usage" in asked.output) == (0, True)
    run = CliRunner().invoke(app, ["pipeline", "run"])
    assert run.exit_code == 2
    advice = f"{sys.executable} -m pip install -e {shlex.quote(f'{ROOT}[pipeline]')}"
    assert f"no_such_distribution: not installed; run: {advice}\n" in run.output
    assert "Java 17 is needed too" in run.output


@pytest.mark.parametrize("arguments", [["restore", "--plan", "p.json"], ["dump-offsets"]])
def test_what_applies_a_plan_needs_kafkas_clients_and_no_spark(monkeypatch, arguments):
    monkeypatch.setitem(BRINGS, "pipeline", ("no_such_distribution",))
    monkeypatch.setitem(BRINGS, "admin", ("no_such_client",))
    asked = ["--server", "127.0.0.1:1", "--out", "d"] if arguments == ["dump-offsets"] else []
    run = CliRunner().invoke(app, ["pipeline", *arguments, *asked])
    assert run.exit_code == 2
    assert "no_such_client: not installed" in run.output
    assert "[admin]" in run.output
    assert "Java" not in run.output


def test_a_daemon_without_its_extra_says_what_installs_it(monkeypatch):
    monkeypatch.setitem(BRINGS, "server", ("no_such_web",))
    run = CliRunner().invoke(app, ["serve"])
    assert run.exit_code == 2
    assert json.loads(run.output)["reason"].startswith("no_such_web: not installed; run: ")


@pytest.mark.parametrize(
    ("told", "command"),
    [
        ({"url": f"file://{ROOT}", "dir_info": {}}, f"install '{ROOT}[server]'"),
        (
            {"url": f"file://{ROOT}", "dir_info": {"editable": True}},
            f"install -e '{ROOT}[server]'",
        ),
        ({"url": f"file://{ROOT}", "vcs_info": {"vcs": "git"}}, f"install '{ROOT}[server]'"),
        ({"url": "file:///gone/w.whl", "archive_info": {}}, f"install -e '{ROOT}[server]'"),
        ({}, f"install -e '{ROOT}[server]'"),
    ],
)
def test_the_command_that_installs_an_extra_names_the_checkout(monkeypatch, told, command):
    class Installed:
        def read_text(self, name: str) -> str | None:
            return {"direct_url.json": json.dumps(told) if told else None}[name]

    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed())
    monkeypatch.setitem(BRINGS, "server", ("no_such_web",))
    assert lacking("server") == (
        f"no_such_web: not installed; run: {sys.executable} -m pip {command}"
    )
