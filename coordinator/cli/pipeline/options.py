"""Options that several commands of ``groupkeeper pipeline`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer


def literal(address: str | Path | None) -> str | Path | None:
    """Refuse an address that Spark reads as a pattern: it would write there and read elsewhere."""
    from groupkeeper.pipeline.tables.address import pattern_problem

    if problem := pattern_problem(str(address or "")):
        raise typer.BadParameter(problem)
    return address


def settings(given: list[str] | None) -> list[str]:
    """Refuse what is no setting of Spark."""
    for each in given or ():
        key, is_set, _ = each.partition("=")
        if not key or not is_set:
            raise typer.BadParameter(f"{each} is not KEY=VALUE, such as spark.ui.enabled=true")
    return given or []


def as_settings(given: list[str] | None) -> dict[str, str]:
    """Return settings of Spark by name."""
    return dict(each.split("=", 1) for each in given or ())


_TABLES_HELP: Final = "The directory of tables that `groupkeeper pipeline run` writes."

# --- the event log, the tables, Spark -------------------------------------------------------------

LOG_DIR: Final = typer.Option(
    "--log-dir",
    metavar="DIR",
    callback=literal,
    help="The daemon's log.dir, with its sealed segments.",
)
TABLES: Final = typer.Option("--tables", metavar="DIR", callback=literal, help=_TABLES_HELP)
"""Text, not a Path: it may be the address of an object store."""
TABLES_OR_OUT: Final = typer.Option(
    "--tables", "--out", metavar="DIR", callback=literal, help=_TABLES_HELP
)
"""Commands in which ``--out`` has no other meaning accept it too, as ``run`` does."""

MasterOption = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="The Spark master; default: local."),
]
MemoryOption = Annotated[
    str,
    typer.Option("--memory", metavar="SIZE", help="The memory that Spark may use on this machine."),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        callback=settings,
        help="A setting of Spark, instead of ours; repeatable.",
    ),
]

# --- the history of a group, and the moment ------------------------------------------------------

AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="TIME",
        help="The moment to restore: 2026-11-21T20:15:00Z (no zone: UTC), or 15m for a "
        "quarter of an hour ago (s, m, h, d).",
    ),
]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="The daemon's SQLite file. It has the newest events too. Add --log-dir if its "
        "segments were moved.",
    ),
]
TopicOption = Annotated[
    list[str] | None, typer.Option("--topic", help="Only this topic; repeatable.")
]
AcceptGapsOption = Annotated[
    bool,
    typer.Option("--accept-gaps", help="Plan even if events of the group may be missing."),
]

# --- plans, and the servers that they are for -----------------------------------------------------

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="HOST:PORT",
        help="The coordinator to change; default: the one in the plan.",
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="HOST:PORT",
        help="The cluster that stores the messages. An offset outside the partition's "
        "log there is moved to its nearest end. "
        "Use 'none' if there is no such cluster. Default: the coordinator, if it keeps messages.",
    ),
]
PlanOption = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="An existing plan, instead of a new one."),
]
UndoOption = Annotated[bool, typer.Option("--undo", help="Undo that plan.")]
ApplyOption = Annotated[
    bool, typer.Option("--apply", help="Apply the plan. Without this nothing is changed.")
]
PlanOutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="The file to write the plan to.")
]
ClientConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--client-config",
        metavar="FILE",
        help="Settings for servers that need a login: lines of librdkafka's settings, such as "
        "security.protocol=SASL_SSL.",
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=1, help="How long to wait for servers.")
]
