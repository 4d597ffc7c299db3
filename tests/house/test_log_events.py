"""Every line of the log has a name in snake_case, and the manual says what it means."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from groupkeeper.coordinator.cli.start_failure import EVENTS
from groupkeeper.coordinator.daemon.logs import LIBRARY_MESSAGE

ROOT = Path(__file__).parents[2]
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}
LOGGERS = {"log", "_log", "logger", "_logger"}
MANUAL = (ROOT / "docs" / "reference" / "log-lines.md").read_text()


def log_calls() -> Iterator[tuple[str, ast.Call]]:
    """Every call of a logger, with its place."""
    for package in ("groupkeeper", "coordinator", "storage", "protocol", "pipeline", "clients"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                owner = node.func.value
                name = getattr(owner, "attr", getattr(owner, "id", ""))
                if node.func.attr in LEVELS and name in LOGGERS:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def events() -> dict[str, str]:
    """Event -> the place of a call that logs it."""
    found = dict.fromkeys(EVENTS, "coordinator/cli/start_failure.py")
    found[LIBRARY_MESSAGE] = "coordinator/daemon/logs.py"
    for place, call in log_calls():
        (event,) = call.args  # further content of a line is in fields, not in the name
        assert isinstance(event, ast.Constant), f"{place}: the name of an event is a constant"
        found[event.value] = place
    return found


def test_the_calls_are_found() -> None:
    assert len(list(log_calls())) > 30


def test_names_of_events_are_snake_case() -> None:
    wrong = {e: place for e, place in events().items() if not re.fullmatch("[a-z]+(_[a-z]+)*", e)}
    assert wrong == {}


def test_the_manual_has_the_level_of_every_line() -> None:
    """Two lines of one name and of different levels are two events."""
    explained = dict(re.findall(r"^\| `([a-z_]+)` \| (\w+) \|", MANUAL, re.MULTILINE))
    wrong = []
    for place, call in log_calls():
        assert isinstance(call.func, ast.Attribute)
        assert isinstance(call.args[0], ast.Constant)
        level = "error" if call.func.attr == "exception" else call.func.attr
        if explained[call.args[0].value] != level:
            wrong.append(f"{place}: {call.args[0].value} has the level {level}")
    assert wrong == []


def test_the_manual_explains_every_event_and_no_other() -> None:
    explained = re.findall(r"^\| `([a-z_]+)` \|", MANUAL, re.MULTILINE)
    assert explained == sorted(set(explained)), "in the order of the alphabet, each once"
    assert set(explained) == set(events())
