"""How a command ends when it does not succeed: one line, and a code that scripts can tell apart."""

from __future__ import annotations

from typing import Final, NoReturn

import typer

from groupkeeper.coordinator.cli.plain_text import plain_lines

FAILED: Final = 1
"""It could not be done."""
USAGE: Final = 2
"""Wrong options or settings."""
NOTHING_MATCHED: Final = 4
"""It was done, and there is nothing of the kind that was asked for."""

BUSY: Final = 5
"""Another process is at it; nothing was done."""


def fail(problem: str, code: int) -> NoReturn:
    """Say what happened and end."""
    typer.echo(f"groupkeeper: {plain_lines(problem)}", err=True)
    raise typer.Exit(code)
