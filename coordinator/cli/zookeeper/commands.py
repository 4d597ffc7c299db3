"""``groupkeeper zookeeper``: groups that are registered in ZooKeeper.

An instance is a running member of such a group.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import typer

from groupkeeper.coordinator.cli.extra_command import ExtraCommand
from groupkeeper.coordinator.cli.extras import Extra
from groupkeeper.coordinator.cli.failing import FAILED, NOTHING_MATCHED, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption, print_rows, print_table
from groupkeeper.coordinator.cli.plain_text import plain
from groupkeeper.coordinator.cli.zookeeper import migrate
from groupkeeper.coordinator.cli.zookeeper.options import (
    DEFAULT_SERVERS,
    ConfigOption,
    GroupArgument,
    InstanceOption,
    PartitionArgument,
    ServersOption,
    SessionOption,
    TimeoutOption,
    TopicArgument,
)
from groupkeeper.coordinator.cli.zookeeper.running import run

if TYPE_CHECKING:
    from groupkeeper.clients.zookeeper.group import InstanceList, RegistryGroup
    from groupkeeper.clients.zookeeper.instance import RegistryInstance
    from groupkeeper.clients.zookeeper.registry import Registry
    from groupkeeper.clients.zookeeper.watches import Watch

app = typer.Typer(
    help="Groups registered in ZooKeeper, as kazoo-go and the classic consumers keep them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

MILLISECONDS: Final = 10**11
"""A timestamp above this many seconds (the year 5138) was written in milliseconds, by Java."""


class _RegistryCommand(ExtraCommand):
    needs: ClassVar[Sequence[Extra]] = ("zookeeper",)


class _MigrateCommand(ExtraCommand):
    needs: ClassVar[Sequence[Extra]] = ("zookeeper", "admin")


def _say(output: Output, text: str, **facts: object) -> None:
    """Print the result as a sentence, or as a JSON object with ``facts``. The output is flushed at
    once, because another program may wait for it."""
    print(plain(text) if output is Output.TABLE else json.dumps(facts), flush=True)


async def _there(registry: Registry, name: str) -> RegistryGroup:
    """Return the group with this name. Exit with NOTHING_MATCHED if there is no such group."""
    group = registry.group(name)
    if not await group.exists():
        fail(f"there is no group {name!r} in ZooKeeper", NOTHING_MATCHED)
    return group


@app.command("groups")
def groups_command(
    zookeeper: ServersOption = DEFAULT_SERVERS,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """List the groups, with how many instances each has."""

    async def listed(registry: Registry) -> list[tuple[str, int]]:
        return [(each.name, len(await each.instances())) for each in await registry.groups()]

    rows = run((zookeeper, config, timeout), listed)
    print_rows(output, ("GROUP", "INSTANCES"), rows, "no groups")


@app.command("instances")
def instances_command(
    group: GroupArgument,
    zookeeper: ServersOption = DEFAULT_SERVERS,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Show the running instances of a group, and what they subscribe to.

    Exits 4 if there is no such group, 1 if the registration of an instance cannot be read.
    """

    async def described(registry: Registry) -> list[tuple[object, ...]]:
        there = await _there(registry, group)
        found = [await _described(each) for each in await there.instances()]
        return [each for each in found if each is not None]

    rows = run((zookeeper, config, timeout), described)
    names = ("INSTANCE", "PATTERN", "SUBSCRIPTION", "REGISTERED")
    if output is Output.TABLE:
        rows = [(i, p, _subscription(s), _moment(t)) for i, p, s, t in rows]
    print_rows(output, names, rows, "no instances")
    if any(row[1] == BROKEN for row in rows):
        raise typer.Exit(FAILED)


BROKEN: Final = "BROKEN"


async def _described(instance: RegistryInstance) -> tuple[object, ...] | None:
    from groupkeeper.clients.zookeeper.errors import BrokenNode, InstanceNotRegistered

    try:
        found = await instance.registration()
    except InstanceNotRegistered:
        return None  # unregistered since it was listed
    except BrokenNode as error:
        typer.echo(f"groupkeeper: {plain(str(error))}", err=True)
        return instance.id, BROKEN, {}, None
    return instance.id, str(found.pattern), dict(found.subscription), found.timestamp


def _subscription(topics: Any) -> str:
    return " ".join(topic if n == 1 else f"{topic}:{n}" for topic, n in topics.items())


def _moment(timestamp: Any) -> str | None:
    if timestamp is None:
        return None
    seconds = timestamp / 1000 if timestamp > MILLISECONDS else timestamp
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


