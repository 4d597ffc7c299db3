"""Options that several commands of ``groupkeeper pipeline`` take, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer


def literal(address: str | Path | None) -> str | Path | None:
    """Refuse an address that Spark takes for a pattern: it would write there, and read elsewhere.

    Of tables that it reads and that are not there it says nothing, and so would their command.
    """
    from groupkeeper.pipeline.tables.address import pattern_problem

    if problem := pattern_problem(str(address or "")):
        raise typer.BadParameter(problem)
    return address


_TABLES_HELP: Final = "The tables of `groupkeeper pipeline run`."

# --- the event log, the tables, Spark -------------------------------------------------------------

LOG_DIR: Final = typer.Option(
    "--log-dir",
    metavar="DIR",
    callback=literal,
    help="The daemon's log.dir: its sealed segments.",
)
TABLES: Final = typer.Option("--tables", metavar="DIR", callback=literal, help=_TABLES_HELP)
"""Text, not a Path: it may be the address of an object store."""
TABLES_OR_OUT: Final = typer.Option(
    "--tables", "--out", metavar="DIR", callback=literal, help=_TABLES_HELP
)
"""Where ``--out`` names nothing else, it may be said as for ``run``."""

MasterOption = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="The Spark master; without it, this machine."),
]
MemoryOption = Annotated[
    str, typer.Option("--memory", metavar="SIZE", help="What Spark may take on this machine.")
]

# --- plans, and the servers that they are for -----------------------------------------------------

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="HOST:PORT", help="The coordinator; without it that of the plan."
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="HOST:PORT",
        help="The cluster with the records, whose logs clamp the targets; 'none': there is none. "
        "Without it the coordinator is asked whether it keeps records.",
    ),
]
PlanOption = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="A plan that was made before, instead of a new."),
]
UndoOption = Annotated[bool, typer.Option("--undo", help="Take that plan back.")]
ApplyOption = Annotated[
    bool, typer.Option("--apply", help="Do it. Without this nothing is changed.")
]
PlanOutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Where the plan is written.")
]
ClientConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--client-config",
        metavar="FILE",
        help="How to reach servers that ask who you are: lines of librdkafka's settings, "
        "security.protocol=SASL_SSL.",
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=1, help="How long to wait for servers.")
]
