"""``groupkeeper group owners``: who owned a partition, as the event log shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from groupkeeper.coordinator.cli.failing import NOTHING_MATCHED, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption, print_table
from groupkeeper.coordinator.cli.store_place import PasswordFileOption
from groupkeeper.coordinator.cli.stored_events import ConfigOption, StoreOption, stored_events

if TYPE_CHECKING:
    from groupkeeper.storage.event_log.partition_owners import PartitionOwner


def owners_command(  # noqa: PLR0913 - the options of a command
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")],
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="The topic's name.")],
    partition: Annotated[
        int,
        typer.Option("--partition", min=0, metavar="N", help="The number of the partition."),
    ],
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", min=1, max=10**9, metavar="N", help="Only the last N owners."
        ),
    ] = 20,
    store: StoreOption = None,
    password_file: PasswordFileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show which members of a group owned a partition, from when to when, and why it moved.

    Prints one line per owner, oldest first. FROM and UNTIL are times in UTC. The present owner has
    no UNTIL. WHY is the reason of the rebalance in which the owner got the partition. If another
    member caused this rebalance, WHY also has the id of that member. ENDED-BY is the reason why the
    owner lost the partition. `assignment` (classic group) and `target_assignment` (consumer group)
    mean that a new assignment took it away. WHY in the next line says what caused that assignment.

    Members of a classic group do not report when they begin and stop reading. So their FROM and
    UNTIL are the times of assignments.

    Reads the event log in the store, with or without a running daemon. Exits 4 if no event names an
    owner of the partition.
    """
    from groupkeeper.storage.event_log.partition_owners import partition_owners

    source = stored_events(store, config, group, password_file)
    with source.reading():
        owners = partition_owners(source.read(), topic, partition)[-lines:]
    source.report_lost({})
    if output is Output.JSON:
        _print_json(owners)
    elif owners:
        _print_owners(owners)
    if not owners:
        fail(f"no event names an owner of partition {partition} of {topic!r}", NOTHING_MATCHED)


def _print_json(owners: Sequence[PartitionOwner]) -> None:
    import msgspec

    print(json.dumps(msgspec.to_builtins(owners), indent=2))


def _print_owners(owners: Sequence[PartitionOwner]) -> None:
    from groupkeeper.coordinator.cli.event_view import moment

    rows = [
        (
            moment(owner.since_ms),
            None if owner.until_ms is None else moment(owner.until_ms),
            owner.client_id,
            owner.client_host,
            owner.generation,
            _why(owner),
            owner.ended_by,
            owner.instance_id,
            owner.member_id,
        )
        for owner in owners
    ]
    names = "FROM UNTIL CLIENT-ID HOST GENERATION WHY ENDED-BY INSTANCE-ID MEMBER-ID"
    print_table(names.split(), rows)


def _why(owner: PartitionOwner) -> str:
    """Return the reasons why the owner got the partition, each once. A reason is followed by the
    member that caused it, if this is not the owner.
    """
    shown = [
        cause.reason
        if cause.member_id in ("", owner.member_id)
        else f"{cause.reason} of {cause.member_id}"
        for cause in owner.causes
    ]
    return ", ".join(dict.fromkeys(shown))
