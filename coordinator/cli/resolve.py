"""``groupkeeper upstream resolve``: a person commits or aborts pending offsets of transactions.

This is necessary if the journal, a topic that shows how transactions ended, is lost.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupkeeper.coordinator.cli.event_view import moment
from groupkeeper.coordinator.cli.failing import FAILED, NOTHING_MATCHED, USAGE, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption, print_table
from groupkeeper.coordinator.cli.pipeline import options
from groupkeeper.coordinator.cli.plain_text import plain
from groupkeeper.coordinator.cli.stored_events import ConfigOption, settings_of

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.requests.transactions import PendingView
    from groupkeeper.coordinator.daemon.config import Settings
    from groupkeeper.coordinator.gateway.journal.decisions import LostShard

COLUMNS = "SHARD GROUP PRODUCER EPOCH TOPIC PARTITION OFFSET SINCE"


class Decision(Enum):
    """The decision about pending offsets: they become committed offsets, or they are dropped."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class _Asked:
    """The options of ``groupkeeper upstream resolve``."""

    groups: Sequence[str]
    producers: Sequence[int]
    decision: Decision | None
    apply: bool
    timeout_s: float

    def wants(self, pending: PendingView) -> bool:
        """Return True if the options select these pending offsets."""
        if self.producers and pending.producer_id not in self.producers:
            return False
        return not self.groups or any(fnmatchcase(pending.group_id, each) for each in self.groups)


class _Found:
    """The shards whose journal is lost, each with the pending offsets that the options select."""

    def __init__(self, lost: Sequence[LostShard], asked: _Asked) -> None:
        self.asked = asked
        self.shards = [(each, [p for p in each.pending if asked.wants(p)]) for each in lost]
        self.chosen = sum(len(some) for _, some in self.shards)
        self.others = sum(len(each.pending) for each in lost) - self.chosen
        self.open = sum(each.open for each in lost)


def resolve_command(  # noqa: PLR0913  the options of a command
    config: ConfigOption = None,
    decision: Annotated[
        Decision | None,
        typer.Option(
            "--decision", help="commit: the offsets become committed. abort: they are dropped."
        ),
    ] = None,
    group: options.GroupsOption = None,
    producer: Annotated[
        list[int] | None,
        typer.Option(
            "--producer",
            metavar="ID",
            help="Only offsets from transactions of this producer id. Repeatable.",
        ),
    ] = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply", help="Carry out the decision. Without this, only list the offsets."
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=1.0, metavar="S", help="How long the command may take."),
    ] = 60.0,
) -> None:
    """Decide about offsets of transactions if groupkeeper cannot find out how they ended.

    An offset that a client commits in a transaction is pending until the transaction ends. The
    journal, a topic of the upstream, tells groupkeeper how it ended. If this topic was deleted or
    has lost records, you must decide. Stop the daemon first.

    Without --apply, lists the pending offsets, and why the journal cannot decide about them. If the
    journal can still decide about others, the command carries out these decisions, as each start of
    the daemon does. With --decision and --apply, carries out your decision. Later starts of the
    daemon use the journal that the upstream has at that time. Exits 4 if there is nothing to
    decide.
    """
    asked = _Asked(group or (), producer or (), decision, apply, timeout)
    if apply and decision is None:
        fail("--apply needs --decision commit, or --decision abort", USAGE)
    settings = settings_of(config)
    if not settings.is_gateway:
        fail("the settings have no upstream.bootstrap: this is not a gateway", USAGE)
    found = _Found(asyncio.run(_resolve(settings, asked)), asked)
    if output is Output.JSON:
        print(json.dumps(_as_json(found), indent=2))
    elif found.chosen:
        _print_table(found)
    if not found.chosen:
        why = "no pending offsets are like that" if found.others else "the journal is not lost"
        fail(f"there is nothing to decide: {why}", NOTHING_MATCHED)


async def _resolve(settings: Settings, asked: _Asked) -> list[LostShard]:
    """Read the journal. With --apply, commit or abort the selected offsets. Return the shards that
    were lost before this.
    """
    from groupkeeper.coordinator.daemon.journal_repair import RepairFailed, opened_journal
    from groupkeeper.coordinator.gateway.journal.decisions import decide, lost_shards

    try:
        async with opened_journal(settings, asked.timeout_s, _tell) as (journal, coordinator):
            lost = await lost_shards(journal, coordinator)
            if asked.apply:
                for shard in lost:
                    some = [each for each in shard.pending if asked.wants(each)]
                    is_commit = asked.decision is Decision.COMMIT
                    await decide(coordinator, shard.shard_id, some, commit=is_commit)
            return lost
    except RepairFailed as error:
        fail(str(error), FAILED)


def _tell(problem: str) -> None:
    typer.echo(f"groupkeeper: {plain(problem)}", err=True)


def _print_table(found: _Found) -> None:
    rows: list[tuple[object, ...]] = []
    for shard, some in found.shards:
        if some:
            print(plain(f"shard {shard.shard_id}: {shard.reason}"))
            rows += _rows(shard, some)
    print_table(COLUMNS.split(), rows)
    if found.others:
        print(f"commits of transactions that are pending too, and were not chosen: {found.others}")
    if found.open:
        print(f"commits of open transactions, about which the journal will decide: {found.open}")
    if found.asked.apply:
        done = "committed" if found.asked.decision is Decision.COMMIT else "aborted"
        print(f"commits of transactions that are {done} now: {found.chosen}")
    else:
        print("Nothing was decided. Add --decision commit or --decision abort, and --apply")


def _rows(shard: LostShard, some: Sequence[PendingView]) -> Iterator[tuple[object, ...]]:
    for each in some:
        for topic in each.topics:
            for partition, offset, *_ in topic.partitions:
                yield (
                    shard.shard_id,
                    each.group_id,
                    each.producer_id,
                    each.producer_epoch,
                    topic.topic,
                    partition,
                    offset,
                    moment(each.commit_time_ms),
                )


def _as_json(found: _Found) -> dict[str, Any]:
    decision = found.asked.decision
    return {
        "applied": found.asked.apply,
        "decision": None if decision is None else decision.value,
        "not_chosen": found.others,
        "open": found.open,
        "shards": [
            {
                "shard": shard.shard_id,
                "reason": shard.reason,
                "pending": [_pending(each) for each in some],
            }
            for shard, some in found.shards
        ],
    }


def _pending(each: PendingView) -> dict[str, Any]:
    return {
        "group": each.group_id,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "since_ms": each.commit_time_ms,
        "offsets": [
            {"topic": topic.topic, "partition": row[0], "offset": row[1]}
            for topic in each.topics
            for row in topic.partitions
        ],
    }
