"""``groupkeeper pipeline verify`` and ``maintain``: check the tables, and keep them small."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING, Annotated

import typer

from groupkeeper.coordinator.cli.failing import FAILED, NOTHING_MATCHED, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption, print_table
from groupkeeper.coordinator.cli.pipeline.options import (
    TABLES_OR_OUT,
    ConfOption,
    KeepVersionsOption,
    MasterOption,
    MemoryOption,
    RetentionOption,
    SinceOption,
    UntilOption,
    as_settings,
)
from groupkeeper.coordinator.cli.pipeline.spark import failures_told, start_spark
from groupkeeper.coordinator.cli.pipeline.tables import (
    is_nowhere,
    is_of_this_machine,
    the_only_writer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from groupkeeper.pipeline.tables.verify import Check


def verify_command(  # noqa: PLR0913  the options of a command
    tables: Annotated[str, TABLES_OR_OUT] = "groupkeeper-tables",
    since: SinceOption = None,
    until: UntilOption = None,
    master: MasterOption = None,
    memory: MemoryOption = "2g",
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check the tables: compute them again, and compare.

    The tables have three layers: bronze (events), silver (such as sessions and rebalances) and gold
    (figures for reports). Computes silver again from bronze, and gold from silver. Compares the
    number of rows and a checksum of their values. Also reports events that are missing, or there
    twice. Changes nothing. Exits 1 if anything is wrong, 4 if there are no tables, 5 if another job
    writes them.
    """
    if is_nowhere(tables, master):
        fail(f"{tables} does not exist", NOTHING_MATCHED)
    from groupkeeper.pipeline.tables.last_run import bytes_below

    input_bytes = bytes_below(f"{tables}/bronze") if is_of_this_machine(master) else None
    with the_only_writer(tables):
        spark = start_spark("verify", master, memory, input_bytes, as_settings(conf))
        from groupkeeper.pipeline.tables.lake import Lake
        from groupkeeper.pipeline.tables.verify import verify

        first = since.toordinal() if since else 0
        last = until.toordinal() if until else date.max.toordinal()
        with failures_told():
            checks = verify(spark, Lake(tables.rstrip("/")), range(first, last + 1))
    if not checks:
        fail(f"{tables} has no tables of these days", NOTHING_MATCHED)
    _print(checks, output)
    if any(check.problem for check in checks):
        raise typer.Exit(FAILED)


def maintain_command(
    tables: Annotated[str, TABLES_OR_OUT] = "groupkeeper-tables",
    retention_days: RetentionOption = None,
    keep_versions_hours: KeepVersionsOption = 24,
    master: MasterOption = None,
    memory: MemoryOption = "2g",
    conf: ConfOption = None,
) -> None:
    """Merge small files of the tables, and remove old days.

    `pipeline run` does the same at its end; this command does not read the event log. Exits 5 if
    another job writes these tables.
    """
    if is_nowhere(tables, master):
        fail(f"{tables} does not exist", NOTHING_MATCHED)
    with the_only_writer(tables):
        spark = start_spark("maintain", master, memory, None, as_settings(conf))
        from groupkeeper.pipeline.run import maintenance_lines
        from groupkeeper.pipeline.tables.lake import Lake
        from groupkeeper.pipeline.tables.maintenance import maintain
        from groupkeeper.pipeline.tables.retention import parse_retention

        with failures_told():
            done = maintain(
                spark,
                Lake(tables.rstrip("/")),
                retention_days=parse_retention(retention_days or ()),
                keep_versions_hours=keep_versions_hours,
            )
    for line in maintenance_lines(done) or ["nothing has changed"]:
        typer.echo(f"  {line}", err=True)


def _print(checks: Sequence[Check], output: Output) -> None:
    if output is Output.JSON:
        rows = [{**asdict(check), "day": str(check.day)} for check in checks]
        print(json.dumps({"is_right": not any(row["problem"] for row in rows), "checks": rows}))
        return
    names = ["DAY", "TABLE", "ROWS", "EXPECTED", "DOUBLES", "RESULT"]
    print_table(names, [_row(check) for check in checks])
    wrong = sum(1 for check in checks if check.problem)
    print(f"\n{wrong} of {len(checks)} checks failed" if wrong else "\neverything is right")


def _row(check: Check) -> tuple[object, ...]:
    result = check.problem or ("accepted" if check.table == "gap" else "right")
    return check.day, check.table, check.rows, check.expected_rows, check.doubles or "", result
