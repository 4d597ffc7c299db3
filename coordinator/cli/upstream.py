"""``groupkeeper upstream``: move groups between groupkeeper and the Kafka cluster behind it.

Plans have the format of ``groupkeeper pipeline migrate``, and are shown, applied, verified and
undone in the same way. These commands need no Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from groupkeeper.coordinator.cli.extra_command import AdminCommand
from groupkeeper.coordinator.cli.failing import FAILED, NOTHING_MATCHED, USAGE, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption
from groupkeeper.coordinator.cli.pipeline import options, plan_view
from groupkeeper.coordinator.cli.pipeline.inputs import now_ms, read_properties
from groupkeeper.coordinator.cli.pipeline.migrate import print_verified
from groupkeeper.coordinator.cli.pipeline.plan_run import (
    Again,
    carry_out,
    check_verify,
    opened_plan,
    refuse_with_plan,
)
from groupkeeper.coordinator.cli.resolve import resolve_command
from groupkeeper.coordinator.cli.upstream_status import status_command

if TYPE_CHECKING:
    from groupkeeper.pipeline.restore.apply import Outcome
    from groupkeeper.pipeline.restore.cluster import Cluster, ClusterEndpoint, ClusterGroup
    from groupkeeper.pipeline.restore.plan import Plan

CLIENT_ID: Final = "groupkeeper-upstream"
"""The client id for reads; writes use the plan's client id."""
GROUPS_AT_ONCE: Final = 100

app = typer.Typer(
    help="Move groups from and to the Kafka cluster behind groupkeeper (gateway mode).",
    no_args_is_help=True,
    rich_markup_mode=None,
)


UpstreamOption = Annotated[
    str | None,
    typer.Option("--upstream", metavar="HOST:PORT", help="A broker of the upstream cluster."),
]
OursOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="HOST:PORT",
        help="The Kafka port of groupkeeper. Default: for a new plan 127.0.0.1:9092. With --plan, "
        "import uses the address in the plan, and export needs none.",
    ),
]
VerifyOption = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Change nothing. Compare the offsets at the target with those in --plan, and report "
        "differences. If the source is named too (import: --upstream, export: --server), also "
        "report offsets that changed there since the plan was made.",
    ),
]
UpstreamConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--upstream-config",
        metavar="FILE",
        help="Like --client-config, for the upstream. Default: --client-config.",
    ),
]
OURS: Final = "127.0.0.1:9092"
_SOURCE_OPTION: Final = {"import": "--upstream", "export": "--server"}


class _Place(NamedTuple):
    """The address of a cluster, or None if no option names it, and the file with the properties for
    its client.
    """

    address: str | None
    config: Path | None

    def endpoint(self, timeout_s: float) -> ClusterEndpoint | None:
        from groupkeeper.pipeline.restore.cluster import ClusterEndpoint

        if self.address is None:
            return None
        return ClusterEndpoint(self.address, read_properties(self.config), timeout_s)


class _Asked(NamedTuple):
    """The options of ``upstream import`` or ``upstream export``. ``name`` is the command."""

    name: str
    groups: Sequence[str]
    plan: Path | None
    undo: bool
    verify: bool
    apply: bool
    out: Path | None
    output: Output
    target_config: Path | None


_IMPORT_HELP: Final = """Copy the committed offsets of groups from the upstream to groupkeeper.

The upstream is the Kafka cluster behind groupkeeper. Prints the changes as a plan, and writes the
plan to a file. Only --apply changes offsets: with the options of a new plan, or later with --plan
FILE. `--plan FILE --undo --apply` undoes a plan that was applied.

A group that has members in groupkeeper is refused. An offset that is already as planned is skipped,
so the command can be repeated. Exits 1 if a group was refused.
"""
_EXPORT_HELP: Final = """Copy the committed offsets of groups from groupkeeper back to the upstream.

The upstream is the Kafka cluster behind groupkeeper. Prints the changes as a plan, and writes the
plan to a file. Only --apply changes offsets: with the options of a new plan, or later with --plan
FILE. `--plan FILE --undo --apply` undoes a plan that was applied.

A group that has members at the upstream is refused. An offset that is already as planned is
skipped, so the command can be repeated. Exits 1 if a group was refused.
"""


