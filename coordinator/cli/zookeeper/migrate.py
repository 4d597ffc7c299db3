"""``groupkeeper zookeeper migrate``: move committed offsets between ZooKeeper and a coordinator.

A registry is the groups that consumers keep in ZooKeeper, with their offsets. The plan has the
format of ``groupkeeper pipeline migrate``, and is shown, applied, verified and undone in the same
way.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TypeAlias

import typer

from groupkeeper.coordinator.cli.failing import FAILED, NOTHING_MATCHED, USAGE, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption
from groupkeeper.coordinator.cli.pipeline import options, plan_view
from groupkeeper.coordinator.cli.pipeline.inputs import now_ms, read_properties
from groupkeeper.coordinator.cli.pipeline.migrate import print_verified, topic_map
from groupkeeper.coordinator.cli.pipeline.plan_run import (
    Again,
    check_verify,
    opened_plan,
    print_result,
    refuse_with_plan,
)
from groupkeeper.coordinator.cli.zookeeper.options import (
    DEFAULT_SERVERS,
    ConfigOption,
    ServersOption,
)

if TYPE_CHECKING:
    from groupkeeper.coordinator.cli.zookeeper.registry_target import RegistryTarget
    from groupkeeper.pipeline.restore.apply import Outcome
    from groupkeeper.pipeline.restore.cluster import Cluster
    from groupkeeper.pipeline.restore.plan import Committed, Partition, Plan

CLIENT_ID: Final = "groupkeeper-zookeeper"
"""The client id for reads; writes use the plan's client id."""
NO_DATA: Final = "none"


class Servers(NamedTuple):
    """The addresses and settings of ZooKeeper and of the coordinator."""

    zookeeper: str
    config: Path | None
    kafka: str | None
    client_config: Path | None
    timeout_s: float

    def registry(self) -> RegistryTarget:
        """Return the groups in ZooKeeper. Use the result in a ``with`` block, which connects."""
        from groupkeeper.coordinator.cli.zookeeper.registry_target import RegistryTarget

        return RegistryTarget(self.zookeeper, self.config, self.timeout_s)

    def cluster(self, client_id: str, address: str | None = None) -> Cluster:
        """Return a connection to the coordinator. With ``address``, connect to this server instead,
        with the same settings.
        """
        from groupkeeper.pipeline.restore.cluster import ClusterEndpoint

        where = address or self.kafka
        assert where is not None
        properties = read_properties(self.client_config)
        return ClusterEndpoint(where, properties, self.timeout_s).open(client_id)


def migrate_command(  # noqa: PLR0913  the options of a command
    group: options.GroupsOption = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="HOST:PORT",
            help="The coordinator that gets the offsets, if they are moved from ZooKeeper.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="HOST:PORT",
            help="The coordinator that has the offsets, if they are moved to ZooKeeper.",
        ),
    ] = None,
    shift: Annotated[
        int,
        typer.Option(
            "--shift",
            metavar="N",
            help="With --to, add N to each offset; with --from, subtract N. Use 1 if the library "
            "stores in ZooKeeper the offset of the last message read, instead of the next message.",
        ),
    ] = 0,
    topics: options.MapOption = None,
    data: options.DataOption = None,
    plan: options.PlanOption = None,
    undo: options.UndoOption = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Change nothing. Compare the offsets at the target with those in --plan, and "
            "report differences. With the --to or --from (and --shift) of the plan, also "
            "report offsets that changed at the source since the plan was made.",
        ),
    ] = False,
    apply: options.ApplyOption = False,
    out: options.PlanOutOption = None,
    output: OutputOption = Output.TABLE,
    zookeeper: ServersOption = DEFAULT_SERVERS,
    config: ConfigOption = None,
    client_config: options.ClientConfigOption = None,
    timeout: options.TimeoutOption = 30.0,
) -> None:
    """Copy committed offsets from ZooKeeper to a coordinator (--to), or back (--from).

    Kafka's classic consumers store the offset of the next message in ZooKeeper, as a coordinator
    does. For libraries that store another offset, use --shift.

    Prints the changes as a plan, and writes the plan to a file. Only --apply changes offsets: with
    the options of a new plan, or later with --plan FILE. `--plan FILE --undo --apply` undoes a plan
    that was applied. The source is not changed.

    A group that has members at the target is refused. Exits 1 if a group was refused.
    """
    from groupkeeper.pipeline.restore.cluster import ClusterError

    check_verify(plan, verify=verify, undo=undo, apply=apply)
    _check_places(plan, (to, source), verify)
    servers = Servers(zookeeper, config, to or source, client_config, timeout)
    wanted = _Wanted(group or [], shift, topic_map(topics or ()), data, is_back=source is not None)
    try:
        if plan is None:
            made = _planned(servers, wanted)
            path = out or Path(f"migration-{made.id}.json")
            plan_view.write_plan(made, path)
        else:
            refuse_with_plan({"--group": group, "--data": data, "--out": out})
            made, path = opened_plan(plan, undo), plan
        if verify:
            _verify(made, path, servers, wanted, output)
            return
        if output is Output.TABLE:
            plan_view.print_plan(made)
            print()
        outcomes = _run(made, servers, apply)
    except ClusterError as error:
        fail(str(error), FAILED)
    again = Again(path, None, client_config, "zookeeper migrate", config)
    print_result(made, again, outcomes, apply, output)


