"""Single events, made by the code that makes them in the daemon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groupkeeper.coordinator.core import events as core
from groupkeeper.coordinator.core.records import (
    CommittedPartition,
    CommittedTopic,
    OffsetsCommitted,
)
from groupkeeper.storage.codec.events import Stamp, event_dict
from groupkeeper.storage.segment_lines import EventDict

DAY_MS = 24 * 60 * 60 * 1000


def at(
    seq: int,
    event: core.Event | OffsetsCommitted,
    ts_ms: int | None = None,
    *,
    log_id: str = "log",
    lease_epoch: int = 1,
) -> EventDict:
    """An event as a segment holds it; without a time it is written at its seq's second."""
    ts_ms = seq * 1000 if ts_ms is None else ts_ms
    return event_dict(Stamp(log_id, ts_ms, ts_ms), seq, 0, lease_epoch, event)


def commit(
    seq: int,
    offsets: Sequence[tuple[Any, ...]],
    *,
    group: str = "g",
    generation: int = 3,
    member: str = "m",
    client_id: str = "app",
    **when: Any,
) -> EventDict:
    """A commit of (topic, partition, offset[, previous offset]); by a member unless told."""
    topics: dict[str, list[CommittedPartition]] = {}
    for topic, partition, offset, *previous in offsets:
        before = previous[0] if previous else -1
        row = (partition, offset, before, 3, "note")
        topics.setdefault(topic, []).append(row)
    record = OffsetsCommitted(
        group_id=group,
        member_id=member,
        group_instance_id=None,
        generation_id=generation,
        client_id=client_id,
        client_host="/10.0.0.1",
        principal="User:ANONYMOUS",
        commit_time_ms=5,
        expire_time_ms=-1,
        topics=[CommittedTopic(name, "", parts) for name, parts in topics.items()],
    )
    return at(seq, record, **when)


def joined(
    seq: int,
    group: str,
    member: str,
    *,
    lease_epoch: int = 1,
    ts_ms: int | None = None,
    **more: Any,
) -> EventDict:
    """A member joins, as the client of the same name."""
    event = core.MemberJoin(group_id=group, member_id=member, client_id=member, **more)
    return at(seq, event, ts_ms, lease_epoch=lease_epoch)
