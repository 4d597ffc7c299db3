"""``groupkeeper pipeline migrate``, ``dump-offsets`` and ``import``: move groups, import
histories.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from groupkeeper.coordinator.cli.failing import FAILED, NOTHING_MATCHED, USAGE, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption
from groupkeeper.coordinator.cli.pipeline import options, plan_view
from groupkeeper.coordinator.cli.pipeline.inputs import now_ms, read_properties
from groupkeeper.coordinator.cli.pipeline.plan_run import (
    Again,
    check_verify,
    opened_plan,
    print_result,
    refuse_with_plan,
)
from groupkeeper.coordinator.cli.pipeline.plan_view import (
    counted,
    counted_have,
    named,
    print_outcomes,
)
from groupkeeper.coordinator.cli.pipeline.restore import SPARK_MEMORY
from groupkeeper.coordinator.cli.pipeline.restoring import NO_DATA, PLANS
from groupkeeper.coordinator.cli.pipeline.spark import failures_told, start_spark
from groupkeeper.coordinator.cli.pipeline.tables import the_only_writer

if TYPE_CHECKING:
    from groupkeeper.pipeline.kafka_history.dump import Dump
    from groupkeeper.pipeline.restore.apply import Outcome
    from groupkeeper.pipeline.restore.cluster import ClusterEndpoint
    from groupkeeper.pipeline.restore.migrate import Migration
    from groupkeeper.pipeline.restore.plan import Plan


def migrate_command(  # noqa: PLR0913  the options of a command
    source: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="HOST:PORT", help="The coordinator that has the groups now."
        ),
    ] = None,
    server: options.ServerOption = None,
    group: options.GroupsOption = None,
    topics: options.MapOption = None,
    data: options.DataOption = None,
    plan: options.PlanOption = None,
    undo: options.UndoOption = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Change nothing. Compare the offsets at the target with those in --plan, and "
            "report differences. With --from, also report offsets that changed at the "
            "source since the plan was made.",
        ),
    ] = False,
    apply: options.ApplyOption = False,
    out: options.PlanOutOption = None,
    output: OutputOption = Output.TABLE,
    client_config: options.ClientConfigOption = None,
    source_config: Annotated[
        Path | None,
        typer.Option(
            "--from-config",
            metavar="FILE",
            help="Like --client-config, for the server of --from. Default: --client-config.",
        ),
    ] = None,
    master: options.MasterOption = None,
    timeout: options.TimeoutOption = 30.0,
) -> None:
    """Move groups to another coordinator: copy their committed offsets and metadata.

    Prints the changes as a plan, and writes the plan to a file. Only --apply changes offsets: with
    the options of a new plan, or later with --plan FILE. `--plan FILE --undo --apply` undoes a plan
    that was applied. The source is not changed.

    A group that has members at the target is refused. Exits 1 if a group was refused or could not
    be planned.
    """
    from groupkeeper.pipeline.restore.cluster import ClusterEndpoint

    properties = read_properties(client_config)
    from_properties = read_properties(source_config) if source_config else properties
    away = None if source is None else ClusterEndpoint(source, from_properties, timeout)
    left_out: list[Outcome] = []
    check_verify(plan, verify=verify, undo=undo, apply=apply)
    if plan is not None:
        if source is not None and not verify:
            fail("with --plan, --from needs --verify: add --verify, or leave out --from", USAGE)
        refuse_with_plan({"--group": group, "--map": topics, "--data": data, "--out": out})
    if plan is None:
        if away is None or server is None:
            fail("name --from and --server, or an existing plan with --plan FILE", USAGE)
        target = ClusterEndpoint(server, properties, timeout)
        migration = _planned(away, target, data, (topics, group), master)
        made = migration.plan
        path = out or Path(f"migration-{made.id}.json")
        plan_view.write_plan(made, path)
        if migration.empty:
            typer.echo(
                f"groupkeeper: {counted_have(len(migration.empty), 'group')} no committed offset "
                "to move: left out",
                err=True,
            )
        plan_view.warn_of_members(migration.active, "--from")
        left_out = migration.left_out()
    else:
        made, path = opened_plan(plan, undo), plan
        target = ClusterEndpoint(server or made.content.server, properties, timeout)
    if verify:
        _verify(made, path, (target, away), master, output)
        return
    if output is Output.TABLE:
        plan_view.print_plan(made)
        print()
    outcomes = _run(made, target, apply, master)
    again = Again(path, target.address, client_config)
    print_result(made, again, outcomes + left_out, apply, output)


def _planned(
    source: ClusterEndpoint,
    target: ClusterEndpoint,
    data: str | None,
    selection: tuple[list[str] | None, list[str] | None],
    master: str | None,
) -> Migration:
    from groupkeeper.pipeline.restore.cluster import ClusterError
    from groupkeeper.pipeline.restore.migrate import MigrationRoute, plan_migration

    renamed, patterns = selection
    records = None if data == NO_DATA else target if data is None else target._replace(address=data)
    route = MigrationRoute(source, target, records, topic_map(renamed or ()))
    try:
        for each in (source, target, records):
            # find out whether the servers answer before the slow start of Spark
            if each is not None:
                each.open(PLANS).close()
        spark = _spark(master)
        typer.echo("groupkeeper: reading the groups", err=True)
        with failures_told():
            migration = plan_migration(spark, route, now_ms(), patterns or ())
    except ClusterError as error:
        fail(str(error), FAILED)
    if not migration.plan.content.groups:
        if not migration.failed:
            like = f" like {' or '.join(patterns)}" if patterns else ""
            fail(
                f"{source.address}: no group there{like} has a committed offset to move",
                NOTHING_MATCHED,
            )
        name, why = next(iter(sorted(migration.failed.items())))
        others = f" (and {len(migration.failed) - 1} more)" if len(migration.failed) > 1 else ""
        fail(f"no group could be planned, no plan was written. {name}{others}: {why}", FAILED)
    return migration


def topic_map(pairs: Any) -> dict[str, str]:
    """Parse pairs of topic names, ``FROM=TO``. Exits with USAGE if one has another form."""
    found = {}
    for pair in pairs:
        name, is_there, to = pair.partition("=")
        if not (name and is_there and to):
            fail(f"--map {pair}: use FROM=TO, two topic names", USAGE)
        found[name] = to
    return found


def _run(made: Plan, target: ClusterEndpoint, apply: bool, master: str | None) -> list[Outcome]:
    """Check whether a plan can be applied at the target or, with ``apply``, apply it. Return the
    outcome of each group.
    """
    from groupkeeper.pipeline.restore.migrate import MigrationStep, run_plan

    step = MigrationStep.APPLY if apply else MigrationStep.CHECK
    spark = _spark(master)
    with failures_told():
        outcomes: list[Outcome] = run_plan(spark, target, made, step)
    return outcomes


def _verify(
    made: Plan,
    path: Path,
    servers: tuple[ClusterEndpoint, ClusterEndpoint | None],
    master: str | None,
    output: Output,
) -> None:
    """Print how the target differs from the plan. If the source is named, also print what changed
    there since the plan was made. Exit with FAILED if there is a difference.
    """
    from groupkeeper.pipeline.restore.migrate import MigrationStep, run_plan, source_drift

    target, source = servers
    spark = _spark(master)
    with failures_told():
        there = run_plan(spark, target, made, MigrationStep.VERIFY)
        here = [] if source is None else source_drift(spark, source, made)
    places = (target.address, None if source is None else source.address)
    print_verified(made, path, places, (there, here), output)


def print_verified(
    made: Plan,
    path: Path,
    places: tuple[str, str | None],
    outcomes: tuple[list[Outcome], list[Outcome]],
    output: Output,
) -> None:
    """Print the outcomes of a comparison with a plan: at the target, and at the source if it is
    named. Exit with FAILED if there is a difference."""
    there, here = outcomes
    target, source = places
    if output is Output.JSON:
        at_source = [msgspec.to_builtins(outcome) for outcome in here]
        print(plan_view.as_json(made, path, there, applied=False, source_outcomes=at_source))
    else:
        plan_view.print_facts_of(made)
        print(f"\nAt the target, {target}:")
        print_outcomes(there, plan_view.AT_TARGET)
        if source is not None:
            print(f"\nAt the source, {source}:")
            print_outcomes(here, plan_view.AT_SOURCE)
        print("\nNothing was changed: --verify only compares.")
    if not all(outcome.is_well for outcome in there + here):
        raise typer.Exit(FAILED)


def dump_command(
    server: Annotated[
        str, typer.Option("--server", metavar="HOST:PORT", help="A broker of the Kafka cluster.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="An empty directory for the dump.")
    ],
    client_config: options.ClientConfigOption = None,
    timeout: options.TimeoutOption = 30.0,
) -> None:
    """Copy the topic __consumer_offsets of a Kafka cluster into files, for `pipeline import`.

    An offset that was committed in a transaction has the time at which the transaction was
    committed. Offsets of aborted and of open transactions are left out; the open ones are reported.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from groupkeeper.pipeline.kafka_history.dump import DumpError, dump
    from groupkeeper.pipeline.restore.cluster import ClusterEndpoint, ClusterError

    bar = Progress(
        TextColumn("reading __consumer_offsets"),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
    )
    source = ClusterEndpoint(server, read_properties(client_config), timeout)
    try:
        source.check()
        with bar:
            task = bar.add_task("read", total=None)
            done = dump(
                source,
                out,
                now_ms(),
                progress=lambda read, of: bar.update(task, completed=read, total=of),
            )
    except (ClusterError, DumpError) as error:
        fail(str(error), FAILED)
    _report_open(done)
    print(
        f"{counted(done.records, 'record')} of {counted(len(done.partitions), 'partition')} in "
        f"{out}. "
        f"Next: groupkeeper pipeline import {out} --tables DIR"
    )


