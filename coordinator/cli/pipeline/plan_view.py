"""Prints a plan and its outcomes, for people and for programs. Reads and writes plan files.

A plan has changes of committed offsets, of a restore or a migration. The outcome of a group says
whether its changes were made.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import typer

from groupkeeper.coordinator.cli.failing import FAILED, USAGE, fail
from groupkeeper.coordinator.cli.group import print_facts, print_table
from groupkeeper.coordinator.cli.plain_text import plain

if TYPE_CHECKING:
    from groupkeeper.pipeline.restore.apply import Outcome
    from groupkeeper.pipeline.restore.plan import Change, Plan

ROWS_SHOWN: Final = 100
"""The largest number of changes of a plan that are printed. The plan's file has all of them."""
NAMED: Final = 3
"""The largest number of groups or offsets that a message names."""
GROUPS_NAMED: Final = 10
"""The largest number of messages that are printed about single groups."""


def read_plan(path: Path) -> Plan:
    """Return the plan in a file. If the file cannot be read or is no plan, print why and exit."""
    from groupkeeper.pipeline.restore.plan import PlanError, decode

    try:
        return decode(path.read_bytes())
    except OSError as error:
        fail(f"{path}: {error.strerror or error}", USAGE)
    except PlanError as error:
        fail(f"{path}: {error}", FAILED)


def write_plan(plan: Plan, path: Path) -> None:
    """Write a plan file. Exit if the file exists or cannot be written."""
    try:
        with path.open("xb") as file:
            file.write(plan.encode() + b"\n")
    except FileExistsError:
        fail(f"{path} exists: name another file (--out)", USAGE)
    except OSError as error:
        fail(f"{path}: {error.strerror or error}", FAILED)


def moment(ts_ms: int) -> str:
    """Format a time in UTC, to the second, or to the millisecond if it is not a full second."""
    at = datetime.fromtimestamp(ts_ms / 1000, UTC)
    text = at.isoformat(timespec="milliseconds" if ts_ms % 1000 else "seconds")
    return text.replace("+00:00", "Z")