@app.command("owners")
def owners_command(
    group: GroupArgument,
    zookeeper: ServersOption = DEFAULT_SERVERS,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Show which instance has claimed which partition. Exits 4 if there is no such group."""

    async def found(registry: Registry) -> list[tuple[str, int, str]]:
        owners = await (await _there(registry, group)).owners()
        return [(t, p, owner) for t, all_of in owners.items() for p, owner in all_of.items()]

    rows = run((zookeeper, config, timeout), found)
    print_rows(output, ("TOPIC", "PARTITION", "OWNER"), rows, "no partition is claimed")


@app.command("offsets")
def offsets_command(
    group: GroupArgument,
    zookeeper: ServersOption = DEFAULT_SERVERS,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Show the committed offsets of a group. Exits 4 if there is no such group."""

    async def found(registry: Registry) -> list[tuple[str, int, int]]:
        offsets = await (await _there(registry, group)).fetch_all_offsets()
        return [(t, p, offset) for t, all_of in offsets.items() for p, offset in all_of.items()]

    rows = run((zookeeper, config, timeout), found)
    print_rows(output, ("TOPIC", "PARTITION", "OFFSET"), rows, "no offsets")


@app.command("watch")
def watch_command(
    group: GroupArgument,
    zookeeper: ServersOption = DEFAULT_SERVERS,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Print the instances of a group, now and after each change, until Ctrl-C.

    Prints one line each time: the number of instances, and their ids. With -o json the line is a
    list of the ids. The group need not exist.
    """

    async def watch(registry: Registry) -> None:
        watch: Watch[InstanceList]
        async with await registry.group(group).watch_instances() as watch:
            _print_instances(watch.current, output)
            async for instances in watch:
                _print_instances(instances, output)

    run((zookeeper, config, timeout), watch)


def _print_instances(instances: InstanceList, output: Output) -> None:
    ids = [each.id for each in instances]
    if output is Output.JSON:
        print(json.dumps({"instances": ids}), flush=True)
    else:
        print(len(ids), *map(plain, ids), flush=True)


@app.command("claim")
def claim_command(  # noqa: PLR0913  the options of a command
    group: GroupArgument,
    topic: TopicArgument,
    partition: PartitionArgument,
    instance: InstanceOption,
    zookeeper: ServersOption = DEFAULT_SERVERS,
    config: ConfigOption = None,
    session_timeout: SessionOption = 6_000,
    output: OutputOption = Output.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Claim a partition for an instance, and hold the claim until Ctrl-C.

    Until then, no other instance can claim the partition. Exits 1 if another instance has claimed
    it, or when the command loses its session with ZooKeeper.
    """

    async def hold(registry: Registry) -> None:
        await registry.group(group).instance(instance).claim_partition(topic, partition)
        held = f"{topic}-{partition} is claimed by {instance!r} until this command ends (Ctrl-C)"
        _say(output, held, topic=topic, partition=partition, owner=instance)
        raise await registry.wait_lost()

    run((zookeeper, config, timeout), hold, session_timeout)


@app.command("release")
def release_command(  # noqa: PLR0913  the options of a command
    group: GroupArgument,
    topic: TopicArgument,
    partition: PartitionArgument,
    instance: InstanceOption,
    zookeeper: ServersOption = DEFAULT_SERVERS,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Release the claim of an instance on a partition, even if another process made the claim.

    The instance is not notified, and may continue to read. Exits 1 if the instance has not claimed
    the partition.
    """

    async def release(registry: Registry) -> None:
        await registry.group(group).instance(instance).release_partition(topic, partition)

    run((zookeeper, config, timeout), release)
    _say(output, f"{topic}-{partition} is released", topic=topic, partition=partition, owner=None)


@app.command("commit")
def commit_command(  # noqa: PLR0913  the options of a command
    group: GroupArgument,
    topic: TopicArgument,
    partition: PartitionArgument,
    offset: Annotated[
        int, typer.Argument(metavar="OFFSET", help="The offset of the next message to read.")
    ],
    zookeeper: ServersOption = DEFAULT_SERVERS,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Store the offset of a partition. A running instance may overwrite it."""

    async def commit(registry: Registry) -> int | None:
        there = await registry.group(group).fetch_all_offsets()
        await registry.group(group).commit_offset(topic, partition, offset)
        return there.get(topic, {}).get(partition)

    before = run((zookeeper, config, timeout), commit)
    was = "there was none" if before is None else f"it was {before}"
    facts = {"topic": topic, "partition": partition, "offset": offset, "before": before}
    _say(output, f"{topic}-{partition}: {offset} ({was})", **facts)


@app.command("delete")
def delete_command(  # noqa: PLR0913  the options of a command
    group: GroupArgument,
    offsets_only: Annotated[
        bool, typer.Option("--offsets", help="List or delete only the offsets, not the group.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Delete. Without this nothing is changed.")
    ] = False,
    zookeeper: ServersOption = DEFAULT_SERVERS,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Delete a group with its offsets. Without --apply, only list what would be deleted.

    Exits 1 if an instance of the group is running, 4 if there is no such group.
    """

    async def delete(
        registry: Registry,
    ) -> tuple[list[str], list[tuple[str, int, int]], list[str]]:
        there = await _there(registry, group)
        offsets = await there.fetch_all_offsets()
        rows = [(t, p, offset) for t, all_of in offsets.items() for p, offset in all_of.items()]
        running = [each.id for each in await there.instances()]
        others = [] if offsets_only else await there.other_nodes()
        if apply and not (running and offsets_only):
            await (there.reset_offsets() if offsets_only else there.delete())
        return running, rows, others

    running, rows, others = run((zookeeper, config, timeout), delete)
    if rows and output is Output.TABLE:
        print_table(("TOPIC", "PARTITION", "OFFSET"), rows)
    if others and output is Output.TABLE:
        print_table(("OTHER-NODE",), [(node,) for node in others])
    what = f"the offsets of {group!r}" if offsets_only else f"the group {group!r} with its offsets"
    if running:
        fail(f"{group!r} has running instances ({', '.join(running)}): not deleted", FAILED)
    keys = ("topic", "partition", "offset")
    offsets = [dict(zip(keys, row, strict=True)) for row in rows]
    facts = {"group": group, "deleted": apply, "offsets_only": offsets_only, "offsets": offsets}
    facts["other_nodes"] = others
    told = f"Deleted {what}." if apply else f"Nothing was changed. To delete {what}, add --apply"
    _say(output, told, **facts)


for _command in app.registered_commands:
    _command.cls = _RegistryCommand
app.command("migrate", cls=_MigrateCommand)(migrate.migrate_command)
