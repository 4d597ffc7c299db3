"""Computes the offsets at the time before which retention deletes events (pure).

When retention deletes segments (files of events), it keeps the resulting offsets as events of kind
``offset_snapshot``, one for each group. If nothing was ever committed, there is one event without a
group, so a missing snapshot is always an error.

A snapshot is a separate log, ``<log_id>.<through_seq>``. It covers all events of the store up to
``through_seq``, and the seq of its last event is ``through_seq``. So the snapshot sorts before all
events that are left, and no two events have the same identity.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from groupkeeper.storage.codec.events import NO_GROUP_TYPE
from groupkeeper.storage.event_log.snapshot_logs import SNAPSHOT_KIND, SnapshotLog
from groupkeeper.storage.segment_lines import EventDict

NO_GROUP: Final = ""
"""The group of the only snapshot event, if nothing was ever committed."""

MAX_PASS_OFFSETS: Final = 500_000
"""The largest number of offsets in memory at the same time, with about 300 bytes each. If there are
more, the segments are read several times."""


class _Value(NamedTuple):
    """The last value of one offset."""

    topic_id: str
    offset: int
    leader_epoch: int
    metadata: str
    commit_time_ms: int
    expire_time_ms: int
    lost_ts_ms: int
    """When the offset expired or was deleted; -1 if it is still committed."""
    reason: str


_GroupOffsets: TypeAlias = dict[tuple[str, int], _Value]


class OffsetsAsOf:
    """The last value of every offset, after the events applied so far."""

    def __init__(self, part: int = 0, parts: int = 1, max_offsets: int = MAX_PASS_OFFSETS) -> None:
        """Keep only the offsets of some groups. A hash divides all groups into ``parts`` parts, of
        which this object keeps the one with the number ``part``.

        The caller begins with part 0 of 1. If that part has more than ``max_offsets`` offsets,
        ``apply`` doubles ``parts`` and drops the groups that are now in other parts. The caller
        then reads the events again for each of the other parts.
        """
        self.parts = parts
        self.groups: set[str] = set()
        """Every group in the events, of all parts."""
        self._part = part
        self._max_offsets = max_offsets
        self._offsets = 0
        self._kept: dict[str, _GroupOffsets] = {}
        self._epochs: dict[str, int] = {}
        """The lease epoch of each group's last event. The snapshot event has the same one, so that
        later events sort after it."""
        self._types: dict[str, str] = {}
        """The type of each group at its last event."""

    def apply(self, event: EventDict) -> None:
        """Apply the next event. Kinds that do not concern offsets are ignored."""
        kind, group_id = event["kind"], event["group"]
        if kind not in _APPLIES or _is_of_nothing(event):
            return
        self.groups.add(group_id)
        if not self._is_of_part(group_id):
            return
        self._epochs[group_id] = event["lease_epoch"]
        self._types[group_id] = event["group_type"]
        offsets = self._kept.setdefault(group_id, {})
        before = len(offsets)
        _APPLIES[kind](offsets, event)
        self._offsets += len(offsets) - before
        while self._part == 0 and self._offsets > self._max_offsets and len(self._kept) > 1:
            self._halve()

    @property
    def event_count(self) -> int:
        """The number of snapshot events of all parts together."""
        return max(len(self.groups), 1)

    def _is_of_part(self, group_id: str) -> bool:
        return zlib.crc32(group_id.encode()) % self.parts == self._part

    def _halve(self) -> None:
        self.parts *= 2
        self._kept = {g: offsets for g, offsets in self._kept.items() if self._is_of_part(g)}
        self._offsets = sum(map(len, self._kept.values()))

    def events(self, log: SnapshotLog, ts_ms: int, first_seq: int) -> Iterator[EventDict]:
        """Yield the snapshot events of this part, numbered from ``first_seq``."""
        kept = self._kept if self.groups else {NO_GROUP: {}}
        for seq, group_id in enumerate(sorted(kept), start=first_seq):
            offsets = kept[group_id]
            yield {
                "log_id": str(log),
                "seq": seq,
                "ts_ms": ts_ms,
                "shard": -1,
                "lease_epoch": self._epochs.get(group_id, 0),
                "kind": SNAPSHOT_KIND,
                "group": group_id,
                "generation": -1,
                "member_id": "",
                "instance_id": None,
                "client_id": "",
                "client_host": "",
                "principal": "",
                "api": "",
                "group_type": self._types.get(group_id, NO_GROUP_TYPE),
                "topics": _topics(offsets, is_lost=False),
                "lost": _topics(offsets, is_lost=True),
            }


_NOT_LOST: Final = (-1, "")


def _value(
    topic: dict[str, Any],
    row: dict[str, Any],
    times_ms: tuple[int, int],
    lost: tuple[int, str] = _NOT_LOST,
) -> _Value:
    """Return a value with its commit time and its expire time. A removed offset also has the time
    and the reason of its removal.
    """
    stored = topic["topic_id"], row["offset"], row["leader_epoch"], row["metadata"]
    return _Value(*stored, *times_ms, *lost)


def _committed(offsets: _GroupOffsets, event: EventDict) -> None:
    times_ms = event["commit_time_ms"], event["expire_time_ms"]
    for topic, row in _rows(event["topics"]):
        offsets[topic["topic"], row["partition"]] = _value(topic, row, times_ms)


def _expired(offsets: _GroupOffsets, event: EventDict) -> None:
    _lose(offsets, event, "expired")


def _deleted(offsets: _GroupOffsets, event: EventDict) -> None:
    _lose(offsets, event, event["reason"])


def _lose(offsets: _GroupOffsets, event: EventDict, reason: str) -> None:
    for topic, row in _rows(event["topics"]):
        key = topic["topic"], row["partition"]
        before = offsets.get(key)
        expire_time_ms = -1 if before is None else before.expire_time_ms
        times_ms = row["commit_time_ms"], expire_time_ms
        offsets[key] = _value(topic, row, times_ms, (event["ts_ms"], reason))


def _stood(offsets: _GroupOffsets, event: EventDict) -> None:
    for topic, row in _rows([*event["topics"], *event["lost"]]):
        times_ms = row["commit_time_ms"], row.get("expire_time_ms", -1)
        lost = row.get("lost_ts_ms", -1), row.get("reason", "")
        offsets[topic["topic"], row["partition"]] = _value(topic, row, times_ms, lost)


_APPLIES: Final = {
    "commit": _committed,
    "offset_expired": _expired,
    "offset_deleted": _deleted,
    SNAPSHOT_KIND: _stood,
}


def _is_of_nothing(event: EventDict) -> bool:
    """Return True for a snapshot event without offsets."""
    return event["kind"] == SNAPSHOT_KIND and not event["topics"] and not event["lost"]


def _rows(topics: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for topic in topics:
        for row in topic["partitions"]:
            yield topic, row


def _topics(offsets: _GroupOffsets, *, is_lost: bool) -> list[dict[str, Any]]:
    topics: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for (topic, partition), value in sorted(offsets.items()):
        if (value.lost_ts_ms >= 0) is is_lost:
            row: dict[str, Any] = {
                "partition": partition,
                "offset": value.offset,
                "leader_epoch": value.leader_epoch,
                "metadata": value.metadata,
                "commit_time_ms": value.commit_time_ms,
            }
            if is_lost:
                row |= {"lost_ts_ms": value.lost_ts_ms, "reason": value.reason}
            else:
                row["expire_time_ms"] = value.expire_time_ms
            topics.setdefault((topic, value.topic_id), []).append(row)
    return [
        {"topic": topic, "topic_id": topic_id, "partitions": rows}
        for (topic, topic_id), rows in topics.items()
    ]
