"""Builds events for readers: complete, flat dicts, with one schema for every backend (pure).

The schema is in ``storage.event_log.event_kinds``. A house test checks that both agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from groupkeeper.coordinator.core.events import Event
from groupkeeper.coordinator.core.records import OffsetsCommitted, Record
from groupkeeper.storage.segment_lines import COMMIT_KIND, ROW_FIELDS, EventDict

NO_GROUP_TYPE: Final = ""
"""The ``group_type`` of an event that belongs to no group."""


class Stamp(NamedTuple):
    """The fields that the writer of the log adds to all events of one append."""

    log_id: str
    ts_ms: int
    """The wall-clock time of the append. It never decreases within a log."""
    clock_ms: int
    """The time of the clock. It differs from ``ts_ms`` only after the clock was set back."""


def count_events(records: Sequence[Record], events: Sequence[Event]) -> int:
    """Return the number of events in a batch: its events, and one more for each commit."""
    if len(records) == 1:
        return len(events) + (type(records[0]) is OffsetsCommitted)
    return len(events) + [type(record) for record in records].count(OffsetsCommitted)


def batch_events(
    records: Sequence[Record], events: Sequence[Event]
) -> Iterator[Event | OffsetsCommitted]:
    """Yield the events of a batch in the order of their seq: events, then commits.

    A commit may create its group, and ``group_created`` should come before it.
    """
    yield from events
    for record in records:
        if type(record) is OffsetsCommitted:
            yield record


def event_dict(
    stamp: Stamp, seq: int, shard: int, lease_epoch: int, event: Event | OffsetsCommitted
) -> EventDict:
    """Return one complete event. It has every field of its kind, also those with default values."""
    row = stamp_fields(stamp)
    row |= {"seq": seq, "shard": shard, "lease_epoch": lease_epoch}
    if isinstance(event, OffsetsCommitted):
        row.update(_commit_fields(event))
    else:
        row["kind"] = event.__struct_config__.tag
        names = zip(event.__struct_encode_fields__, event.__struct_fields__, strict=True)
        row.update({stored: _plain(getattr(event, name)) for stored, name in names})
    row["group_type"] = event.group_type.value if event.group_id else NO_GROUP_TYPE
    return row


def stamp_fields(stamp: Stamp) -> EventDict:
    """Return the fields that all events of one append share."""
    fields: EventDict = {"log_id": stamp.log_id, "ts_ms": stamp.ts_ms}
    if stamp.clock_ms != stamp.ts_ms:
        fields["clock_ms"] = stamp.clock_ms
    return fields


def _commit_fields(commit: OffsetsCommitted) -> EventDict:
    return {
        "kind": COMMIT_KIND,
        "group": commit.group_id,
        "generation": commit.generation_id,
        "member_id": commit.member_id,
        "instance_id": commit.group_instance_id,
        "client_id": commit.client_id,
        "client_host": commit.client_host,
        "principal": commit.principal,
        "api": commit.api,
        "commit_time_ms": commit.commit_time_ms,
        "expire_time_ms": commit.expire_time_ms,
        "topics": [
            {
                "topic": topic.topic,
                "topic_id": topic.topic_id,
                "partitions": [dict(zip(ROW_FIELDS, row, strict=True)) for row in topic.partitions],
            }
            for topic in commit.topics
        ],
    }


def _plain(value: Any) -> Any:
    """Return the value, with every struct in it as a dict."""
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
