"""``groupkeeper consul``: groups of readers that find each other in Consul."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from groupkeeper.coordinator.cli.consul.options import (
    DEFAULT_ADDRESS,
    AddressOption,
    ConfigOption,
    GroupArgument,
    TimeoutOption,
    run,
    secured,
)
from groupkeeper.coordinator.cli.extra_command import ExtraCommand
from groupkeeper.coordinator.cli.extras import Extra
from groupkeeper.coordinator.cli.failing import NOTHING_MATCHED, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption, print_rows
from groupkeeper.coordinator.cli.plain_text import plain

if TYPE_CHECKING:
    from groupkeeper.clients.readers.message import Message

app = typer.Typer(
    help="Show groups of readers in Consul, and read as a member.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class _ConsulCommand(ExtraCommand):
    needs: ClassVar[Sequence[Extra]] = ("consul",)


@app.command("groups")
def groups_command(
    consul: AddressOption = DEFAULT_ADDRESS,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """List the groups, with how many members each has."""
    from groupkeeper.clients.readers.group_list import list_groups
    from groupkeeper.storage.connections.consul import ConsulClient

    async def listed() -> list[tuple[str, int]]:
        async with ConsulClient(consul, **secured(config)) as client:
            return await list_groups(client)

    print_rows(output, ("GROUP", "MEMBERS"), run(listed, timeout), "no groups")


@app.command("members")
def members_command(
    group: GroupArgument,
    consul: AddressOption = DEFAULT_ADDRESS,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Show which member reads each partition, and at which offset its next reader will begin.

    No member reads a partition whose line has no member. A member whose line has no partition waits
    for one. Exits 4 if there is no such group.
    """
    from groupkeeper.clients.readers.group_list import PartitionRow, describe_group
    from groupkeeper.storage.connections.consul import ConsulClient

    async def described() -> list[PartitionRow]:
        async with ConsulClient(consul, **secured(config)) as client:
            return await describe_group(client, group)

    rows = run(described, timeout)
    if not rows:
        fail(f"there is no group {group!r} in Consul", NOTHING_MATCHED)
    print_rows(output, ("TOPIC", "PARTITION", "MEMBER", "POSITION"), rows, "")


@app.command("read")
def read_command(  # noqa: PLR0913  the options of a command
    group: GroupArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="The number of partitions of the topic.")
    ],
    server: Annotated[
        str, typer.Option("--server", metavar="HOST:PORT", help="Brokers, separated by commas.")
    ] = "127.0.0.1:9092",
    consul: AddressOption = DEFAULT_ADDRESS,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    most: Annotated[
        int | None, typer.Option("--max-messages", min=1, help="End after this many messages.")
    ] = None,
    commit: Annotated[
        bool, typer.Option("--commit", help="Commit the position after the last printed message.")
    ] = False,
) -> None:
    """Join the group, read some of its partitions, and print one message per line.

    The running members of the group hand over these partitions to this command. They get them back
    when the command ends: after --max-messages, or with Ctrl-C. Without --commit, the command
    stores no offsets, so the next reader of these partitions reads the same messages again.
    """
    from groupkeeper.clients.readers.consul_group import ConsulGroup, Scheme

    async def read() -> None:
        member = ConsulGroup(group, consul, Scheme.SPREAD, **secured(config))
        async with member:
            share = await member.new_readers(server, topic, partitions)
            count = 0
            async with share.read() as messages:
                async for message in messages:
                    _print_message(message, output)
                    if commit:
                        await share.commit(message)
                    count += 1
                    if count == most:
                        return

    run(read)


def _print_message(message: Message, output: Output) -> None:
    key, value = (
        None if each is None else each.decode(errors="backslashreplace")
        for each in (message.key, message.value)
    )
    if output is Output.JSON:
        row = message._asdict() | {"key": key, "value": value}
        row["headers"] = [
            (name, None if each is None else each.decode(errors="backslashreplace"))
            for name, each in message.headers
        ]
        print(json.dumps(row), flush=True)
    else:
        texts = ("-" if each is None else plain(each) for each in (key, value))
        print(message.partition, message.offset, *texts, sep="\t", flush=True)


for _command in app.registered_commands:
    _command.cls = _ConsulCommand
