"""One event of every kind, for tests that must not miss one."""

from __future__ import annotations

from typing import get_args

import msgspec

from groupkeeper.coordinator.core import events
from groupkeeper.coordinator.core.events import Event
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.records import OffsetsCommitted
from groupkeeper.storage.codec.events import Stamp, event_dict
from groupkeeper.storage.event_log.sealing.snapshots import OffsetsAsOf
from groupkeeper.storage.event_log.snapshot_logs import SnapshotLog
from groupkeeper.storage.segment_lines import EventDict
from tests.helpers.core.records import commit

_LOST = [events.LostTopic("orders", "", [events.LostPartition(0, 5, -1, "", 1)])]

SAMPLES: list[Event | OffsetsCommitted] = [
    commit("g", 1),
    events.CommitRejected(group_id="g", error="ILLEGAL_GENERATION", count=2),
    events.MemberFenced(group_id="g", error="FENCED_INSTANCE_ID"),
    events.MemberJoin(group_id="g", member_id="m", protocols=["range"]),
    events.MemberLeave(group_id="g", member_id="m", reason="closed"),
    events.MemberEvicted(group_id="g", member_id="m", reason="session_timeout"),
    events.RebalanceStart(group_id="g", reason="member_join", members=1),
    events.RebalanceEnd(group_id="g", duration_ms=5, awaited=["m"]),
    events.Assignment(group_id="g", protocol_type="consumer", partitions={"m": {"orders": [0]}}),
    events.TargetAssignment(
        group_id="c",
        group_type=GroupType.CONSUMER,
        assignor="uniform",
        members=1,
        changed_members=1,
        targets={"m": {"orders": [0]}},
    ),
    events.AssignmentFailed(
        group_id="c",
        group_type=GroupType.CONSUMER,
        assignor="uniform",
        reason="timed_out",
        detail="it was killed after 5000 ms",
        members=1,
    ),
    events.PatternRefused(
        group_id="c",
        group_type=GroupType.CONSUMER,
        member_id="m",
        pattern="(",
        detail="missing closing )",
    ),
    events.PartitionsMoved(
        group_id="c",
        group_type=GroupType.CONSUMER,
        member_id="m",
        reason="target_assignment",
        gained_partitions={"orders": [0]},
    ),
    events.GroupConverted(group_id="g", from_type="consumer", to_type="classic", members=1),
    events.GroupCreated(group_id="g"),
    events.GroupDeleted(group_id="g", reason="expired", offsets=3),
    events.OffsetExpired(group_id="g", topics=_LOST),
    events.OffsetDeleted(group_id="g", topics=_LOST, reason="topic_deleted"),
    events.EndOffset(topics=[events.EndTopic("orders", "", [events.EndPartition(1, 9)])]),
    events.ShardLoaded(groups=1, offsets=2, duration_ms=3),
    events.AdminAction(action="set_topic", target="orders"),
    events.LogStarted(previous_log_id="before", previous_seq=0, reason="start"),
]

assert {type(sample) for sample in SAMPLES} == {OffsetsCommitted, *get_args(Event)}


def rendered() -> list[EventDict]:
    """Return the samples as a reader of the log gets them. The wall clock had stepped back."""
    stamp = Stamp("log", 2_000, 1_000)
    return [event_dict(stamp, seq, 0, 1, event) for seq, event in enumerate(SAMPLES, 1)]


def rendered_snapshot() -> list[EventDict]:
    """Return the snapshot that sealing writes in place of deleted events. It has one offset that is
    committed, and one that was lost.
    """
    events = rendered()
    offsets = OffsetsAsOf()
    commit_event = next(event for event in events if event["kind"] == "commit")
    lost_event = next(event for event in events if event["kind"] == "offset_expired")
    lost = msgspec.json.decode(msgspec.json.encode(lost_event))
    lost["topics"][0]["topic"] = "another"
    for event in (commit_event, lost):
        offsets.apply(event)
    return list(offsets.events(SnapshotLog("log", len(events)), 2_000, len(events)))


def encoded_kinds() -> set[str]:
    """Return the kinds of the samples as they are stored."""
    return {
        str(msgspec.json.decode(msgspec.json.encode(sample))["kind"])
        for sample in SAMPLES
        if not isinstance(sample, OffsetsCommitted)
    }
