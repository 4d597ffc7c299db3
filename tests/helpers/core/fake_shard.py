"""A shard without the logic of groups, for tests of the runtime. The request decides what it does.

A commit makes a record and a reply. A fetch makes a reply only. A join is parked until the next
leave. A heartbeat is answered at once. A group id that begins with ``bug`` raises an error, and one
that begins with ``work`` makes the shard ask for work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groupkeeper.coordinator.core.cluster.group_configs import GroupOverrides
from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberFenced, RebalanceStart
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.records import (
    CommittedTopic,
    OffsetsCommitted,
    Record,
    SavedGroup,
)
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
)
from groupkeeper.coordinator.core.requests.offsets import (
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchResult,
)
from groupkeeper.coordinator.core.step import Reply, Step, Ticket
from groupkeeper.coordinator.core.work import Work, WorkOutcome


class FakeShard:
    """A shard with the interface of ``Shard``. It records what it is called with."""

    def __init__(self, shard_id: int, limits: CoreLimits, image: TopicImage) -> None:
        self.shard_id = shard_id
        self.applied: list[Record] = []
        self.parked: list[Ticket] = []
        self.deadlines: list[int] = []
        self.expired_at: list[int] = []
        self.done: list[tuple[Work, WorkOutcome]] = []
        self.stops_ms: list[int] = []
        self.images = [image]
        self.overrides: Mapping[str, GroupOverrides] = {}

    def handle(self, request: Any, ticket: Ticket, now: Now) -> Step:
        step = Step(records=[], events=[], sets_alarm=bool(self.deadlines))
        if request.group_id.startswith("bug"):
            raise ZeroDivisionError("a bug of the core")
        if request.group_id.startswith("work"):
            step.work = [Work(group_id=request.group_id, epoch=1)]
        if isinstance(request, Heartbeat):
            if request.member_id == "fenced":
                event = MemberFenced(
                    group_id=request.group_id, member_id="fenced", error="FENCED_INSTANCE_ID"
                )
                step.events.append(event)
                step.replies.append(Reply(ticket, ErrorCode.FENCED_INSTANCE_ID))
            elif request.member_id == "unknown":
                step.replies.append(Reply(ticket, ErrorCode.UNKNOWN_MEMBER_ID))
            else:
                step.answer = ErrorCode.NONE
        elif isinstance(request, OffsetCommit):
            record = _record(request, now)
            self.apply(record)
            step.records.append(record)
            step.record_bytes = len(repr(record))
            step.replies.append(Reply(ticket, OffsetCommitResult(ErrorCode.NONE)))
        elif isinstance(request, OffsetFetch):
            step.replies.append(Reply(ticket, OffsetFetchResult(ErrorCode.NONE, [])))
        elif isinstance(request, JoinGroup):
            self.parked.append(ticket)
            step.events.append(RebalanceStart(group_id=request.group_id, reason="a join"))
        elif isinstance(request, LeaveGroup):
            step.replies += [
                Reply(parked, JoinGroupResult(ErrorCode.NONE, "m")) for parked in self.parked
            ]
            self.parked.clear()
            step.replies.append(Reply(ticket, LeaveGroupResult(ErrorCode.NONE)))
        return step

    def expire(self, now: Now) -> Step:
        self.expired_at.append(now.monotonic_ms)
        self.deadlines = [at for at in self.deadlines if at > now.monotonic_ms]
        return Step()

    def work_done(self, work: Work, outcome: WorkOutcome, now: Now) -> Step:
        self.done.append((work, outcome))
        return Step()

    def topics_changed(self, image: TopicImage, now: Now) -> Step:
        self.images.append(image)
        return Step()

    def configs_changed(self, overrides: Mapping[str, GroupOverrides], now: Now) -> Step:
        self.overrides = overrides
        return Step()

    def next_deadline(self) -> int | None:
        return min(self.deadlines, default=None)

    def apply(self, record: Record) -> None:
        self.applied.append(record)

    def loaded(self, now: Now) -> Step:
        return Step()

    def resumed(self, stopped_ms: int, now: Now) -> Step:
        self.stops_ms.append(stopped_ms)
        return Step()

    def load_group(self, group_id: str, records: Sequence[Record], now: Now) -> Step:
        self.applied += records
        return Step()

    def saved(self, group_id: str) -> SavedGroup | None:
        return None

    def ends(self) -> Mapping[tuple[str, int], int]:
        return {}

    def group_count(self) -> int:
        return len(self.applied)

    def offset_count(self) -> int:
        return len(self.applied)


def _record(request: OffsetCommit, now: Now) -> OffsetsCommitted:
    topics = [
        CommittedTopic(name, "", [(p, o, -1, e, m or "") for p, o, e, m in parts])
        for name, _, parts in request.topics
    ]
    return OffsetsCommitted(
        request.group_id,
        -1,
        "",
        None,
        "app",
        "/10.0.0.1",
        "User:ANONYMOUS",
        now.wall_ms,
        -1,
        topics,
    )
