"""``groupkeeper pipeline incidents``: look for incidents, and report them."""

from __future__ import annotations

import os
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupkeeper.coordinator.cli.failing import (
    FAILED,
    NOTHING_MATCHED,
    OPEN_INCIDENTS,
    USAGE,
    fail,
)
from groupkeeper.coordinator.cli.pipeline.options import (
    TABLES_OR_OUT,
    BoundsOption,
    ConfOption,
    JvmCacheOption,
    MasterOption,
    MemoryOption,
    OneGroupOption,
    ReportsDirOption,
    as_settings,
)
from groupkeeper.coordinator.cli.pipeline.spark import (
    archive_in,
    failures_told,
    keep_classes,
    start_spark,
)
from groupkeeper.coordinator.cli.pipeline.tables import input_bytes_of, reports_folder, scope_of

if TYPE_CHECKING:
    from groupkeeper.pipeline.reports.incidents.find import FoundIncidents
    from groupkeeper.pipeline.reports.incidents.webhook import Webhook

SECRET = "GROUPKEEPER_WEBHOOK_SECRET"  # noqa: S105  the name of a variable
"""The environment variable with the key of a webhook's signature."""

DAYS = 2
"""Without --since, the number of last days that are searched. With two days, an incident of the
evening is still found after midnight."""


class FailOn(StrEnum):
    """The values of --fail-on: the lowest severity of an open incident that makes the command exit
    with OPEN_INCIDENTS.
    """

    CRITICAL = "critical"
    WARNING = "warning"


def incidents_command(  # noqa: PLR0913  the options of a command
    tables: Annotated[str, TABLES_OR_OUT] = "groupkeeper-tables",
    to: ReportsDirOption = None,
    bounds: BoundsOption = None,
    group: OneGroupOption = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            "--since",
            metavar="DAY",
            formats=["%Y-%m-%d"],
            help="The first day, UTC. Default: the last two published days.",
        ),
    ] = None,
    textfile: Annotated[
        Path | None,
        typer.Option(
            "--textfile",
            metavar="FILE",
            help="Also write the open incidents as metrics, for the textfile collector of "
            "Prometheus' node exporter: /var/lib/node_exporter/groupkeeper.prom.",
        ),
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(
            "--webhook",
            metavar="URL",
            help="A URL to which the incidents that began or ended since the last call are sent, "
            f"with HTTP POST. If {SECRET} is in the environment, its value signs the requests.",
        ),
    ] = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option("--fail-on", help="Exit 3 if an incident of at least this severity is open."),
    ] = None,
    master: MasterOption = None,
    memory: MemoryOption = "2g",
    conf: ConfOption = None,
    jvm_cache: JvmCacheOption = None,
) -> None:
    """Find groups in trouble in the tables, and report them as incidents.

    An incident is one of these: a partition whose offset does not move, a group that commits
    nothing, messages that were skipped or read again, a lag above your limit (the SLO), too many
    rebalances, or many refused commits of one client. Prints the incidents that have not ended.
    Writes all of them as an HTML page, Parquet, CSV and JSON. Exits 1 if the webhook does not
    accept them.
    """
    folder = reports_folder(tables, to, master)
    hook = _webhook(webhook)
    archive, input_bytes = archive_in(jvm_cache), input_bytes_of(tables, master)
    scope = scope_of(
        start_spark("incidents", master, memory, input_bytes, as_settings(conf), archive),
        tables,
        (since.date() if since else None, None),
        group,
        bounds,
    )
    from groupkeeper.pipeline.reports.incidents import report as page
    from groupkeeper.pipeline.reports.incidents.find import find
    from groupkeeper.pipeline.reports.incidents.textfile import write_textfile
    from groupkeeper.pipeline.reports.report import NoTables, write_report

    try:
        with failures_told():
            scope.require_tables()
            scope = scope if since else scope.of_last_days(DAYS)
            found = find(scope)
            write_report(page.of(found), scope, folder)
    except NoTables as error:
        fail(str(error), NOTHING_MATCHED)
    keep_classes(archive)
    for each in found.open:
        print(line(each))
    if textfile is not None:
        write_textfile(found, textfile)
    if hook is not None:
        _tell(hook, found, folder)
    _fail_on(fail_on, found)


def line(incident: dict[str, object]) -> str:
    """Return an incident as one line of text."""
    place = f"{incident['name']} {incident['subject']}".strip()
    return (
        f"{incident['severity']}  {incident['rule']}  {place}  "
        f"{incident['amount']:,} {incident['unit']}"
    )


def _webhook(url: str | None) -> Webhook | None:
    if url is None:
        return None
    from groupkeeper.pipeline.reports.incidents.webhook import Webhook

    secret = os.environ.get(SECRET)
    try:
        return Webhook(url, secret.encode() if secret else None)
    except ValueError as error:
        fail(str(error), USAGE)


def _tell(webhook: Webhook, found: FoundIncidents, folder: Path) -> None:
    from groupkeeper.pipeline.reports.incidents.webhook import NotDelivered, tell

    try:
        posted = tell(webhook, found, folder / "incidents-told.json")
    except NotDelivered as error:
        fail(f"the webhook was not told: {error}", FAILED)
    typer.echo(f"  posted {posted:,} incidents to the webhook", err=True)


def _fail_on(severity: FailOn | None, found: FoundIncidents) -> None:
    if severity is None:
        return
    from groupkeeper.pipeline.reports.incidents.find import at_least

    if any(each["severity"] in at_least(severity.value) for each in found.open):
        raise typer.Exit(OPEN_INCIDENTS)