def _check_places(plan: Path | None, places: tuple[str | None, str | None], verify: bool) -> None:
    if all(places):
        fail("--to is one way and --from the other: leave out one", USAGE)
    if plan is None and not any(places):
        fail("name --to, or --from for the way back, or an existing plan with --plan FILE", USAGE)
    if plan is not None and any(places) and not verify:
        fail("a plan names its target: leave out --to and --from, or add --verify", USAGE)


class _Wanted(NamedTuple):
    """The options that select groups, and change their offsets and topics."""

    patterns: Sequence[str]
    shift: int
    topics: dict[str, str]
    data: str | None
    is_back: bool

    def names(self, group: str) -> bool:
        return not self.patterns or any(fnmatchcase(group, each) for each in self.patterns)

    @property
    def step(self) -> int:
        """The number to add to each offset of the source."""
        return -self.shift if self.is_back else self.shift


_Side: TypeAlias = "RegistryTarget | Cluster"


def _moved(
    source: _Side, groups: Sequence[str], wanted: _Wanted
) -> tuple[dict[str, dict[Partition, Committed]], list[str]]:
    """Return the offsets of the source by group, each shifted, with renamed topics.

    Also return a line for each offset that was left out, because it would be out of range.
    """
    from groupkeeper.coordinator.cli.zookeeper.registry_target import shifted
    from groupkeeper.pipeline.restore.plan import renamed

    found, left_out = {}, []
    for group, offsets in source.offsets(groups).items():
        moved, without = shifted(offsets, wanted.step)
        left_out += [f"{group}: {each}" for each in without]
        try:
            found[group] = renamed(moved, wanted.topics)
        except ValueError as error:
            fail(f"{group}: {error}", USAGE)
    return {group: offsets for group, offsets in found.items() if offsets}, left_out


def _planned(servers: Servers, wanted: _Wanted) -> Plan:
    from groupkeeper.pipeline.restore.apply import Purpose, make_plan
    from groupkeeper.pipeline.restore.plan import PlanKind

    with ExitStack() as stack:
        registry: _Side = stack.enter_context(servers.registry())
        cluster: _Side = stack.enter_context(servers.cluster(CLIENT_ID))
        source, target = (cluster, registry) if wanted.is_back else (registry, cluster)
        records: _Side | None = None if wanted.is_back else cluster
        if wanted.data == NO_DATA:
            records = None
        elif wanted.data is not None:
            records = stack.enter_context(servers.cluster(CLIENT_ID, wanted.data))
        listed = {name: each for name, each in source.groups().items() if wanted.names(name)}
        moved, left_out = _moved(source, sorted(listed), wanted)
        if left_out:
            many = plan_view.counted(len(left_out), "offset")
            typer.echo(f"groupkeeper: {many} left out ({plan_view.named(left_out)})", err=True)
        active = [name for name in moved if not listed[name].is_idle]
        again = "--from" if wanted.is_back else "--to"
        plan_view.warn_of_members(active, f"{again} and --shift" if wanted.shift else again)
        if not moved:
            like = f" like {' or '.join(wanted.patterns)}" if wanted.patterns else ""
            fail(f"{source.address}: no group{like} has an offset to move", NOTHING_MATCHED)
        by = f", each moved by {wanted.step:+}" if wanted.step else ""
        purpose = Purpose(
            PlanKind.MIGRATION,
            f"the groups of {source.address}{by}",
            now_ms(),
            topics=dict(sorted(wanted.topics.items())),
        )
        return make_plan(target, moved, records, purpose, removes=lambda partition: False)


def _target(made: Plan, servers: Servers, stack: ExitStack) -> _Side:
    """Return an open connection to the server that a plan changes. ``stack`` closes it."""
    from groupkeeper.coordinator.cli.zookeeper.registry_target import SCHEME

    server = made.content.server
    if server.startswith(SCHEME):
        registry = servers._replace(zookeeper=server.removeprefix(SCHEME)).registry()
        return stack.enter_context(registry)
    return stack.enter_context(servers.cluster(made.client_id, server))


def _run(made: Plan, servers: Servers, apply: bool) -> list[Outcome]:
    """Check whether a plan can be applied or, with ``apply``, apply it. Return the outcomes."""
    from groupkeeper.pipeline.restore.apply import apply as apply_groups
    from groupkeeper.pipeline.restore.apply import check

    with ExitStack() as stack:
        target = _target(made, servers, stack)
        return list((apply_groups if apply else check)(target, made.content.groups))


def _verify(made: Plan, path: Path, servers: Servers, wanted: _Wanted, output: Output) -> None:
    """Print how the target differs from the plan. If the source is named, also print what changed
    there since the plan was made. Exit with FAILED if there is a difference.
    """
    from groupkeeper.pipeline.restore.apply import verify
    from groupkeeper.pipeline.restore.drift import drift

    with ExitStack() as stack:
        target = _target(made, servers, stack)
        there = list(verify(target, made.content.groups))
        here: list[Outcome] = []
        place = None
        if servers.kafka is not None:
            source: _Side = stack.enter_context(
                servers.cluster(CLIENT_ID) if wanted.is_back else servers.registry()
            )
            place = source.address
            names = [each.group for each in made.content.groups]
            moved, _ = _moved(source, names, wanted._replace(topics={}))
            now = {name: moved.get(name, {}) for name in names}
            here = list(drift(made.content.groups, now, made.content.topics))
    print_verified(made, path, (target.address, place), (there, here), output)
