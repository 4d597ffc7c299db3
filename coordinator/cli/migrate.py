"""``groupkeeper pipeline migrate``, ``dump-offsets`` and ``import``: groups come and go."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coordinator.cli.failing import FAILED, NOTHING_MATCHED, USAGE, fail
from coordinator.cli.group import Output, OutputOption
from coordinator.cli.pipeline_options import (
    TABLES,
    ApplyOption,
    ClientConfigOption,
    DataOption,
    MasterOption,
    PlanOption,
    PlanOutOption,
    ServerOption,
    TimeoutOption,
    UndoOption,
)
from coordinator.cli.plain_text import plain
from coordinator.cli.plan_view import print_plan, write_plan
from coordinator.cli.restore import (
    NO_DATA,
    SPARK_MEMORY,
    now_ms,
    opened_plan,
    read_properties,
    restore_command,
    tell,
)
from coordinator.cli.tables import start_spark

if TYPE_CHECKING:
    from pipeline.apply import Outcome
    from pipeline.cluster import Endpoint
    from pipeline.migrate import Migration


def migrate_command(  # noqa: PLR0913  the options of a command
    source: Annotated[
        str | None, typer.Option("--from", metavar="HOST:PORT", help="The coordinator they leave.")
    ] = None,
    server: ServerOption = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="PATTERN", help="Only groups like this: billing-*."),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FROM=TO", help="A topic is called otherwise there."),
    ] = None,
    data: DataOption = None,
    plan: PlanOption = None,
    undo: UndoOption = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Say what is not as the plan has it; with --from, also what moved on there.",
        ),
    ] = False,
    apply: ApplyOption = False,
    out: PlanOutOption = None,
    output: OutputOption = Output.TABLE,
    client_config: ClientConfigOption = None,
    source_config: Annotated[
        Path | None,
        typer.Option("--from-config", metavar="FILE", help="As --client-config, for --from."),
    ] = None,
    master: MasterOption = None,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Bring the groups of one coordinator to another, offsets and metadata as they are.

    Writes a plan and prints it; --apply carries it out, now or later with --plan FILE, many groups
    at a time. Groups with members at the target are refused. --plan FILE --undo --apply takes it
    back. Exits 1 when a group was refused, or could not be planned.
    """
    from pipeline.cluster import Endpoint

    properties = read_properties(client_config)
    from_properties = read_properties(source_config) if source_config else properties
    away = None if source is None else Endpoint(source, from_properties, timeout)
    spark_master = master
    left_out: list[Outcome] = []
    if plan is None:
        if away is None or server is None or undo or verify:
            fail("name --from and --server, or a plan that is made with --plan", USAGE)
        target = Endpoint(server, properties, timeout)
        migration = _planned(away, target, data, (topics, group), spark_master)
        made = migration.plan
        path = out or Path(f"migration-{made.id}.json")
        write_plan(made, path)
        _tell_before(migration)
        left_out = migration.left_out()
    else:
        made, path = opened_plan(plan, undo), plan
        target = Endpoint(server or made.content.server, properties, timeout)
    if output is Output.TABLE:
        print_plan(made)
        print()
    outcomes = _run(made, (target, away), (apply, verify), spark_master)
    tell(made, path, outcomes + left_out, apply and not verify, output)


def _planned(
    source: Endpoint,
    target: Endpoint,
    data: str | None,
    selection: tuple[list[str] | None, list[str] | None],
    master: str | None,
) -> Migration:
    from pipeline.cluster import ClusterError
    from pipeline.migrate import Route, plan_migration

    renamed, patterns = selection
    records = None if data == NO_DATA else target if data is None else target._replace(address=data)
    route = Route(source, target, records, _topic_map(renamed or ()))
    typer.echo("groupkeeper: reading the groups", err=True)
    try:
        migration = plan_migration(_spark(master), route, now_ms(), patterns or ())
    except ClusterError as error:
        fail(str(error), FAILED)
    if not migration.plan.content.groups:
        if not migration.failed:
            fail(
                f"{source.address}: no group there has a committed offset to move", NOTHING_MATCHED
            )
        name, why = next(iter(sorted(migration.failed.items())))
        others = f" (and {len(migration.failed) - 1} more)" if len(migration.failed) > 1 else ""
        fail(f"no group could be planned, no plan was written. {name}{others}: {why}", FAILED)
    return migration


