"""``groupkeeper group list`` and ``groupkeeper group describe``, for any Kafka broker.

``main`` adds ``group owners``, which reads the event log.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from groupkeeper.coordinator.cli.daemon import TimeoutOption
from groupkeeper.coordinator.cli.failing import FAILED, NOTHING_MATCHED, USAGE, fail
from groupkeeper.coordinator.cli.plain_text import plain
from groupkeeper.coordinator.daemon.address import HostPort, parse_address

if TYPE_CHECKING:
    from groupkeeper.coordinator.cli.group_reports import GroupReport, MemberReport
    from groupkeeper.coordinator.cli.group_waiting import AwaitedReport

app = typer.Typer(
    help="Show the groups of any Kafka server, and who owned a partition.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Output(StrEnum):
    """The format in which a result is printed."""

    TABLE = "table"
    JSON = "json"


def _address(text: str) -> HostPort:
    try:
        address = parse_address(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not address.port:
        raise typer.BadParameter(f"{text!r}: no server listens on port 0")
    return address


ServerOption = Annotated[
    HostPort,
    typer.Option(
        "--server", metavar="HOST:PORT", parser=_address, help="groupkeeper, or a Kafka broker."
    ),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="The format of the output.")]
_DEFAULT_SERVER = "127.0.0.1:9092"


@app.command("list")
def list_command(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", "-s", metavar="STATE", help="Only groups in this state; repeatable."
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--type", "-t", metavar="TYPE", help="Only groups of this type; repeatable."),
    ] = None,
    server: ServerOption = _DEFAULT_SERVER,  # type: ignore[assignment]
    output: OutputOption = Output.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """List the groups. Exits 4 if none matches the filters."""
    # imported here: the daemon does not need them
    from groupkeeper.coordinator.cli.broker_client import BrokerCluster, ServerError
    from groupkeeper.coordinator.cli.group_reports import STATES, TYPES, list_groups

    states, types = _known("state", state, STATES), _known("type", kind, TYPES)
    try:
        with BrokerCluster(server, timeout) as cluster:
            groups = list_groups(cluster, states, types)
    except ServerError as error:
        fail(str(error), FAILED)
    if output is Output.JSON:
        print(json.dumps([asdict(group) for group in groups], indent=2))
    elif groups:
        rows = [(g.group, g.type, g.protocol_type, g.state) for g in groups]
        print_table(("GROUP", "TYPE", "PROTOCOL-TYPE", "STATE"), rows)
    if not groups and (states or types):
        fail("no group matches", NOTHING_MATCHED)
    if not groups and output is Output.TABLE:
        typer.echo("no groups", err=True)


@app.command("describe")
def describe_command(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")],
    server: ServerOption = _DEFAULT_SERVER,  # type: ignore[assignment]
    output: OutputOption = Output.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Show a group: its state, its members, its offsets. Exits 4 if it does not exist."""
    from groupkeeper.coordinator.cli.broker_client import BrokerCluster, ServerError
    from groupkeeper.coordinator.cli.group_reports import describe_group

    if not _is_utf8(group):
        fail(f"the group's id {group!r} is not UTF-8; every group id is", USAGE)
    try:
        with BrokerCluster(server, timeout) as cluster:
            described = describe_group(cluster, group)
    except ServerError as error:
        fail(str(error), FAILED)
    if described is None:
        fail(f"there is no group {group!r} on {server}", NOTHING_MATCHED)
    if output is Output.JSON:
        print(json.dumps(described.as_json(), indent=2))
    else:
        _print_group(described)


def _is_utf8(argument: str) -> bool:
    """Return True if an argument of the command was UTF-8. Python replaces all other bytes by
    surrogates, which cannot be encoded.
    """
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _known(option: str, given: list[str] | None, known: Sequence[str]) -> set[str]:
    """Return the states or types that an option names, as they are spelled in ``known``. Exit with
    USAGE if one is unknown.

    As in Kafka's tool, the case does not matter, and one text may name several with commas between.
    """
    by_lower = {name.lower(): name for name in known}
    names = [name.strip() for text in given or () for name in text.split(",")]
    for name in names:
        if name.lower() not in by_lower:
            fail(f"--{option} {name!r}: no such {option}; known are {', '.join(known)}", USAGE)
    return {by_lower[name.lower()] for name in names}


