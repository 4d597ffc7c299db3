"""Reads the history of a group's committed offsets, and commits offsets from it again."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.core.records import NO_LEADER_EPOCH, NO_OFFSET
from groupkeeper.coordinator.core.wire_values import Int32, Int64, int64, text
from groupkeeper.coordinator.embed.messages import (
    OffsetCommitData,
    OffsetCommitRequest,
    OffsetCommitResponse,
    raise_first,
)
from groupkeeper.storage.base import KeepsEvents, OffsetStorage, StorageError
from groupkeeper.storage.event_log.snapshot_logs import SNAPSHOT_KIND
from groupkeeper.storage.host_values import checked
from groupkeeper.storage.segment_lines import COMMIT_KIND, EventDict

_VALUE_KINDS: Final = frozenset({COMMIT_KIND, SNAPSHOT_KIND})
_LOST_IN: Final = {"offset_deleted": "topics", "offset_expired": "topics", SNAPSHOT_KIND: "lost"}
"""Kind of event -> its field with removed offsets. A snapshot has removed and current offsets."""

REPLAY_PARTITIONS: Final = 1_000
"""The number of offsets that ``replay`` commits with one request."""


@dataclass(frozen=True, slots=True)
class OffsetCommitLog:
    """One entry: the offset of a partition was committed or removed."""

    group_id: str
    topic: str
    partition: Int32
    offset: Int64
    """-1 if the offset was deleted or expired. A -1 that a client committed looks the same. Other
    negative offsets were committed as they are."""
    metadata: str
    timestamp_ms: int
    """When the entry was written. It never decreases within a log."""
    member_id: str
    """"" for a simple consumer or an administrator."""
    generation_id: int = -1
    leader_epoch: Int32 = NO_LEADER_EPOCH
    client_id: str = ""
    previous_offset: int = NO_OFFSET
    """The offset before this entry; -1 if there was none. Also -1 if the entry is a current offset
    of a snapshot."""


async def read_commit_log(
    storage: OffsetStorage, group_id: str, since_ms: int = 0
) -> AsyncIterator[OffsetCommitLog]:
    """Yield the history of a group's offsets from ``since_ms`` on (wall clock), oldest first. It
    begins with the oldest event that the storage still has.

    Raises StorageError if the storage keeps no events.
    """
    group_id, since_ms = text("group_id", group_id), int64("since_ms", since_ms)
    if not isinstance(storage, KeepsEvents):
        raise StorageError(f"{type(storage).__name__} keeps no events, so there is no commit log")
    async for event in storage.history(group_id, since_ms):
        for entry in entries_of(event):
            yield entry


def entries_of(event: EventDict) -> Iterator[OffsetCommitLog]:
    """Yield the entries of an event of the log. Most kinds of events have no entries."""
    kind = event["kind"]
    if kind in _VALUE_KINDS:
        yield from _values(event)
    if kind in _LOST_IN:
        yield from _losses(event, event[_LOST_IN[kind]])


def _values(event: EventDict) -> Iterator[OffsetCommitLog]:
    is_snapshot = event["kind"] == SNAPSHOT_KIND  # a snapshot has no previous offsets
    for topic in event["topics"]:
        for each in topic["partitions"]:
            yield OffsetCommitLog(
                **_common(event, topic, each),
                offset=each["offset"],
                metadata=each["metadata"],
                leader_epoch=each["leader_epoch"],
                previous_offset=NO_OFFSET if is_snapshot else each["previous_offset"],
            )


def _losses(event: EventDict, topics: list[dict[str, Any]]) -> Iterator[OffsetCommitLog]:
    for topic in topics:
        for each in topic["partitions"]:
            yield OffsetCommitLog(
                **_common(event, topic, each),
                offset=NO_OFFSET,
                metadata="",
                previous_offset=each["offset"],
            )


def _common(event: EventDict, topic: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that committed and removed offsets share."""
    return {
        "group_id": event["group"],
        "topic": topic["topic"],
        "partition": row["partition"],
        "timestamp_ms": event["ts_ms"],
        "member_id": event["member_id"],
        "generation_id": event["generation"],
        "client_id": event["client_id"],
    }


class CommitsOffsets(Protocol):
    """The target of ``replay``: a GroupCoordinator, or an object with these two methods."""

    async def commit_offsets(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Store the offsets. Those without an error in the answer are durable."""
        ...

    async def delete_offsets(
        self, group_id: str, partitions: Mapping[str, Iterable[int]]
    ) -> Mapping[str, Mapping[int, ErrorCode]]:
        """Delete the offsets of these partitions. Return an error code for each."""
        ...


_CALLS: Final = ("commit_offsets", "delete_offsets")

_Offsets = dict[tuple[str, int], OffsetCommitLog]


async def replay(
    entries: AsyncIterable[OffsetCommitLog] | Iterable[OffsetCommitLog], into: CommitsOffsets
) -> int:
    """Commit or delete the offset of each partition, as its last entry says. Return the number of
    offsets written or deleted.

    Filter the entries to restore the offsets of an earlier moment, or to leave a topic out.

    Raises GroupError if a group refuses the change, for example because it has members. Raises
    TypeError or ValueError for an invalid entry or an invalid ``into``, before anything is written.
    """
    _check_into(into)
    groups: dict[str, _Offsets] = {}

    def take(given: object) -> None:
        if not isinstance(given, OffsetCommitLog):
            raise TypeError(f"each of entries must be an OffsetCommitLog, not {given!r}")
        entry = checked(given, OffsetCommitLog)
        groups.setdefault(entry.group_id, {})[entry.topic, entry.partition] = entry

    if isinstance(entries, AsyncIterable):
        async for entry in entries:
            take(entry)
    elif isinstance(entries, Iterable):
        for entry in entries:
            take(entry)
    else:
        raise TypeError(
            "entries must be OffsetCommitLog entries, such as coordinator.commit_log(group_id) or "
            f"a list, not {entries!r}"
        )
    for group_id, offsets in groups.items():
        await _write(group_id, offsets, into)
    return sum(map(len, groups.values()))


def _check_into(into: object) -> None:
    is_object = not isinstance(into, type)
    if not is_object or any(not callable(getattr(into, name, None)) for name in _CALLS):
        raise TypeError(
            "into must be a GroupCoordinator that was started, not its storage, or an object with "
            f"its {' and '.join(_CALLS)}, not {into!r}"
        )


async def _write(group_id: str, offsets: _Offsets, into: CommitsOffsets) -> None:
    kept = [entry for entry in offsets.values() if entry.offset != NO_OFFSET]
    for start in range(0, len(kept), REPLAY_PARTITIONS):
        rows: dict[str, dict[int, OffsetCommitData]] = {}
        for entry in kept[start : start + REPLAY_PARTITIONS]:
            data = OffsetCommitData(entry.offset, entry.metadata, entry.leader_epoch)
            rows.setdefault(entry.topic, {})[entry.partition] = data
        request = OffsetCommitRequest(group_id=group_id, offsets=rows, client_id="replay")
        (await into.commit_offsets(request)).raise_for_error()
    gone: dict[str, list[int]] = {}
    for entry in offsets.values():
        if entry.offset == NO_OFFSET:
            gone.setdefault(entry.topic, []).append(entry.partition)
    if gone:
        await _delete(group_id, gone, into)


async def _delete(group_id: str, gone: Mapping[str, list[int]], into: CommitsOffsets) -> None:
    try:
        raise_first(await into.delete_offsets(group_id, gone))
    except GroupError as error:
        # a group that does not exist has no offsets to delete
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
