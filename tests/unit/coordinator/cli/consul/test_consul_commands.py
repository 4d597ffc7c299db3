"""``groupkeeper consul`` without a Consul: wrong options, and what is not installed."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from groupkeeper.coordinator.cli import extras
from groupkeeper.coordinator.cli.main import app
from tests.helpers.daemon.daemon import free_port


def run(*arguments: str):
    return CliRunner().invoke(app, ["consul", *arguments], prog_name="groupkeeper")


@pytest.mark.parametrize("command", ["groups", "members", "read"])
def test_what_is_not_installed_is_named_with_its_extra(monkeypatch, command):
    found = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda n: None if n == "httpx2" else found(n))
    arguments = {"groups": (), "members": ("g",), "read": ("g", "t", "--partitions", "1")}[command]
    result = run(command, *arguments)
    assert result.exit_code == 2
    assert result.output.startswith("groupkeeper: httpx2: not installed; run: ")
    assert "[consul]" in result.output
    assert run(command, "--help").exit_code == 0


def test_a_consul_that_is_not_there_is_told_in_one_line():
    result = run("groups", "--consul", f"127.0.0.1:{free_port()}")
    assert result.exit_code == 1
    assert result.output.startswith("groupkeeper: ConnectError")
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("tokem=x", "unknown setting tokem; known are token"),
        ("ssl.ca.location=no-such-file", "no such file"),
        ("token", "not of the form name=value"),
    ],
)
def test_a_wrong_line_of_the_settings_exits_2_with_one_line(tmp_path, line, says):
    path = tmp_path / "consul.properties"
    path.write_text(line + "\n")
    result = run("groups", "--consul-config", str(path))
    assert result.exit_code == 2
    assert says in result.output
    assert result.output.count("\n") == 1


def test_a_name_that_cannot_be_a_group_exits_2():
    result = run("members", "a/b")
    assert result.exit_code == 2
    assert "cannot name a group" in result.output