# --- tables ---------------------------------------------------------------------------------------


def _print_group(group: GroupReport) -> None:
    coordinator = group.coordinator
    facts = {
        "GROUP": group.group,
        "TYPE": group.type,
        "STATE": group.state,
        "PROTOCOL": " ".join(filter(None, (group.protocol_type, group.protocol))),
        "COORDINATOR": f"{coordinator.node_id} at {coordinator.address}",
        "MEMBERS": len(group.members),
        "TOTAL-LAG": group.total_lag,
        "TOPICS": " ".join(group.topics),
    }
    if group.patterns:
        facts["PATTERNS"] = " ".join(group.patterns)
    print_facts(facts)
    _print_what_is_wrong(group)
    if group.members:
        print()
        _print_members(group.members)
    if group.offsets:
        print()
        rows = [
            (o.topic, o.partition, o.committed, o.end, o.lag, o.client_id, o.host, o.member_id)
            for o in group.offsets
        ]
        names = "TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CLIENT-ID HOST MEMBER-ID"
        print_table(names.split(), rows)


def _print_what_is_wrong(group: GroupReport) -> None:
    for unknown in group.unknown_topics:
        nearest = "" if unknown.nearest is None else f", nearest: {plain(unknown.nearest)}"
        print_facts({"UNKNOWN": f"no such topic here: {unknown.topic}{nearest}"})
    waiting = group.waiting
    if waiting is None:
        return
    since, until = _time(waiting.since_ms), _time(waiting.until_ms)
    names = [_awaited_name(member) for member in waiting.awaited]
    if waiting.awaited_left_out:
        names.append(f"and {waiting.awaited_left_out} more")
    whom = ", ".join(names) if names else "more members"
    print_facts({"AWAITED": f"{whom}, since {since}, until {until}"})


def _awaited_name(member: AwaitedReport) -> str:
    if not member.client_host:
        return f"{member.member_id} (an id that has not joined yet)"
    return f"{member.member_id} ({member.client_id} at {member.client_host})"


def _time(wall_ms: int) -> str:
    moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _print_members(members: Iterable[MemberReport]) -> None:
    rows = [
        (m.client_id, m.host, _ranges(m.partitions), m.instance_id, m.member_id)
        for m in sorted(members, key=lambda member: (member.client_id, member.member_id))
    ]
    print_table(("CLIENT-ID", "HOST", "ASSIGNED", "INSTANCE-ID", "MEMBER-ID"), rows)


def _ranges(partitions: dict[str, list[int]]) -> str | None:
    """Format partitions as ``orders:0-3,7 clicks:1``. Return None if there are no partitions."""
    return " ".join(f"{t}:{','.join(_runs(p))}" for t, p in partitions.items() if p) or None


def _runs(numbers: list[int]) -> Iterator[str]:
    start = 0
    for at, number in enumerate(numbers):
        if at + 1 == len(numbers) or numbers[at + 1] != number + 1:
            yield str(number) if start == at else f"{numbers[start]}-{number}"
            start = at + 1


def print_facts(facts: Mapping[str, object]) -> None:
    """Print one line per fact: its name, and then its value."""
    for name, value in facts.items():
        print(f"{name:<12} {_cell(value)}")


def print_table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table with numbers aligned right."""
    cells = [names, *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    right = [any(isinstance(row[column], int) for row in rows) for column in range(len(names))]
    for line in cells:
        parts = [
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(line, widths, right, strict=True)
        ]
        sys.stdout.write("  ".join(parts).rstrip() + "\n")


def print_rows(
    output: Output, names: Sequence[str], rows: Sequence[Sequence[object]], nothing: str
) -> None:
    """Print rows as a table, or as a JSON array of objects. If there are no rows and the format is
    a table, print the text ``nothing`` to standard error instead.
    """
    if output is Output.JSON:
        keys = [name.lower().replace("-", "_") for name in names]
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
    elif rows:
        print_table(names, rows)
    else:
        typer.echo(nothing, err=True)


def _cell(value: object) -> str:
    return "-" if value is None or value == "" else plain(str(value))
