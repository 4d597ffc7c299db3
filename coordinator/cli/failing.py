"""Ends a failing command with one line, and with an exit code that scripts can distinguish."""

from __future__ import annotations

from typing import Final, NoReturn

import typer

from groupkeeper.coordinator.cli.plain_text import plain_lines

FAILED: Final = 1
"""The command could not do its work."""
USAGE: Final = 2
"""Wrong options or settings."""
OPEN_INCIDENTS: Final = 3
"""The command did its work, and an incident of the severity of ``--fail-on`` or worse is open."""
NOTHING_MATCHED: Final = 4
"""The command did its work, but nothing matched."""

BUSY: Final = 5
"""Another process does the same work; nothing was done."""


def fail(problem: str, code: int) -> NoReturn:
    """Print the problem to standard error and exit with this code."""
    typer.echo(f"groupkeeper: {plain_lines(problem)}", err=True)
    raise typer.Exit(code)
