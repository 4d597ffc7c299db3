"""``groupkeeper zookeeper`` without a ZooKeeper: wrong options, and what is not installed."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from groupkeeper.coordinator.cli import extras
from groupkeeper.coordinator.cli.main import app
from tests.helpers.daemon.daemon import free_port


def run(*arguments: str):
    return CliRunner().invoke(app, ["zookeeper", *arguments], prog_name="groupkeeper")


@pytest.mark.parametrize(
    ("missing", "command", "extra"),
    [
        ("kazoo", "groups", "zookeeper"),
        ("kazoo", "migrate", "zookeeper"),
        ("kafka", "migrate", "admin"),
    ],
)
def test_what_is_not_installed_is_named_with_its_extra(monkeypatch, missing, command, extra):
    found = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda n: None if n == missing else found(n))
    result = run(command)
    assert result.exit_code == 2
    assert result.output.startswith(f"groupkeeper: {missing}: not installed; run: ")
    assert f"[{extra}]" in result.output
    assert run(command, "--help").exit_code == 0


def test_other_commands_do_not_need_kafkas_client(monkeypatch):
    found = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda n: None if n == "kafka" else found(n))
    result = run("groups", "--zookeeper", f"127.0.0.1:{free_port()}", "--timeout", "0.2")
    assert result.exit_code == 1
    assert "no ZooKeeper session within 200 ms; is a server running there?" in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("groups", "-z", "zk:x"), "use host1:2181"),
        (("offsets", "g", "-z", "zk//a"), "chroot"),
        (("migrate",), "name --to, or --from"),
        (("migrate", "--to", "a:1", "--from", "b:1"), "leave out one"),
        (("migrate", "--to", "a:1", "--undo"), "need an existing plan"),
        (("migrate", "--to", "a:1", "--map", "x"), "use FROM=TO"),
        (("migrate", "--plan", "no-such-file"), "No such file"),
        (("migrate", "--plan", "p", "--to", "a:1"), "a plan names its target"),
        (("migrate", "--plan", "p", "--verify", "--apply"), "--verify changes nothing"),
        (("migrate", "--plan", "p", "--group", "g"), "leave out --group"),
    ],
)
def test_wrong_options_exit_2_with_one_line(arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert says in result.output
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("login=x", "unknown setting login"),
        ("acl=mine", "neither open nor creator"),
        ("acl=creator", "needs a digest"),
        ("digest=ann", "user:password"),
        ("ssl.ca.location=/no/such/file", "no such file"),
    ],
)
def test_a_wrong_file_of_settings_exits_2_with_one_line(tmp_path, text, says):
    config = tmp_path / "zk.properties"
    config.write_text(text + "\n")
    result = run("groups", "--zookeeper-config", str(config))
    assert result.exit_code == 2, result.output
    assert says in result.output
