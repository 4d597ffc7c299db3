"""The option ``--password-file`` of every command that opens a store by its URL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.failing import FAILED
from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.cli.pipeline.landing import Landing
from groupkeeper.coordinator.cli.storage import _new_place
from groupkeeper.coordinator.cli.store_place import StorePlace, store_place

SECRET = "geheim"
VARIABLE = "GROUPKEEPER_STORAGE__PASSWORD_FILE"
URL = "kafka://me@127.0.0.1:1/topic"
"""The address of a store in topics. Without a password it is refused; nothing listens there."""
NEEDED = "set KAFKA_PASSWORD to the password of user 'me'"
COMMANDS = {
    "log tail": ["log", "tail", "--store", URL],
    "group owners": ["group", "owners", "g", "--topic", "t", "--partition", "0", "--store", URL],
    "offsets restore": [
        *("offsets", "restore", "--group", "g", "--as-of", "1m", "--server", "127.0.0.1:1"),
        *("--store", URL),
    ],
    "storage check": ["storage", "check"],
    "storage move": ["storage", "move", "--from", URL, "--to", "sqlite:///new.db"],
}


@pytest.fixture(autouse=True)
def _no_daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GROUPKEEPER_STORAGE__URL", URL)
    monkeypatch.setenv("GROUPKEEPER_STORAGE__APPEND_TIMEOUT_MS", "100")
    monkeypatch.delenv("KAFKA_PASSWORD", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(f"{SECRET}\n")
    return path


def told(*args: str) -> str:
    """Run a command that fails, and return all that it prints."""
    result = CliRunner().invoke(app, args)
    assert result.exit_code == FAILED or NEEDED in result.output, result.output
    return result.output


@pytest.mark.parametrize("args", COMMANDS.values(), ids=COMMANDS)
def test_a_command_reads_the_password_from_the_file_and_does_not_print_it(
    args: list[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert NEEDED in told(*args)
    found = told(*args, "--password-file", str(file))
    monkeypatch.setenv(VARIABLE, str(file))
    for output in (found, told(*args)):
        assert "Connect call failed" in output
        assert NEEDED not in output
        assert SECRET not in output


def test_a_file_that_does_not_exist_is_named(file: Path) -> None:
    result = CliRunner().invoke(app, [*COMMANDS["log tail"], "--password-file", f"{file}-absent"])
    assert result.exit_code == 2
    assert "--password-file" in result.output


def test_the_file_of_the_settings_belongs_to_the_store_of_the_settings(file: Path) -> None:
    config = file.with_name("a.toml")
    config.write_text(f'[storage]\nurl = "{URL}"\npassword_file = "{file}"\n')
    asked = ["log", "tail", "--config", str(config)]
    assert "Connect call failed" in told(*asked)
    assert NEEDED in told(*asked, "--store", URL)


def test_the_first_step_of_pipeline_run_reads_the_file_again_each_time(file: Path) -> None:
    said: list[str] = []
    place = store_place(URL).with_password_file(file)
    landing = Landing(place, file.with_name("log"), said.append)
    landing.land_again()
    file.write_text("\n")
    landing.land_again()
    assert "Connect call failed" in said[0]
    assert "its first line is empty" in said[1]
    assert SECRET not in "".join(said)


@pytest.mark.parametrize(
    ("old", "new", "option", "used"),
    [
        ("sqlite:///a.db", URL, None, "old"),
        (URL, "kafka://h:1/other", None, "old"),
        ("postgresql://me@h/db", URL, None, ""),
        ("postgresql://me@h/db", URL, "new", "new"),
        (URL, "kafka://h:1/other", "new", "new"),
    ],
)
def test_a_move_shows_no_server_the_password_of_another_kind(
    old: str, new: str, option: str | None, used: str
) -> None:
    given = None if option is None else Path(option)
    assert _new_place(new, StorePlace(old, "old"), given) == StorePlace(new, used)


def commands(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command with its name. Typer has classes of its own for click's."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, each in command.commands.items():
        yield from commands(each, f"{path} {name}".strip())


def test_every_command_with_a_store_has_the_option() -> None:
    found = {}
    for name, command in commands(get_command(app)):
        variables = {option: each.envvar for each in command.params for option in each.opts}
        if "--store" in variables or name in ("storage check", "storage move"):
            found[name] = variables.get("--password-file")
    others = ("log verify", "pipeline run", "pipeline restore")
    assert found == dict.fromkeys([*COMMANDS, *others], VARIABLE)