def _report_open(done: Dump) -> None:
    """Print to standard error how many offsets of open transactions were left out of a dump."""
    if not done.open:
        return
    transactions = {each.producer_id for each in done.open}
    groups = sorted({group for each in done.open for group in each.groups})
    typer.echo(
        f"groupkeeper: {counted_have(len(transactions), 'transaction')} not ended: "
        f"{counted(sum(each.offsets for each in done.open), 'offset')} of "
        f"{counted(len(groups), 'group')} ({named(groups)}) left out. dump.json names all of "
        "them; dump again when they have ended",
        err=True,
    )


def import_command(
    dump: Annotated[
        Path, typer.Argument(metavar="DUMP", help="The directory that dump-offsets wrote.")
    ],
    tables: Annotated[str, options.TABLES],
    skip_unreadable: Annotated[
        bool,
        typer.Option(
            "--skip-unreadable",
            help="Leave out records that cannot be read. Without this, the import fails.",
        ),
    ] = False,
    master: options.MasterOption = None,
) -> None:
    """Import the history of a Kafka cluster's groups into bronze, the table of all events.

    Reads the files that `pipeline dump-offsets` wrote. If the same dump is imported again, it
    replaces its first import.
    """
    from groupkeeper.pipeline.kafka_history.dump import DumpError, open_dump

    try:
        open_dump(dump)  # before the slow start of Spark
        from groupkeeper.pipeline.kafka_history.importing import import_dump
        from groupkeeper.pipeline.tables.lake import Lake

        with the_only_writer(tables), failures_told():
            done = import_dump(_spark(master), dump, Lake(tables), skip_unreadable=skip_unreadable)
    except DumpError as error:
        fail(str(error), FAILED)
    print(
        f"{counted(done.events, 'event')} out of {counted(done.records, 'record')} in {tables}, as "
        f"batch {done.batch_id}. Next: groupkeeper pipeline restore --tables {tables}"
    )


@functools.cache
def _spark(master: str | None) -> Any:
    return start_spark("migrate", master, SPARK_MEMORY)
