"""``groupkeeper upstream import`` and ``export`` between two servers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.testkit.server import SyncGroupkeeperServer

TOPICS = {"orders": 4}


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str, object]]:
    """The addresses of an upstream with two groups, and of a server of ours; and ours itself."""
    monkeypatch.chdir(tmp_path)
    with (
        SyncGroupkeeperServer(topics=TOPICS) as theirs,
        SyncGroupkeeperServer(topics=TOPICS) as ours,
    ):
        theirs.commit("billing-a", {("orders", 0): 41, ("orders", 1): 7})
        theirs.commit("mail", {("orders", 0): 3})
        yield theirs.bootstrap, ours.bootstrap, ours


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["upstream", *arguments], prog_name="groupkeeper")
    assert result.exit_code == code, result.output
    return result.output


def plan_of(told: str) -> str:
    (path,) = set(re.findall(r"upstream-\w+-\w+\.json", told))
    return str(path)


def test_groups_are_imported_after_a_look_at_the_plan(servers) -> None:
    theirs, ours, server = servers
    where = ("--upstream", theirs, "--server", ours)
    told = run("import", *where, "--group", "billing-*")
    assert "Nothing was changed. To apply it: groupkeeper upstream import --plan" in told
    assert server.committed("billing-a") == {}
    plan = plan_of(told)
    run("import", "--plan", plan, "--apply")
    assert server.committed("billing-a") == {("orders", 0): 41, ("orders", 1): 7}
    assert server.committed("mail") == {}
    run("import", "--plan", plan, "--verify", "--upstream", theirs)
    assert "done" in run("import", "--plan", plan, "--apply")
    run("import", "--plan", plan, "--undo", "--apply")
    assert server.committed("billing-a") == {}


def test_groups_are_not_copied_to_where_they_are(servers) -> None:
    theirs, _, _ = servers
    told = run("import", "--upstream", theirs, "--server", theirs, code=2)
    assert "are the same address" in told


def test_groups_go_back_to_the_upstream(servers) -> None:
    theirs, ours, server = servers
    where = ("--upstream", theirs, "--server", ours)
    run("import", *where, "--apply")
    server.commit("mail", {("orders", 0): 9, ("orders", 3): 1})
    told = run("export", *where, "--group", "mail", "--apply", "--output", "json")
    outcomes = json.loads(told[told.index("{") :])
    assert outcomes["applied"] is True
    told = run("import", *where, "--group", "mail")
    assert "there was nothing to do" in told


def test_what_is_wrong_is_told_in_one_line(servers) -> None:
    theirs, ours, _ = servers
    assert "name --upstream" in run("import", "--server", ours, code=2)
    assert "need an existing plan" in run("export", "--upstream", theirs, "--verify", code=2)
    assert "no group like nobody" in run(
        "import", "--upstream", theirs, "--server", ours, "--group", "nobody", code=4
    )
    run("import", "--upstream", "127.0.0.1:1", "--server", ours, "--timeout", "1", code=1)


def test_resolve_needs_a_decision_and_a_gateway(tmp_path: Path) -> None:
    assert "--apply needs --decision" in run("resolve", "--apply", code=2)
    config = tmp_path / "static.toml"
    config.write_text('[storage]\nurl = "memory:"\n')
    assert "not a gateway" in run("resolve", "--config", str(config), code=2)
