"""``groupkeeper pipeline export``: copy gold to Delta or Iceberg tables, without Spark and Java.

Gold is the layer of tables from which the reports are made.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupkeeper.coordinator.cli.failing import FAILED, NOTHING_MATCHED, fail
from groupkeeper.coordinator.cli.pipeline.options import DaysOption, first_and_last
from groupkeeper.coordinator.cli.pipeline.tables import say

if TYPE_CHECKING:
    from groupkeeper.pipeline.export.export import Target


class Format(StrEnum):
    """The table formats in which gold can be copied."""

    DELTA = "delta"
    ICEBERG = "iceberg"


def export_command(
    to: Annotated[
        Path,
        typer.Option("--to", metavar="DIR", help="A directory of this machine, for the copies."),
    ],
    format_: Annotated[Format, typer.Option("--format", help="The format of the copies.")],
    tables: Annotated[
        Path,
        typer.Option(
            "--tables",
            metavar="DIR",
            help="The directory of the tables: the --out of `groupkeeper pipeline run`, on this "
            "machine.",
        ),
    ] = Path("groupkeeper-tables"),
    days: DaysOption = None,
) -> None:
    """Copy the gold tables, from which the reports are made, into Delta or Iceberg tables.

    Copies only the days that changed since the last export. If the command was interrupted, run it
    again: it continues. Exits 4 if there are no tables. Needs the extra `export`, and no Java.
    """
    from groupkeeper.pipeline.export.export import NothingToExport, export
    from groupkeeper.pipeline.tables.pointer import UnknownFormat

    try:
        copied = export(tables, to, _target(format_, to), first_and_last(days), say)
    except NothingToExport as error:
        fail(str(error), NOTHING_MATCHED)
    except UnknownFormat as error:
        fail(str(error), FAILED)
    print(f"{copied:,} days of tables copied to {to}")


def _target(format_: Format, to: Path) -> Target:
    if format_ is Format.DELTA:
        from groupkeeper.pipeline.export.delta import DeltaTarget

        return DeltaTarget(to)
    from groupkeeper.pipeline.export.iceberg import IcebergTarget

    return IcebergTarget(to)
