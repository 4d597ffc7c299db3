"""The common part of the two commands that restore a group's offsets. It makes a plan from the
offsets in the history, and checks or applies the plan.

``groupkeeper offsets restore`` reads the history in plain Python, ``groupkeeper pipeline restore``
with Spark. The history is the events of a group. A segment is a file of events. The manifest of a
folder lists its segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import typer

from groupkeeper.coordinator.cli.failing import FAILED, NOTHING_MATCHED, USAGE, fail
from groupkeeper.coordinator.cli.group import Output
from groupkeeper.coordinator.cli.pipeline.inputs import (
    file_name,
    now_ms,
    parse_moment,
    read_properties,
)
from groupkeeper.coordinator.cli.pipeline.plan_run import (
    Again,
    carry_out,
    opened_plan,
    refuse_with_plan,
)
from groupkeeper.coordinator.cli.pipeline.plan_view import moment, write_plan
from groupkeeper.coordinator.cli.store_place import StorePlace

if TYPE_CHECKING:
    from groupkeeper.pipeline.restore.cluster import Cluster, ClusterEndpoint
    from groupkeeper.pipeline.restore.plan import Partition, Plan
    from groupkeeper.pipeline.restore.standing import IncompleteHistory, Standing
    from groupkeeper.storage.event_log.segments import Segment

NO_DATA: Final = "none"
"""``--data none``: no cluster holds the records, so nothing is clamped."""

_NAMED: Final = 10
"""The largest number of partitions that a message names."""

PLANS: Final = "groupkeeper-plan"
"""The client id for reads; writes use the plan's client id."""


class RestoreOptions(NamedTuple):
    """The options that the two commands which restore offsets share."""

    group: str | None
    as_of: str | None
    store: StorePlace | None
    log: Path | None
    tables: str | None
    topics: list[str]
    server: str | None
    data: str | None
    plan: Path | None
    undo: bool
    apply: bool
    accepts_gaps: bool
    out: Path | None
    output: Output
    client_config: Path | None
    timeout: float


class History(NamedTuple):
    """A group, a moment at which its offsets are wanted, and the places that have its events."""

    group: str
    as_of_ms: int
    places: tuple[StorePlace | None, Path | None, str | None]
    """The store, the folder of segments, and the tables. None: the user does not name it."""
    topics: list[str]
    accepts_gaps: bool
    """True if the user accepts a plan although events are missing."""

    def names(self, partition: Partition) -> bool:
        """Return True if the topic of a partition is wanted."""
        return not self.topics or partition.topic in self.topics

    def __str__(self) -> str:
        return " and ".join(str(each) for each in self.places if each is not None)


Find = Callable[[History], "Standing"]
"""Returns the offsets in a history. Raises RestoreError if they are unknown."""


def restore(asked: RestoreOptions, find: Find) -> None:
    """Make a plan or open an existing plan, and print it. With --apply, apply the plan; otherwise,
    check whether it can be applied.
    """
    from groupkeeper.pipeline.restore.cluster import ClusterEndpoint

    properties = read_properties(asked.client_config)
    if asked.plan is not None:
        refuse_with_plan(
            {
                "--group": asked.group,
                "--as-of": asked.as_of,
                "--store": asked.store,
                "--log-dir": asked.log,
                "--tables": asked.tables,
                "--topic": asked.topics,
                "--data": asked.data,
                "--accept-gaps": asked.accepts_gaps,
                "--out": asked.out,
            }
        )
        made, path = opened_plan(asked.plan, asked.undo), asked.plan
        target = ClusterEndpoint(asked.server or made.content.server, properties, asked.timeout)
    else:
        history, server = _history(asked)
        target = ClusterEndpoint(server, properties, asked.timeout)
        made = _planned(history, target, asked.data, find)
        path = asked.out or Path(f"restore-{file_name(history.group)}-{made.id}.json")
        write_plan(made, path)
    again = Again(path, asked.server, asked.client_config)
    carry_out(made, target, again, asked.apply, asked.output)