def counted(number: int, noun: str) -> str:
    """Format a number with its noun: 1 group, 2,000 groups."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def counted_have(number: int, noun: str) -> str:
    """Format a number with its noun and the verb: 1 group has, 2 groups have."""
    return f"{counted(number, noun)} {'has' if number == 1 else 'have'}"


def named(names: Sequence[str]) -> str:
    """Return the first ``NAMED`` names as one text, with "..." if there are more."""
    more = ", ..." if len(names) > NAMED else ""
    return plain(", ".join(names[:NAMED])) + more


def warn_of_members(groups: Sequence[str], source_options: str) -> None:
    """Print a warning about groups that still have members at the source of a migration.

    ``source_options`` is the text of the options that name the source.
    """
    if groups:
        typer.echo(
            f"groupkeeper: {counted_have(len(groups), 'group')} members at the source "
            f"({named(groups)}), which keep committing. Stop them and plan again before you apply. "
            f"--plan FILE --verify with {source_options} reports whether an offset changed",
            err=True,
        )


def print_facts_of(plan: Plan) -> None:
    """Print the head of a plan: its id, groups, servers and times, without its changes."""
    content = plan.content
    facts = {
        "PLAN": f"{plan.id} ({content.kind}, made {moment(content.created_ms)})",
        "GROUPS": _groups(plan),
        "SERVER": content.server,
        "SOURCE": content.source,
        "CLAMPED TO": content.data,
    }
    if content.as_of_ms is not None:
        facts["AS OF"] = moment(content.as_of_ms)
    if content.undoes is not None:
        facts["UNDOES"] = content.undoes
    print_facts(facts)


def print_plan(plan: Plan) -> None:
    """Print a plan: its head, at most ``ROWS_SHOWN`` changes with one row per partition, and a
    summary."""
    print_facts_of(plan)
    content = plan.content
    changes = [(group.group, each) for group in content.groups for each in group.changes]
    shown = [(group, each) for group, each in changes if each.changes or each.wanted is not None]
    if shown:
        print()
        many = len(content.groups) > 1
        names = ["TOPIC", "PARTITION", "CURRENT", "TARGET", "DELTA", "CLAMP"]
        rows = [(group, *_row(each)) if many else _row(each) for group, each in shown[:ROWS_SHOWN]]
        print_table(["GROUP", *names] if many else names, rows)
        if len(shown) > ROWS_SHOWN:
            print(f"... and {len(shown) - ROWS_SHOWN} more; the plan's file has all of them")
    print()
    print(summary(plan))


def _groups(plan: Plan) -> str:
    names = [group.group for group in plan.content.groups]
    return names[0] if len(names) == 1 else str(len(names))


def _row(each: Change) -> tuple[object, ...]:
    def value(offset: int | None, metadata: str) -> object:
        return "none" if offset is None else f"{offset} {metadata!r}" if metadata else offset

    current, target = each.current, each.target
    delta = "-" if each.delta is None else f"{each.delta:+}" if each.delta else "0"
    clamp = {
        "none": "",
        "log_start": f"log starts at {each.log_start}, {each.wanted} is deleted",
        "log_end": f"log ends at {each.log_end}, {each.wanted} is beyond it",
        "no_partition": "no such partition, unchanged",
    }[each.clamp]
    return (
        each.topic,
        each.partition,
        value(None, "") if current is None else value(current.offset, current.metadata),
        value(None, "") if target is None else value(target.offset, target.metadata),
        delta,
        clamp,
    )


def summary(plan: Plan) -> str:
    """Return a sentence about the changes of a plan: how many partitions change, and how many
    messages are read again or skipped.
    """
    changes = [each for group in plan.content.groups for each in group.changes]
    to_do = [each for each in changes if each.changes]
    again = -sum(each.delta for each in to_do if each.delta is not None and each.delta < 0)
    skipped = sum(each.delta for each in to_do if each.delta is not None and each.delta > 0)
    clamped = sum(each.clamp in ("log_start", "log_end") for each in changes)
    absent = sum(each.clamp == "no_partition" for each in changes)
    verb = "changes" if len(to_do) == 1 else "change"
    parts = [f"{len(to_do):,} of {counted(len(changes), 'partition')} {verb}"]
    if again:
        parts.append(f"{_messages(again)} read again")
    if skipped:
        parts.append(f"{_messages(skipped)} skipped")
    if clamped:
        parts.append(f"{clamped:,} clamped to what the log holds")
    if absent:
        parts.append(f"{absent:,} unchanged")
    return ", ".join(parts) + "."


def _messages(number: int) -> str:
    return f"{counted(number, 'message')} {'is' if number == 1 else 'are'}"


Words = Mapping[str, str]
"""Maps each result to the text that is printed after "1 group " or "2 groups "."""

CARRIED_OUT: Final[Words] = {
    "applied": "changed, and read back as planned",
    "done_before": "already as planned, nothing to do",
    "pending": "ready to be changed",
    "refused": "REFUSED",
    "failed": "FAILED",
}
AT_TARGET: Final[Words] = {
    "done_before": "as planned",
    "refused": "NOT as planned",
    "failed": "could not be checked",
}
AT_SOURCE: Final[Words] = {
    "done_before": "unchanged since the plan was made",
    "refused": "changed since the plan was made",
    "failed": "could not be checked",
}


def print_outcomes(outcomes: Sequence[Outcome], words: Words = CARRIED_OUT) -> None:
    """Print how many groups have each result. Print to standard error the messages of groups that
    were refused or have failed.
    """
    counts = Counter(str(outcome.result) for outcome in outcomes)
    for result, text in words.items():
        if counts[result]:
            print(f"{counted(counts[result], 'group')} {text}")
    bad = [outcome for outcome in outcomes if not outcome.is_well]
    for outcome in bad[:GROUPS_NAMED]:
        typer.echo(f"groupkeeper: {plain(f'{outcome.group}: {outcome.message}')}", err=True)
    if len(bad) > GROUPS_NAMED:
        more = counted(len(bad) - GROUPS_NAMED, "group")
        typer.echo(f"groupkeeper: and {more} more; -o json names all of them", err=True)


def as_json(plan: Plan, path: Path, outcomes: Sequence[Outcome], **more: Any) -> str:
    """Return the plan, the outcome of each group and the fields ``more`` as one JSON text."""
    content = {
        "file": str(path),
        "outcomes": [msgspec.to_builtins(outcome) for outcome in outcomes],
        **more,
        **json.loads(plan.encode()),
    }
    return json.dumps(content, indent=2)
