"""Options that several commands of ``groupkeeper pipeline`` share."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from groupkeeper.coordinator.cli.store_place import StorePlace, store_place


def literal(address: str | Path | None) -> str | Path | None:
    """Return the address of a folder as given. Raises BadParameter if it has the form of a pattern.
    Spark would write to exactly this address, but read from all addresses that match it.
    """
    from groupkeeper.pipeline.tables.address import pattern_problem

    if problem := pattern_problem(str(address or "")):
        raise typer.BadParameter(problem)
    return address


def settings(given: list[str] | None) -> list[str]:
    """Return the settings of Spark as given. Raises BadParameter if one is not ``KEY=VALUE``."""
    for each in given or ():
        key, is_set, _ = each.partition("=")
        if not key or not is_set:
            raise typer.BadParameter(f"{each} is not KEY=VALUE, such as spark.ui.enabled=true")
    return given or []


def as_settings(given: list[str] | None) -> dict[str, str]:
    """Return the value of each setting of Spark, by its key. ``given`` has ``KEY=VALUE`` texts."""
    return dict(each.split("=", 1) for each in given or ())


_TABLES_HELP: Final = "The directory of the tables: the --out of `groupkeeper pipeline run`."

# --- the event log, the tables, Spark -------------------------------------------------------------

LOG_DIR: Final = typer.Option(
    "--log-dir",
    metavar="DIR",
    callback=literal,
    help="The daemon's log.dir: the directory with the files of its event log.",
)
TABLES: Final = typer.Option("--tables", metavar="DIR", callback=literal, help=_TABLES_HELP)
"""The option ``--tables``. Its value is text, because it may be the address of an object store."""
TABLES_OR_OUT: Final = typer.Option(
    "--tables", "--out", metavar="DIR", callback=literal, help=_TABLES_HELP
)
"""The option ``--tables``, which also has the name ``--out``, as in ``pipeline run``. It is for
commands in which ``--out`` has no other meaning.
"""

MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="The Spark cluster that does the work. Default: `local`, Spark on this machine.",
    ),
]
MemoryOption = Annotated[
    str,
    typer.Option("--memory", metavar="SIZE", help="The memory that Spark may use on this machine."),
]
NO_CACHE = Path("off")
JvmCacheOption = Annotated[
    Path | None,
    typer.Option(
        "--jvm-cache",
        metavar="DIR",
        envvar="GROUPKEEPER_JVM_CACHE",
        help="A directory for an archive of Spark's Java classes (200 MB), with which later "
        "commands start faster. The first command with this option writes the archive. Without "
        "this option, the sixth command writes it to ~/.cache/groupkeeper/jvm. `off` uses none.",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        callback=settings,
        help="A setting of Spark, such as spark.ui.enabled=true. It replaces the value that "
        "groupkeeper sets. Repeatable.",
    ),
]


def days_problem(text: str | None) -> str | None:
    """Return the text. Raises BadParameter if it is neither a day nor two days in order, A..B."""
    try:
        first_and_last(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}: write 2026-11-21 or 2026-11-21..2026-11-25") from error
    return text


def first_and_last(text: str | None) -> tuple[date, date]:
    """Return the first and the last day that an option names. Without a text, return the first and
    the last day that Python knows.

    Raises ValueError if the text is neither a day nor ``A..B``, two days in order.
    """
    if text is None:
        return date.min, date.max
    first, _, last = text.partition("..")
    found = date.fromisoformat(first), date.fromisoformat(last or first)
    if found[0] > found[1]:
        raise ValueError(f"{found[0]} is after {found[1]}")
    return found


DaysOption = Annotated[
    str | None,
    typer.Option(
        "--days",
        metavar="A..B",
        callback=days_problem,
        help="Only these days, UTC, both included: 2026-11-21..2026-11-25, or one day.",
    ),
]
SinceOption = Annotated[
    datetime | None,
    typer.Option("--since", metavar="DAY", formats=["%Y-%m-%d"], help="The first day, UTC."),
]
UntilOption = Annotated[
    datetime | None,
    typer.Option("--until", metavar="DAY", formats=["%Y-%m-%d"], help="The last day, UTC."),
]
BoundsOption = Annotated[
    Path | None,
    typer.Option(
        "--bounds",
        metavar="FILE",
        help="A TOML file with your own bounds for the rules that find incidents, such as "
        "slo_lag = 20_000.",
    ),
]


def layers(given: list[str] | None) -> list[str]:
    """Return the texts as given. Raises BadParameter if one is not a layer of tables and a number
    of days (``gold=730``).
    """
    from groupkeeper.pipeline.tables.retention import parse_retention

    try:
        parse_retention(given or ())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return given or []


_LOG: Final = "log="
_ALL_DAYS: Final = -1


def layers_and_log(given: list[str] | None) -> list[str]:
    """Return the texts as given. Raises BadParameter if one is neither for ``layers`` nor the
    number of days that files are kept (``log=90``, or ``log=-1`` for all files).
    """
    of_log = [each for each in given or () if each.startswith(_LOG)]
    for each in of_log:
        days = each.removeprefix(_LOG)
        if days != str(_ALL_DAYS) and not (days.isdecimal() and int(days)):
            raise typer.BadParameter(f"{each}: use log=DAYS with at least one day, or log=-1")
    layers([each for each in given or () if each not in of_log])
    return given or []


def days_of_log(given: list[str] | None) -> tuple[int | None, list[str]]:
    """Return the days that files are kept, and the texts that are for layers of tables. The days
    are None if no text names them. The last of several texts counts.
    """
    of_log = [each for each in given or () if each.startswith(_LOG)]
    others = [each for each in given or () if each not in of_log]
    return (int(of_log[-1].removeprefix(_LOG)) if of_log else None), others


RunRetentionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--retention-days",
        metavar="LAYER=DAYS",
        callback=layers_and_log,
        help="Remove days that are older than this from the tables of a layer (bronze, silver, "
        "gold): gold=730. Default: keep all. With --store, log=90 deletes the files that the "
        "command has written in --log-dir, after the tables have their events. Default: log=30; "
        "log=-1 keeps all. Repeatable.",
    ),
]
RetentionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--retention-days",
        metavar="LAYER=DAYS",
        callback=layers,
        help="Remove days that are older than this from the tables of a layer (bronze, silver, "
        "gold): gold=730. Repeatable. Default: keep all.",
    ),
]
KeepVersionsOption = Annotated[
    float,
    typer.Option(
        "--keep-versions-hours",
        metavar="HOURS",
        min=0,
        help="How long the files of replaced tables stay on disk for queries that still read them. "
        "Choose more than the longest query takes.",
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
    StorePlace | None,
    typer.Option(
        "--store",
        metavar="FILE|URL",
        parser=store_place,
        help="Read the history from the daemon's store: its SQLite file, or its URL. This "
        "includes the files of its event log, and the newest events, which are in no file "
        "yet. Add --log-dir if the files were moved to another directory.",
    ),
]
ReportsDirOption = Annotated[
    Path | None,
    typer.Option(
        "--to",
        metavar="DIR",
        help="The directory to which the reports are written. Default: <tables>/reports.",
    ),
]
OneGroupOption = Annotated[
    str | None, typer.Option("--group", metavar="GROUP", help="Only this group.")
]
RestoredGroupOption = Annotated[
    str | None, typer.Option("--group", metavar="GROUP", help="The group to restore.")
]
TopicOption = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic; repeatable.")
]
AcceptGapsOption = Annotated[
    bool,
    typer.Option("--accept-gaps", help="Make the plan even if events of the group may be missing."),
]

# --- plans, and the servers that they are for -----------------------------------------------------

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="HOST:PORT",
        help="The coordinator whose offsets the plan changes. A new plan needs it. With --plan, "
        "the default is the coordinator that the plan names.",
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="HOST:PORT",
        help="A broker of the cluster that stores the messages. If an offset is before the start "
        "or after the end of its partition there, the plan uses that start or end instead. "
        "Default: the coordinator, if it stores messages. With 'none', no offset is "
        "adjusted.",
    ),
]
PlanOption = Annotated[
    Path | None,
    typer.Option(
        "--plan", metavar="FILE", help="Use the plan in this file, and do not make a new one."
    ),
]
GroupsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="PATTERN",
        help="Only groups whose id matches the pattern, such as 'billing-*'. Repeatable.",
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="FROM=TO",
        help="The topic FROM at the source is called TO at the target. Its offsets are written "
        "under this name. Repeatable.",
    ),
]
UndoOption = Annotated[
    bool,
    typer.Option(
        "--undo", help="Undo the plan of --plan. Without --apply, only show what that would change."
    ),
]
ApplyOption = Annotated[
    bool, typer.Option("--apply", help="Apply the plan. Without this nothing is changed.")
]
PlanOutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="The file for the new plan; it must not exist. Default: a file in the current "
        "directory, with the id of the plan in its name.",
    ),
]
ClientConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--client-config",
        metavar="FILE",
        help="A file with the login and TLS for servers that need them: one setting of librdkafka "
        "per line, such as security.protocol=SASL_SSL.",
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", min=1, help="How long to wait for each answer of a server."
    ),
]
