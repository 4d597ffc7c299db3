"""The committed offsets of a group at a moment, or the reason why they are unknown, without Spark.

``GroupHistory`` computes the offsets from single events. ``pipeline.restore.restore`` computes the
same with Spark, from tables. A test checks that both have the same result.

A snapshot is an event with offsets that deleted events had set. A gap is a range of missing events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

from groupkeeper.pipeline.log.kinds import REMOVES_OFFSETS, SETS_OFFSETS
from groupkeeper.pipeline.restore.plan import Committed, Partition
from groupkeeper.storage.event_log.snapshot_logs import SNAPSHOT_KIND

NAMED: Final = 5
"""The largest number of gaps that a message names."""


class RestoreError(Exception):
    """No offsets can be restored; the message is one line."""


class IncompleteHistory(RestoreError):
    """Events that may have changed the group are missing."""

    def __init__(self, missing: Iterable[object], place: object) -> None:
        """``missing`` has an object for each gap, whose text describes the gap. ``place`` names the
        log or the file that has the history.
        """
        texts = [str(each) for each in missing]
        if len(texts) > NAMED:
            texts = [*texts[:NAMED], f"and {len(texts) - NAMED} gaps more"]
        self.what = f"the history in {place} is incomplete: {'; '.join(texts)}"
        """The first sentence of the message."""
        super().__init__(
            f"{self.what}. Their changes are unknown, so a plan might restore or delete the wrong "
            "offsets. Look for the missing segments (`groupkeeper log verify` names them; "
            "--log-dir and --tables may be wrong, --store reads unsealed events; a store without "
            "segments deletes its oldest events for good), or plan without them, with --accept-gaps"
        )


class Standing(NamedTuple):
    """The committed offsets of a group at a moment."""

    offsets: dict[Partition, Committed]
    store: str
    """The store with these offsets, named by the id of its first log."""
    last_ts_ms: int
    """The time of the newest event read from that store. Offsets after this time are unknown."""
    unknown: frozenset[Partition] = frozenset()
    """Partitions of the group whose offset at that moment is unknown."""
    named: frozenset[Partition] | None = None
    """The partitions with a known change. Nothing is known of any other partition. None if no event
    of the group is missing, and all of them count."""
    other_stores: int = 0
    """The number of other stores with changes of the group before the moment. These changes do not
    count."""


class KnownChanges(NamedTuple):
    """Facts about the known changes of a group, from which ``why_nothing`` makes a message."""

    first_ts_ms: int | None
    """The time of the first change; None if no change is known."""
    horizon_ms: int | None
    """The time of the first snapshot of the group; None if there is none."""
    are_cut_off: bool
    """True if changes before the first known change may be missing, as in an import from Kafka."""
    are_deleted: bool = False
    """True if earlier events are deleted."""


def why_nothing(changes: KnownChanges, group: str, as_of_ms: int) -> str:
    """Return the reason, as far as the log shows it, why a group has no offsets at a moment."""
    if changes.first_ts_ms is None:
        return (
            f"the log has no event of group {group!r}: is its name right, and is it the log of "
            "its coordinator?"
        )
    first = utc(changes.first_ts_ms)
    if changes.are_deleted or changes.horizon_ms == changes.first_ts_ms:
        return (
            f"the offsets of group {group!r} at {utc(as_of_ms)} are unknown: its events before "
            f"{first} are older than log.retention_minutes, and deleted. That is the first "
            "moment that can be restored"
        )
    if changes.are_cut_off:
        return (
            f"the offsets of group {group!r} at {utc(as_of_ms)} are unknown: Kafka's compaction "
            f"removed those before {first}. That is the first moment that can be restored"
        )
    return (
        f"group {group!r} had no committed offset at {utc(as_of_ms)}: its first change in the log "
        f"is at {first}"
    )


def utc(ts_ms: int) -> str:
    """Format a time (ms since the epoch) as ``--as-of`` reads it."""
    at = datetime.fromtimestamp(ts_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_Order = tuple[int, int, int, int]
"""The order of a change. The first two numbers are the lease epoch and the ``seq`` of its event.
The others are the positions of the topic and the partition in the event.
"""


class LogSnapshot(NamedTuple):
    """The partitions in a snapshot of one log. A snapshot has the offsets after deleted events.

    ``epoch`` is the lease epoch of the last deleted event. A single offset may be from a lower
    epoch.
    """

    log: str
    ts_ms: int
    epoch: int
    partitions: Collection[Partition]


def log_snapshot(log: str, event: Any) -> LogSnapshot:
    """Return the partitions and the epoch of an event ``offset_snapshot``. The event is a mapping,
    or a row of Spark.
    """
    named = [*(event["topics"] or ()), *(event["lost"] or ())]
    partitions = frozenset(
        Partition(each["topic"], row["partition"]) for each in named for row in each["partitions"]
    )
    return LogSnapshot(log, event["ts_ms"], event["lease_epoch"], partitions)


EpochsByLog: TypeAlias = Mapping[Partition, Mapping[str, int]]
"""For each partition, the lease epoch of its last change in each log, without snapshots."""


def unknown_between_logs(
    snapshots: Sequence[LogSnapshot], changes: EpochsByLog, as_of_ms: int
) -> Iterator[Partition]:
    """Yield the partitions whose last change is unknown, in a store with the logs of several nodes.

    The last change is unknown if one log has the partition only in a snapshot, so that the lease
    epoch of the offset is not known exactly. A change in another log may then be earlier or later.
    """
    logs = {each for epochs in changes.values() for each in epochs}
    logs |= {each.log for each in snapshots}
    for snapshot in snapshots:
        others = [each for each in snapshots if each.log != snapshot.log]
        is_later = snapshot.ts_ms > as_of_ms and bool(logs - {snapshot.log})
        for partition in snapshot.partitions:
            epochs = changes.get(partition, {})
            elsewhere = [epoch for log, epoch in epochs.items() if log != snapshot.log]
            is_elsewhere = elsewhere or any(partition in each.partitions for each in others)
            last = max(epochs.values(), default=-1)
            is_sure = last > snapshot.epoch or last == epochs.get(snapshot.log)
            if (is_later or is_elsewhere) and not is_sure:
                yield partition


class _OfStore:
    """The changes of the group in one store, up to the moment."""

    def __init__(self) -> None:
        self.last: dict[Partition, tuple[_Order, Committed | None]] = {}
        self.at_ms: int | None = None
        self.unknown: set[Partition] = set()
        self.changes: dict[Partition, dict[str, int]] = {}
        """For each partition the epoch of its last change in each log, without snapshots."""
        self.snapshots: list[LogSnapshot] = []


class GroupHistory:
    """Computes the offsets of one group at a moment. ``add`` accepts the events of the group in any
    order, and repeated events change nothing.
    """

    def __init__(self, group: str, as_of_ms: int) -> None:
        self._group = group
        self._as_of_ms = as_of_ms
        self._stores: dict[str, _OfStore] = {}
        self._first_ms: int | None = None
        self._horizon_ms: int | None = None
        self._are_cut_off = False
        self.lacks_events = False
        """True if events are missing that may have changed the group."""

    def add(self, store: str, event: Mapping[str, Any], log: str = "") -> None:
        """Add an event of the group. Events that change no offset are ignored. If the store has
        several logs, ``log`` is the one of this event.
        """
        kind, ts_ms = event["kind"], event["ts_ms"]
        if kind == SNAPSHOT_KIND:
            self._horizon_ms = _earlier(ts_ms, self._horizon_ms)
        if kind not in SETS_OFFSETS and kind not in REMOVES_OFFSETS:
            return
        of_store = self._stores.setdefault(store, _OfStore())
        is_before = ts_ms <= self._as_of_ms
        if kind == SNAPSHOT_KIND:
            of_store.snapshots.append(log_snapshot(log, {"lost": None, **event}))
        for order, key, row in _changes(event):
            self._first_ms = _earlier(ts_ms, self._first_ms)
            is_cut_off = _is_cut_off(kind, row)
            self._are_cut_off |= is_cut_off
            if not is_before:
                if is_cut_off:
                    of_store.unknown.add(key)
                continue
            of_store.at_ms = max(ts_ms, of_store.at_ms or ts_ms)
            if kind != SNAPSHOT_KIND:
                changes = of_store.changes.setdefault(key, {})
                changes[log] = max(event["lease_epoch"], changes.get(log, -1))
            known = of_store.last.get(key)
            if known is None or known[0] <= order:
                of_store.last[key] = order, _committed(row) if kind in SETS_OFFSETS else None

    def standing(self, last_ts_ms: Callable[[str], int], topics: Collection[str] = ()) -> Standing:
        """Return the offsets, of all topics or of the given ones.

        If several stores have the group, only the store with the last change before the moment
        counts. ``last_ts_ms`` is called with this store, and returns the time of its newest event.
        Raises RestoreError if no store has a change of the group before the moment.
        """
        knowing = [
            (of_store.at_ms, store)
            for store, of_store in self._stores.items()
            if of_store.at_ms is not None
        ]
        if not knowing:
            changes = KnownChanges(
                self._first_ms, self._horizon_ms, self._are_cut_off, self.lacks_events
            )
            raise RestoreError(why_nothing(changes, self._group, self._as_of_ms))
        _, store = max(knowing)
        found = self._stores[store]
        between = {*unknown_between_logs(found.snapshots, found.changes, self._as_of_ms)}
        offsets = {
            key: committed
            for key, (_, committed) in found.last.items()
            if committed is not None and (not topics or key.topic in topics) and key not in between
        }
        is_part = self.lacks_events or len(knowing) > 1
        named = frozenset(found.last) if is_part else None
        unknown = frozenset(found.unknown | between)
        return Standing(offsets, store, last_ts_ms(store), unknown, named, len(knowing) - 1)


def _earlier(ts_ms: int, known: int | None) -> int:
    return ts_ms if known is None else min(ts_ms, known)


def _changes(event: Mapping[str, Any]) -> Iterator[tuple[_Order, Partition, Mapping[str, Any]]]:
    """Yield each partition of an event, with the order and the values of its change."""
    for in_event, topic in enumerate(event["topics"] or ()):
        for in_topic, row in enumerate(topic["partitions"]):
            order = event["lease_epoch"], event["seq"], in_event, in_topic
            yield order, Partition(topic["topic"], row["partition"]), row


def _committed(row: Mapping[str, Any]) -> Committed:
    return Committed(row["offset"], row["leader_epoch"], row["metadata"])


def _is_cut_off(kind: str, row: Mapping[str, Any]) -> bool:
    """Return True for a change before which changes of the same partition may be missing.

    This is so for the first known change in an import, which may be a tombstone: Kafka's compaction
    may have removed earlier changes.
    """
    is_first_commit = kind == "commit" and row.get("previous_offset") is None
    return is_first_commit or row.get("offset") is None
