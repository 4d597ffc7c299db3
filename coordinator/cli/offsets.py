"""``groupkeeper offsets restore``: a group's offsets of an earlier moment, without Spark.

A segment is a file of events of the event log. The number of an event in its log is its seq.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from groupkeeper.coordinator.cli.extra_command import AdminCommand
from groupkeeper.coordinator.cli.failing import USAGE, fail
from groupkeeper.coordinator.cli.group import Output, OutputOption
from groupkeeper.coordinator.cli.pipeline import options
from groupkeeper.coordinator.cli.pipeline.restoring import (
    History,
    RestoreOptions,
    accept,
    restore,
    standing_in_store,
    wrong_segments,
)
from groupkeeper.coordinator.cli.stopping import stoppable
from groupkeeper.coordinator.cli.store_place import PasswordFileOption

if TYPE_CHECKING:
    from groupkeeper.pipeline.log.coverage import Coverage
    from groupkeeper.pipeline.restore.standing import Standing
    from groupkeeper.storage.event_log.segments import Segment

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


class _OffsetsCommand(AdminCommand):
    """A command that Ctrl-C and SIGTERM stop with one line (``stoppable``)."""

    def invoke(self, ctx: Any) -> Any:
        with stoppable():
            return super().invoke(ctx)


@app.callback()
def offsets() -> None:
    """Restore committed offsets of an earlier moment. Needs the extra `admin`, and no Spark."""


@app.command("restore", cls=_OffsetsCommand)
def restore_command(  # noqa: PLR0913  the options of a command
    group: options.RestoredGroupOption = None,
    as_of: options.AsOfOption = None,
    store: options.StoreOption = None,
    password_file: PasswordFileOption = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log-dir",
            metavar="DIR",
            help="Read the history from this directory: the daemon's log.dir, with the files of "
            "its event log.",
        ),
    ] = None,
    topic: options.TopicOption = None,
    server: options.ServerOption = None,
    data: options.DataOption = None,
    plan: options.PlanOption = None,
    undo: options.UndoOption = False,
    apply: options.ApplyOption = False,
    accept_gaps: options.AcceptGapsOption = False,
    out: options.PlanOutOption = None,
    output: OutputOption = Output.TABLE,
    client_config: options.ClientConfigOption = None,
    timeout: options.TimeoutOption = 30.0,
) -> None:
    """Restore a group's committed offsets as they were at an earlier moment.

    Reads the history of the group from the daemon's store (--store) or from the files of its event
    log (--log-dir), without Spark. Prints the changes as a plan, and writes the plan to a file.
    Only --apply changes offsets: with the options of a new plan, or later with --plan FILE. `--plan
    FILE --undo --apply` undoes a plan that was applied.

    The group must have no members. All its events up to the moment must be there, unless
    --accept-gaps. Exits 1 if the plan cannot be applied, 4 if the history has nothing about the
    group.
    """
    is_new = plan is None and not undo and None not in (group, as_of, server)
    if is_new and store is None and log is None:
        fail("name the history: --store FILE or --log-dir DIR", USAGE)
    store = None if store is None else store.with_password_file(password_file)
    asked = RestoreOptions(
        *(group, as_of, store, log, None, topic or [], server, data, plan, undo, apply),
        *(accept_gaps, out, output, client_config, timeout),
    )
    restore(asked, _found)


def _found(history: History) -> Standing:
    typer.echo("groupkeeper: reading the history", err=True)
    store, log, _ = history.places
    if store is not None:
        return standing_in_store(store, history)
    assert log is not None  # one of the two is named
    return _of_log(log, history)


class _Segments(NamedTuple):
    """The undamaged segments of a folder."""

    log: Path
    listed: list[Segment]
    coverage: Coverage

    def events(self, group: str) -> Iterator[dict[str, Any]]:
        """Yield the events of a group, in any order. An event may come twice.

        Events that are no longer valid, because an older copy of the store was restored, are left
        out (``Coverage.limits``).
        """
        import msgspec

        from groupkeeper.storage.event_log.segments import has_group, read_segment

        limits = self.coverage.limits()
        for segment in self.listed:
            limit = limits.get(segment.log_id, segment.last_seq)
            if limit < segment.first_seq or not has_group(self.log, segment.name, group):
                continue
            for event in read_segment(self.log / segment.file, msgspec.json.encode(group)):
                if event["group"] == group and event["seq"] <= limit:
                    yield event

    def last_seqs(self, as_of_ms: int) -> dict[str, int]:
        """Return the last seq of each log at a moment. A log that had not begun has no entry."""
        limits = self.coverage.limits()
        found: dict[str, int] = {}
        for segment in self.listed:
            last = self._last_seq(segment, as_of_ms, limits)
            if last is not None:
                found[segment.log_id] = max(last, found.get(segment.log_id, 0))
        return found

    def _last_seq(self, segment: Segment, as_of_ms: int, limits: Mapping[str, int]) -> int | None:
        from groupkeeper.storage.event_log.segments import read_segment

        limit = limits.get(segment.log_id, segment.last_seq)
        if segment.sha256 and segment.last_ts_ms <= as_of_ms:
            return min(limit, segment.last_seq) if segment.first_seq <= limit else None
        if segment.sha256 and segment.first_ts_ms > as_of_ms:
            return None
        events = read_segment(self.log / segment.file)
        seqs = (event["seq"] for event in events if event["ts_ms"] <= as_of_ms)
        return max((seq for seq in seqs if seq <= limit), default=None)

    def last_ts_ms(self, store: str) -> int:
        """Return the time of the newest event of a store."""
        from groupkeeper.storage.event_log.segments import describe

        stores, limits = self.coverage.stores(), self.coverage.limits()
        return max(
            (each if each.sha256 else describe(self.log, each.name)).last_ts_ms
            for each in self.listed
            if stores.get(each.log_id) == store
            and each.first_seq <= limits.get(each.log_id, each.first_seq)
        )


def _of_log(log: Path, history: History) -> Standing:
    """Return the offsets of the group from the sealed segments of a folder. Raises RestoreError if
    events are missing and the user does not accept this, or if no offset is known.
    """
    from groupkeeper.pipeline.restore.sealed import coverage_of_log
    from groupkeeper.pipeline.restore.standing import GroupHistory, IncompleteHistory
    from groupkeeper.storage.event_log.manifest import listed_and_found

    wrong = wrong_segments(log)
    coverage = coverage_of_log(log, {each.file: wrong[each] for each in wrong})
    there = listed_and_found(log).segments.values()
    segments = _Segments(log, [each for each in there if each not in wrong], coverage)
    # a segment that begins after the moment is not needed
    before = [each for each in wrong if each.first_ts_ms <= history.as_of_ms]
    needed = coverage_of_log(log, {each.file: wrong[each] for each in before})
    found = GroupHistory(history.group, history.as_of_ms)
    if needed.gaps() and (missing := needed.gaps_as_of(segments.last_seqs(history.as_of_ms))):
        accept(IncompleteHistory(missing, history), history)
        found.lacks_events = True
    stores, chains = coverage.stores(), coverage.chains()
    for event in segments.events(history.group):
        log_id = event["log_id"]
        found.add(stores[log_id], event, chains[log_id])
    return found.standing(segments.last_ts_ms, history.topics)