def _topic_map(pairs: Any) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, is_there, to = pair.partition("=")
        if not (name and is_there and to):
            fail(f"--map {pair}: say FROM=TO, two names of topics", USAGE)
        found[name] = to
    return found


def _tell_before(migration: Migration) -> None:
    """Say what a person should know before anything is applied."""
    if migration.empty:
        typer.echo(
            f"groupkeeper: {len(migration.empty)} groups have no committed offset: left out",
            err=True,
        )
    if migration.active:
        some = plain(", ".join(migration.active[:3]))
        typer.echo(
            f"groupkeeper: {len(migration.active)} groups have members at the source "
            f"({some} ...): their offsets move on; stop the consumers "
            "and plan again before you apply, or --verify with --from afterwards",
            err=True,
        )


def _run(
    made: Any,
    servers: tuple[Endpoint, Endpoint | None],
    what: tuple[bool, bool],
    master: str | None,
) -> list[Outcome]:
    """Check, verify or apply a plan."""
    from pipeline.migrate import Step, run_plan, source_drift

    target, source = servers
    apply, verify = what
    step = Step.VERIFY if verify else Step.APPLY if apply else Step.CHECK
    outcomes: list[Outcome] = run_plan(_spark(master), target, made, step)
    if verify and source is not None:
        outcomes += source_drift(_spark(master), source, made)
    return outcomes


def dump_command(
    server: Annotated[
        str, typer.Option("--server", metavar="HOST:PORT", help="A broker of the Kafka cluster.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="An empty directory for the dump.")
    ],
    client_config: ClientConfigOption = None,
) -> None:
    """Read a Kafka cluster's __consumer_offsets into files, as it is."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from pipeline.cluster import Endpoint
    from pipeline.offsets_dump import DumpError, dump

    bar = Progress(
        TextColumn("reading __consumer_offsets"),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
    )
    try:
        with bar:
            task = bar.add_task("read", total=None)
            done = dump(
                Endpoint(server, read_properties(client_config)),
                out,
                now_ms(),
                progress=lambda read, of: bar.update(task, completed=read, total=of),
            )
    except DumpError as error:
        fail(str(error), FAILED)
    print(
        f"{done.records:,} records of {len(done.partitions)} partitions in {out}. "
        f"Next: groupkeeper pipeline import {out} --tables DIR"
    )


def import_command(
    dump: Annotated[Path, typer.Argument(metavar="DUMP", help="What dump-offsets wrote.")],
    tables: Annotated[str, TABLES],
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out records that cannot be read.")
    ] = False,
    master: MasterOption = None,
) -> None:
    """Bring a Kafka cluster's history into bronze; once more changes nothing."""
    from pipeline.lake import Lake
    from pipeline.offsets_dump import DumpError
    from pipeline.offsets_import import import_dump

    try:
        done = import_dump(_spark(master), dump, Lake(tables), skip_unreadable=skip_unreadable)
    except DumpError as error:
        fail(str(error), FAILED)
    print(f"{done.events:,} events out of {done.records:,} records, as batch {done.batch_id}")


@functools.cache
def _spark(master: str | None) -> Any:
    return start_spark("migrate", master, SPARK_MEMORY)


def register(app: typer.Typer) -> None:
    """Add these commands, and restore, to ``groupkeeper pipeline``."""
    app.command("restore")(restore_command)
    app.command("migrate")(migrate_command)
    app.command("dump-offsets")(dump_command)
    app.command("import")(import_command)