def _history(asked: RestoreOptions) -> tuple[History, str]:
    """Return the history and the server that the options name. Exit if an option is missing, or if
    there is no history.
    """
    if asked.undo:
        fail("--undo undoes an applied plan: name it with --plan FILE", USAGE)
    if asked.group is None or asked.as_of is None or asked.server is None:
        fail("name --group, --as-of and --server, or an existing plan with --plan FILE", USAGE)
    places = (asked.store, asked.log, asked.tables)
    if asked.tables is None:
        _require_history(asked.store, asked.log)
    as_of_ms = parse_moment(asked.as_of, now_ms())
    return History(asked.group, as_of_ms, places, asked.topics, asked.accepts_gaps), asked.server


def _require_history(store: StorePlace | None, log: Path | None) -> None:
    """Exit if the store cannot be opened, or if the folder has no segment. This is checked before
    any other work.
    """
    from groupkeeper.storage.event_log.segments import segment_names

    with reading(store or log):
        if store is not None:
            found = store.logs()
            with found.kept_open():
                # one log is enough to show that the store can be opened
                for open_rows in islice(found.logs().values(), 1):
                    open_rows().close()
        elif log is not None and not segment_names(log):
            fail(f"{log} holds no sealed segment: is it the daemon's log.dir?", NOTHING_MATCHED)


@contextmanager
def reading(place: object) -> Iterator[None]:
    """Inside the block, exit with one line if the history in ``place`` cannot be read."""
    from groupkeeper.storage.base import StorageError, StoreRefused
    from groupkeeper.storage.event_log.segments import SegmentError

    try:
        yield
    except StoreRefused as error:
        fail(f"{error}. --store names the daemon's SQLite file, or the URL of its store", FAILED)
    except SegmentError as error:
        fail(
            f"{error}. Replace the file with a good copy. If there is none, move the file "
            "away and add --accept-gaps to plan without its events",
            FAILED,
        )
    except (OSError, StorageError) as error:
        fail(f"{place} cannot be read: {error}", FAILED)


def wrong_segments(log: Path) -> dict[Segment, str]:
    """Return the segments that do not match the manifest, each with its problem.

    The content of a segment that the manifest does not list must match the name of its file.
    """
    from groupkeeper.pipeline.log.segment_files import ABSENT, lost_problem
    from groupkeeper.storage.event_log.manifest import listed_and_found
    from groupkeeper.storage.event_log.segments import file_problem

    manifest = listed_and_found(log)
    found = {each: lost_problem(each.damaged) for each in manifest.damaged.values()}
    for segment in manifest.segments.values():
        is_there = (log / segment.file).exists()
        problem = file_problem if segment.sha256 else _problem_of_content
        found[segment] = problem(log, segment) if is_there else ABSENT
    return {segment: problem for segment, problem in found.items() if problem}


def _problem_of_content(log: Path, segment: Segment) -> str:
    """Return the problem of a segment that the manifest does not list, or "". The whole segment is
    read.
    """
    from groupkeeper.storage.event_log.segments import SegmentError, describe

    try:
        describe(log, segment.name)
    except SegmentError as error:
        return f"is not in the manifest, and {str(error).removeprefix(f'{log / segment.file}: ')}"
    return ""


def accept(error: IncompleteHistory, history: History) -> None:
    """Raise the error if the user does not accept a plan without the missing events. Otherwise,
    print which events are missing.
    """
    if not history.accepts_gaps:
        raise error
    typer.echo(f"groupkeeper: {error.what}; planned without them (--accept-gaps)", err=True)


def standing_in_store(store: StorePlace, history: History) -> Standing:
    """Return the offsets of the group at the moment, from all logs of a store: its files and rows.

    Raises IncompleteHistory if events are missing and the user does not accept this, and
    RestoreError if the offsets are unknown. Exits if the store has no event of the group.
    """
    from groupkeeper.coordinator.cli.pipeline.store_history import read_group
    from groupkeeper.pipeline.restore.standing import IncompleteHistory

    found = store.logs(history.group)
    with found.kept_open():
        read = read_group(
            *(found.logs(), history.places[1], history.group, history.as_of_ms),
            is_shared=found.is_shared,
        )
    if read.missing:
        accept(IncompleteHistory(read.missing, history), history)
    if not read.first_log:
        why = ": its oldest events are deleted" if read.offsets.lacks_events else ""
        fail(f"{store} has no event of group {history.group!r}{why}", NOTHING_MATCHED)
    standing = read.offsets.standing(lambda _: read.last_ts_ms, history.topics)
    return standing._replace(store=read.first_log)


