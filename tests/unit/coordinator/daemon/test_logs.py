"""The lines of the daemon's log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from groupkeeper.coordinator.daemon.config import LoggingSettings
from groupkeeper.coordinator.daemon.logs import configure_logging


@pytest.fixture
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configured = structlog.get_config() if structlog.is_configured() else None
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    if configured is not None:
        structlog.configure(**configured)


@pytest.mark.usefixtures("_logging_as_before")
def test_a_sentence_of_a_library_is_no_name_of_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LoggingSettings(format="json"))
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request from %s.", "a peer")
    line = json.loads(capsys.readouterr().err)
    del line["time"]
    assert line == {
        "level": "warning",
        "event": "library_message",
        "message": "Invalid HTTP request from a peer.",
        "logger": "uvicorn.error",
    }


@pytest.mark.usefixtures("_logging_as_before")
def test_a_request_to_consul_is_no_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    """A daemon that keeps its groups in Consul sends two a second without any traffic."""
    configure_logging(LoggingSettings(format="json", level="info"))
    logging.getLogger("httpx2").info("HTTP Request: PUT /v1/txn")
    logging.getLogger("httpx2").warning("a warning")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "a warning"