@app.command("export", cls=AdminCommand, help=_EXPORT_HELP)
@app.command("import", cls=AdminCommand, help=_IMPORT_HELP)
def move_command(  # noqa: PLR0913  the options of both commands
    context: typer.Context,
    upstream: UpstreamOption = None,
    server: OursOption = None,
    group: options.GroupsOption = None,
    plan: options.PlanOption = None,
    undo: options.UndoOption = False,
    verify: VerifyOption = False,
    apply: options.ApplyOption = False,
    out: options.PlanOutOption = None,
    output: OutputOption = Output.TABLE,
    client_config: options.ClientConfigOption = None,
    upstream_config: UpstreamConfigOption = None,
    timeout: options.TimeoutOption = 30.0,
) -> None:
    """Copy offsets in the direction that the name of the command says."""
    name = str(context.info_name)
    there = _Place(upstream, upstream_config or client_config)
    here = _Place(server or (OURS if plan is None else None), client_config)
    source, target = (there, here) if name == "import" else (here, there)
    asked = _Asked(name, group or (), plan, undo, verify, apply, out, output, target.config)
    _move(asked, source.endpoint(timeout), target.endpoint(timeout))


app.command("resolve")(resolve_command)
app.command("status")(status_command)


def _move(asked: _Asked, source: ClusterEndpoint | None, target: ClusterEndpoint | None) -> None:
    from groupkeeper.pipeline.restore.cluster import ClusterError

    check_verify(asked.plan, verify=asked.verify, undo=asked.undo, apply=asked.apply)
    try:
        if asked.plan is None:
            if source is None or target is None:
                fail("name --upstream HOST:PORT, or an existing plan with --plan FILE", USAGE)
            if source.address == target.address:
                fail("--upstream and --server are the same address: nothing can be copied", USAGE)
            made = _planned(asked, source, target)
            path = asked.out or Path(f"upstream-{asked.name}-{made.id}.json")
            plan_view.write_plan(made, path)
        else:
            refuse_with_plan({"--group": asked.groups, "--out": asked.out})
            made, path = opened_plan(asked.plan, asked.undo), asked.plan
        if target is None:
            target = _Place(made.content.server, asked.target_config).endpoint(30.0)
            assert target is not None, "a plan names its server"
        if asked.verify:
            _verify(made, path, (target, source), asked.output)
            return
    except ClusterError as error:
        fail(str(error), FAILED)
    again = Again(path, target.address, asked.target_config, f"upstream {asked.name}")
    carry_out(made, target, again, asked.apply, asked.output)


def _planned(asked: _Asked, source: ClusterEndpoint, target: ClusterEndpoint) -> Plan:
    from groupkeeper.pipeline.restore.apply import Purpose, make_sealed, plan_groups
    from groupkeeper.pipeline.restore.plan import PlanKind

    with source.open(CLIENT_ID) as here, target.open(CLIENT_ID) as there:
        listed = [each for each in here.groups().values() if _is_wanted(each, asked.groups)]
        if not listed:
            like = f" like {' or '.join(asked.groups)}" if asked.groups else ""
            fail(f"{source.address}: no group{like} there", NOTHING_MATCHED)
        active = sorted(each.group for each in listed if each.state and not each.is_idle)
        plan_view.warn_of_members(active, _SOURCE_OPTION[asked.name])
        names = sorted(each.group for each in listed)
        groups = []
        for start in range(0, len(names), GROUPS_AT_ONCE):
            wanted = here.offsets(names[start : start + GROUPS_AT_ONCE])
            planned, _ = plan_groups(there, wanted, None, lambda partition: False)
            groups += [each for each in planned if each.changes]
    if not groups:
        fail(f"{source.address}: no group there has a committed offset", NOTHING_MATCHED)
    purpose = Purpose(PlanKind.MIGRATION, f"the groups of {source.address}", now_ms())
    return make_sealed(groups, target.address, None, purpose)


def _is_wanted(listed: ClusterGroup, patterns: Sequence[str]) -> bool:
    if listed.type.lower() not in ("", "classic", "consumer"):
        return False
    return not patterns or any(fnmatchcase(listed.group, each) for each in patterns)


def _verify(
    made: Plan,
    path: Path,
    places: tuple[ClusterEndpoint, ClusterEndpoint | None],
    output: Output,
) -> None:
    """Print how the target differs from the plan. If the source is named, also print what changed
    there since the plan was made. Exit with FAILED if there is a difference.
    """
    from groupkeeper.pipeline.restore.apply import verify

    target, source = places
    groups = made.content.groups
    with target.open(CLIENT_ID) as there:
        at_target = list(verify(there, groups))
    at_source: list[Outcome] = []
    if source is not None:
        with source.open(CLIENT_ID) as here:
            at_source = _drift(here, made)
    names = (target.address, None if source is None else source.address)
    print_verified(made, path, names, (at_target, at_source), output)


def _drift(source: Cluster, made: Plan) -> list[Outcome]:
    from groupkeeper.pipeline.restore.drift import drift

    groups = made.content.groups
    now = source.offsets([each.group for each in groups])
    return list(drift(groups, now, made.content.topics, source.owners))