def _found(history: History, find: Find) -> Standing:
    """Return the offsets in the history, and print which offsets are unknown. Exit with one line if
    the history cannot be read, or if nothing is known of the group.
    """
    from groupkeeper.pipeline.restore.standing import IncompleteHistory, RestoreError

    try:
        with reading(history):
            found = find(history)
    except IncompleteHistory as error:
        fail(str(error), FAILED)
    except RestoreError as error:
        fail(str(error), NOTHING_MATCHED)
    unknown = [each for each in sorted(found.unknown) if history.names(each)]
    if unknown:
        names = ", ".join(f"{each.topic}-{each.partition}" for each in unknown)
        typer.echo(
            f"groupkeeper: the offsets of {names} at that moment are unknown, since earlier "
            "changes may have been removed (by Kafka's compaction before an import, or by the "
            "retention of one of several nodes): unchanged",
            err=True,
        )
    if found.other_stores:
        typer.echo(
            f"groupkeeper: {found.other_stores} more stores in {history} have offsets of the "
            "group, and do not count. If they are of another node of the same store, this plan may "
            "set offsets back: --store URL reads the events of all nodes",
            err=True,
        )
    if history.places[0] is None and found.last_ts_ms < history.as_of_ms:
        typer.echo(
            f"groupkeeper: the history ends at {moment(found.last_ts_ms)}, before the requested "
            "moment; later events are unknown here (are they sealed yet? --store FILE reads "
            "unsealed events)",
            err=True,
        )
    return found


class Removal:
    """Decides whether a plan deletes a committed offset that the group did not have at the moment.

    If the log does not show whether the group had the offset, the offset stays.
    """

    def __init__(self, history: History, found: Standing) -> None:
        self._history = history
        self._found = found
        self.left: set[Partition] = set()
        """Partitions whose offset stays because no event names them. An event that is missing or
        does not count may have named them."""

    def __call__(self, partition: Partition) -> bool:
        if not self._history.names(partition):
            return False
        if self._found.named is not None and partition not in self._found.named:
            self.left.add(partition)
            return False
        return partition not in self._found.unknown

    def report(self) -> None:
        """Print the partitions whose offset stays although no event names them."""
        left = sorted(self.left - self._found.unknown)
        if left:
            names = ", ".join(f"{each.topic}-{each.partition}" for each in left[:_NAMED])
            more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
            typer.echo(
                f"groupkeeper: the offsets of {names}{more} at that moment are unknown, since "
                "events are missing or do not count, and no other event names them: unchanged",
                err=True,
            )


def _planned(history: History, target: ClusterEndpoint, data: str | None, find: Find) -> Plan:
    from groupkeeper.pipeline.restore.apply import Purpose, make_plan
    from groupkeeper.pipeline.restore.cluster import ClusterError
    from groupkeeper.pipeline.restore.plan import PlanKind

    try:
        with ExitStack() as stack:
            # checks that the servers answer before the history is read, which may take long
            cluster = stack.enter_context(target.open(PLANS))
            records: Cluster | None = cluster
            if data == NO_DATA:
                records = None
            elif data is not None and data != target.address:
                records = stack.enter_context(target._replace(address=data).open(PLANS))
            found = _found(history, find)
            purpose = Purpose(
                PlanKind.RESTORE,
                f"log {found.store} in {history}, up to {moment(found.last_ts_ms)}",
                now_ms(),
                history.as_of_ms,
            )
            wanted = {history.group: found.offsets}
            removal = Removal(history, found)
            plan = make_plan(cluster, wanted, records, purpose, removes=removal)
            removal.report()
    except ClusterError as error:
        fail(str(error), FAILED)
    touched = {each.topic for group in plan.content.groups for each in group.changes}
    for topic in sorted(set(history.topics) - touched - {each.topic for each in found.unknown}):
        none = f"{history.group!r} has no offset of topic {topic!r}, neither at that moment nor now"
        typer.echo(f"groupkeeper: {none}: is the name right?", err=True)
    return plan
