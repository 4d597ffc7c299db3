"""Drives one pure ``Shard`` with a virtual clock, and keeps everything that the shard returned.

After every step the driver checks what must be true in each test: a ticket is answered at most
once, ``parked_tickets`` returns exactly the calls that still wait for an answer, only a heartbeat
may be answered before earlier records are durable, and the invariants hold
(``tests.helpers.core.invariants``).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.records import (
    JournalPosition,
    PartitionEnd,
    PendingOffsets,
    SavedGroup,
)
from groupkeeper.coordinator.core.requests.admin import DescribeGroup, ListGroups
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from groupkeeper.coordinator.core.requests.offsets import (
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetch,
)
from groupkeeper.coordinator.core.requests.transactions import (
    EndedTransaction,
    EndTransactions,
    TxnOffsetCommit,
    TxnOffsetCommitResult,
)
from groupkeeper.coordinator.core.shard import Shard
from groupkeeper.coordinator.core.work import Work, WorkOutcome
from tests.helpers.core.invariants import (
    check,
    check_alarm,
    due_at,
    parked_tickets,
    spelled_out,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from groupkeeper.coordinator.core.declarations import Result
    from groupkeeper.coordinator.core.events import Event
    from groupkeeper.coordinator.core.records import Record
    from groupkeeper.coordinator.core.requests.request import Request
    from groupkeeper.coordinator.core.step import Reply, Step

START_MONOTONIC_MS = 1_000_000
START_WALL_MS = 1_700_000_000_000
CLIENT = Client("app", "/10.0.0.1")
SESSION_MS = 10_000
REBALANCE_MS = 60_000
NEW_MEMBER_MS = 300_000

ORDERS = TopicInfo("orders", "AAAAAAAAAAAAAAAAAAAAAQ", 12)
PAYMENTS = TopicInfo("payments", "AAAAAAAAAAAAAAAAAAAAAg", 4)
IMAGE = TopicImage.of(ORDERS, PAYMENTS)

JOURNAL_ID = "AAAAAAAAAAAAAAAAAAAAAw"

E = TypeVar("E")


@dataclass(eq=False)
class Call:
    """A request that was sent to the shard. It is its own ticket, and keeps the reply."""

    request: Request
    number: int
    reply: Reply | None = None
    dropped: bool = False
    """True if the shard was rebuilt while this call was parked. The runtime answers such calls."""

    @property
    def parked(self) -> bool:
        """Return True if the call still waits for an answer."""
        return self.reply is None and not self.dropped

    @property
    def result(self) -> Any:
        """Return the answer; asserts that there is one."""
        assert self.reply is not None, f"not answered: {self.request}"
        return self.reply.result

    @property
    def error(self) -> ErrorCode:
        """Return the request-wide error of the answer."""
        result: Result = self.result
        return result if isinstance(result, ErrorCode) else result.error

    @property
    def member_id(self) -> str:
        """Return the member id in the answer to a join."""
        member_id: str = self.result.member_id
        return member_id

    def partition_errors(self) -> dict[tuple[str, int], ErrorCode]:
        """Return the answer to an OffsetCommit or TxnOffsetCommit, by (name, or id where no name is
        known, and partition).
        """
        result: OffsetCommitResult | TxnOffsetCommitResult = self.result
        if result.topics is not None:
            assert result.error is ErrorCode.NONE, "each partition has its own"
            assert len({(name, tid) for name, tid, _ in result.topics}) == len(result.topics)
            return {
                (name or tid, index): error
                for name, tid, partitions in result.topics
                for index, error in partitions
            }
        assert isinstance(self.request, OffsetCommit | TxnOffsetCommit)
        return {
            (name or tid, part[0]): result.error
            for name, tid, partitions in self.request.topics
            for part in partitions
        }

    def offsets(self) -> dict[tuple[str, int], int]:
        """Return an OffsetFetch's offsets by (name, or id where no name is known, and
        partition).
        """
        return {
            (name or tid, part[0]): part[1]
            for name, tid, partitions in self.result.topics
            for part in partitions
        }


def protocols(*names: str, subscription: bytes = b"sub") -> tuple[JoinProtocol, ...]:
    """Return protocols of these names, all with the same metadata."""
    return tuple(JoinProtocol(name, subscription) for name in names)


def a_join(group_id: str = "g", member_id: str = "", **changes: Any) -> JoinGroup:
    """Return a JoinGroup of a modern consumer (v9), except for the given changes."""
    fields: dict[str, Any] = {
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": protocols("range"),
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "new_member_id": "minted",
        "requires_known_member_id": True,
        "supports_skip_assignment": True,
        "client": CLIENT,
    }
    return JoinGroup(group_id=group_id, member_id=member_id, **{**fields, **changes})


class ShardDriver:
    """One shard, one clock, and all calls, records, events and steps so far."""

    def __init__(
        self,
        limits: CoreLimits | None = None,
        image: TopicImage = IMAGE,
        **limit_changes: Any,
    ) -> None:
        """Start with an empty shard that was loaded from an empty store."""
        self.limits = limits or CoreLimits(**limit_changes)
        self.image = image
        self.now = Now(START_MONOTONIC_MS, START_WALL_MS)
        self.calls: list[Call] = []
        self.records: list[Record] = []
        self.events: list[Event] = []
        self.steps: list[Step] = []
        self.work: list[Work] = []
        """The work that the shard has asked for and that has no outcome yet."""
        self.producers: dict[str, int] = {}
        """Pending id of a TxnOffsetCommit -> its producer id."""
        self._open: set[Call] = set()
        self._minted: Counter[str] = Counter()
        self.shard = Shard(0, self.limits, self.image)
        self._take(self.shard.loaded(self.now))

    # --- Requests --------------------------------------------------------------------------------

    def send(self, request: Request) -> Call:
        """Send a request to the shard, and then let it handle the deadlines that are due now."""
        call = Call(request, len(self.calls))
        self.calls.append(call)
        self._open.add(call)
        before = due_at(self.shard, request)
        try:
            step = spelled_out(self.shard.handle(request, call, self.now), call)
        except Exception:
            self._open.discard(call)
            raise
        check_alarm(self.shard, request, before, step)
        if request.reads:
            assert [reply.ticket for reply in step.replies] == [call]
            assert not step.records
        self._take(step)
        self._expire_due()
        return call

    def mint(self, prefix: str) -> str:
        """Return a new member id, as the handler would make it. It begins with ``prefix``."""
        self._minted[prefix] += 1
        return f"{prefix}-{self._minted[prefix]}"

    def join(self, group_id: str = "g", member_id: str = "", **changes: Any) -> Call:
        """Send a JoinGroup. ``changes`` are its fields. ``version`` sets the two fields that depend
        on the version.
        """
        instance_id = changes.get("group_instance_id")
        client: Client = changes.get("client", CLIENT)
        if "new_member_id" not in changes:
            changes["new_member_id"] = self.mint(instance_id or client.client_id or "anon")
        if "version" in changes:
            version = changes.pop("version")
            changes.setdefault("requires_known_member_id", version >= 4)
            changes.setdefault("supports_skip_assignment", version >= 9)
        return self.send(a_join(group_id, member_id, **changes))

    def sync(self, group_id: str, member_id: str, generation_id: int, **changes: Any) -> Call:
        """Send a SyncGroup; ``assignments`` is a mapping from member id to bytes."""
        assignments = changes.pop("assignments", {})
        if isinstance(assignments, dict):
            assignments = tuple(assignments.items())
        fields: dict[str, Any] = {
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": None,
            "client": CLIENT,
        }
        return self.send(
            SyncGroup(
                group_id=group_id,
                generation_id=generation_id,
                member_id=member_id,
                assignments=assignments,
                **{**fields, **changes},
            )
        )

    def heartbeat(
        self, group_id: str, member_id: str, generation_id: int, instance_id: str | None = None
    ) -> Call:
        """Send a Heartbeat."""
        return self.send(Heartbeat(group_id, generation_id, member_id, instance_id, CLIENT))

    def leave(self, group_id: str, *members: LeavingMember | str) -> Call:
        """Send a LeaveGroup; a plain string is a member id."""
        leaving = tuple(LeavingMember(m, None) if isinstance(m, str) else m for m in members)
        return self.send(LeaveGroup(group_id, leaving, CLIENT))

    def commit(self, group_id: str = "g", topics: Any = None, **changes: Any) -> Call:
        """Send an OffsetCommit. ``topics`` is ``{name: {partition: offset}}``, or as in the
        request.
        """
        fields: dict[str, Any] = {
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "by_topic_id": False,
            "retention_ms": -1,
            "absent_group_error": ErrorCode.GROUP_ID_NOT_FOUND,
            "client": CLIENT,
        }
        fields.update(changes)
        if topics is None:
            topics = {"orders": {0: 100}}
        if isinstance(topics, dict):
            topics = [
                (
                    "" if fields["by_topic_id"] else key,
                    key if fields["by_topic_id"] else "",
                    [(partition, offset, -1, "") for partition, offset in offsets.items()],
                )
                for key, offsets in topics.items()
            ]
        return self.send(OffsetCommit(group_id=group_id, topics=topics, **fields))

    def txn_commit(
        self, pending_id: str, producer_id: int = 9, topics: Any = None, **changes: Any
    ) -> Call:
        """Send a TxnOffsetCommit. ``topics`` is ``{name: {partition: offset}}``, or as in the
        request.
        """
        if topics is None:
            topics = {"orders": {0: 100}}
        self.producers[pending_id] = producer_id
        if isinstance(topics, dict):
            topics = [
                (name, "", [(partition, offset, -1, "") for partition, offset in offsets.items()])
                for name, offsets in topics.items()
            ]
        fields: dict[str, Any] = {
            "group_id": "g",
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "producer_epoch": 0,
            "client": CLIENT,
        }
        return self.send(
            TxnOffsetCommit(
                topics=topics,
                producer_id=producer_id,
                pending_id=pending_id,
                **{**fields, **changes},
            )
        )

    def end_transactions(
        self, *pending_ids: str, commit: bool = True, position: int = 1
    ) -> ErrorCode:
        """End pending offsets, as a marker of their producer in the journal does. Return
        the error.
        """
        ended = tuple(
            EndedTransaction(self.producers.get(each, 9), (each,), commit) for each in pending_ids
        )
        return self.send(EndTransactions(0, ended, JOURNAL_ID, position)).error

    def fetch(
        self, group_id: str = "g", topics: dict[str, Sequence[int]] | None = None, **changes: Any
    ) -> Call:
        """Send an OffsetFetch. ``topics`` is ``{name or id: partitions}``, or None for all
        topics.
        """
        by_id = changes.get("by_topic_id", False)
        named = (
            None
            if topics is None
            else [("" if by_id else k, k if by_id else "", list(v)) for k, v in topics.items()]
        )
        fields: dict[str, Any] = {"by_topic_id": by_id, "require_stable": False}
        return self.send(OffsetFetch(group_id=group_id, topics=named, **{**fields, **changes}))

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> Any:
        """Send a ListGroups and return the groups, by id."""
        call = self.send(ListGroups(frozenset(states), frozenset(types)))
        assert call.error is ErrorCode.NONE
        return {group.group_id: group for group in call.result.groups}

    def describe(self, group_id: str = "g") -> Any:
        """Send a DescribeGroup and return its result."""
        return self.send(DescribeGroup(group_id)).result

    def state(self, group_id: str = "g") -> str:
        """Return the state of a group in Kafka's spelling, as DescribeGroup shows it."""
        return str(self.describe(group_id).state)

    def change_topics(self, *topics: TopicInfo) -> Step:
        """Give the shard a new image of exactly these topics."""
        self.image = TopicImage.of(*topics)
        return self._take(self.shard.topics_changed(self.image, self.now))

    def finish_work(self, outcome: WorkOutcome) -> Step:
        """Pass the shard the outcome of its oldest open work."""
        return self._take(self.shard.work_done(self.work.pop(0), outcome, self.now))

    # --- Time ------------------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Let time pass. The shard handles each deadline at its time."""
        end = self.now.monotonic_ms + ms
        while (due := self.shard.next_deadline()) is not None and due <= end:
            self._move_to(max(due, self.now.monotonic_ms))
            self._expire_due()
        self._move_to(end)

    def stop_for(self, ms: int) -> Step:
        """Suspend the shard for this time, and then resume it."""
        self._move_to(self.now.monotonic_ms + ms)
        step = self._take(self.shard.resumed(ms, self.now))
        self._expire_due()
        return step

    def advance_until_answered(self, *calls: Call, limit_ms: int = 3_600_000) -> int:
        """Let time pass, deadline by deadline, until all calls are answered. Return how long it
        took, in milliseconds.
        """
        start = self.now.monotonic_ms
        while any(call.parked for call in calls):
            due = self.shard.next_deadline()
            assert due is not None, "calls are parked and nothing will ever wake them"
            assert due - start <= limit_ms, f"not answered within {limit_ms} ms"
            self.advance(max(0, due - self.now.monotonic_ms))
        return self.now.monotonic_ms - start

    def _move_to(self, monotonic_ms: int) -> None:
        passed = monotonic_ms - self.now.monotonic_ms
        assert passed >= 0
        self.now = Now(monotonic_ms, self.now.wall_ms + passed)

    def _expire_due(self) -> None:
        for _ in range(10_000):
            due = self.shard.next_deadline()
            if due is None or due > self.now.monotonic_ms:
                return
            self._take(self.shard.expire(self.now))
        raise AssertionError("expire() makes no progress: next_deadline() stays in the past")

    # --- Bookkeeping -----------------------------------------------------------------------------

    def _take(self, step: Step) -> Step:
        for reply in step.replies:
            call = reply.ticket
            assert isinstance(call, Call)
            assert call.reply is None, f"answered twice: {call.request}"
            assert call in self._open, f"answered after it was dropped: {call.request}"
            call.reply = reply
            self._open.discard(call)
            may_overtake = may_answer_early(call.request, reply.result)
            if may_overtake is None:
                continue
            assert reply.waits is not may_overtake, f"waits={reply.waits}: {reply.result}"
        self.records += step.records
        self.events += step.events
        self.steps.append(step)
        self.work += step.work
        parked = parked_tickets(self.shard)
        assert len(parked) == len(self._open), (parked, self._open)
        assert set(parked) == self._open
        check(self.shard)
        return step

    def everything_answered(self) -> bool:
        """Return True if no call waits for an answer."""
        return not self._open

    def events_of(self, kind: type[E], since: int = 0) -> list[E]:
        """Return the events of one kind, from position ``since`` in ``events`` on."""
        return [event for event in self.events[since:] if isinstance(event, kind)]

    def records_of(self, kind: type[E], since: int = 0) -> list[E]:
        """Return the records of one kind, from position ``since`` in ``records`` on."""
        return [record for record in self.records[since:] if isinstance(record, kind)]

    # --- Restart ---------------------------------------------------------------------------------

    def saved(self) -> dict[str, SavedGroup]:
        """Return the saved state of every group."""
        return saved_groups(self.shard)

    def replayed(self) -> Shard:
        """Return a shard made from every record so far."""
        return replay(self.records, self.limits, self.image)

    def folded(self) -> Shard:
        """Return a shard made from what a fold writes: saved groups, and beside them partition
        ends, pending offsets and marks of adoption.
        """
        ends = [record for record in self.records if isinstance(record, PartitionEnd)]
        beside = [*ends, *self.shard.pendings.records(), *self.shard.adoptions.records()]
        return replay([*beside, *saved_groups(self.shard).values()], self.limits, self.image)

    def check_replay(self) -> None:
        """Log, fold and live state must hold the same (docs/design.md#hard-state)."""
        live = self.saved()
        replayed, folded = self.replayed(), self.folded()
        assert saved_groups(replayed) == live
        assert saved_groups(folded) == live
        for group_id, group in live.items():
            assert self.shard.saved(group_id) == group
        pendings = set_of_pendings(self.shard)
        assert set_of_pendings(replayed) == pendings
        assert set_of_pendings(folded) == pendings
        marks = {*self.shard.adoptions.records()}
        assert {*replayed.adoptions.records()} == marks
        assert {*folded.adoptions.records()} == marks
        assert self._ends(replayed) == self._ends(self.shard)
        assert self._ends(folded) == self._ends(self.shard)
        assert replayed.group_count() == self.shard.group_count()
        assert replayed.offset_count() == self.shard.offset_count()

    def _ends(self, shard: Shard) -> dict[tuple[str, int], int]:
        """Return the ends of topics that exist. The shard deletes the other ends with the next
        image.
        """
        known = self.image.by_id
        return {key: end for key, end in shard.ends().items() if key[0] in known}

    def load(self, *records: Record) -> Step:
        """Restart with more records, as if an earlier process had written them."""
        self.records += records
        self.shard = self.replayed()
        return self.reload()

    def reload(self, *, from_fold: bool = False, **limit_changes: Any) -> Step:
        """Restart with a new shard from the records. Parked calls are dropped, like connections."""
        self.check_replay()
        if limit_changes:
            fields = {name: getattr(self.limits, name) for name in self.limits.__slots__}
            self.limits = CoreLimits(**{**fields, **limit_changes})
        for call in self._open:
            call.dropped = True
        self._open.clear()
        self.shard = self.folded() if from_fold else self.replayed()
        step = self._take(self.shard.loaded(self.now))
        self._expire_due()
        return step


def may_answer_early(request: Request, result: Result) -> bool | None:
    """Return True if the answer must not wait for earlier records, False if it must wait, and None
    if both are right.
    """
    if isinstance(request, ConsumerGroupHeartbeat):
        assert isinstance(result, ConsumerGroupHeartbeatResult)
        says_nothing_new = (
            result.error is ErrorCode.NONE
            and result.assignment is None
            and result.member_epoch == request.member_epoch
        )
        return None if says_nothing_new else False
    return not request.waits and result in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)


def replay(records: Iterable[Record], limits: CoreLimits, image: TopicImage) -> Shard:
    """Return a shard that was loaded from these records."""
    shard = Shard(0, limits, image)
    for record in records:
        shard.apply(record)
    return shard


def set_of_pendings(shard: Shard) -> tuple[dict[str, PendingOffsets], JournalPosition | None]:
    """Return the pending offsets of a shard by their id, and its position in the journal."""
    return dict(shard.pendings.by_id), shard.pendings.journal


def saved_groups(shard: Shard) -> dict[str, SavedGroup]:
    """Return group id -> saved state, for every group of a shard."""
    groups = [group.to_saved() for group in shard.groups.values()]
    by_id = {group.group_id: group for group in groups}
    assert len(by_id) == len(groups)
    return by_id


# --- Members ------------------------------------------------------------------------------------


@dataclass(eq=False)
class MemberStub:
    """The client of one classic member. It remembers its id, its generation and the fields of its
    last JoinGroup.
    """

    driver: ShardDriver
    group_id: str = "g"
    member_id: str = ""
    instance_id: str | None = None
    generation_id: int = -1
    leader: str = ""
    fields: dict[str, Any] = field(default_factory=dict)

    def join(self, **changes: Any) -> Call:
        """Send this member's JoinGroup. Call ``joined`` with the answered call."""
        self.fields.update(changes)
        return self.driver.join(
            self.group_id,
            self.member_id,
            group_instance_id=self.instance_id,
            **{"requires_known_member_id": False, **self.fields},
        )

    def joined(self, call: Call) -> None:
        """Take over the member id, the generation and the leader from a successful join."""
        assert call.error is ErrorCode.NONE, call.result
        self.member_id = call.member_id
        self.generation_id = call.result.generation_id
        self.leader = call.result.leader

    @property
    def leads(self) -> bool:
        """Return True if this member is the leader, according to its last join."""
        return self.leader == self.member_id

    def sync(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> Call:
        """Send this member's SyncGroup."""
        fields = {"group_instance_id": self.instance_id, "assignments": assignments or {}}
        return self.driver.sync(
            self.group_id, self.member_id, self.generation_id, **{**fields, **changes}
        )

    def heartbeat(self) -> Call:
        """Send this member's Heartbeat."""
        return self.driver.heartbeat(
            self.group_id, self.member_id, self.generation_id, self.instance_id
        )

    def leave(self) -> Call:
        """Send this member's LeaveGroup."""
        return self.driver.leave(self.group_id, LeavingMember(self.member_id, self.instance_id))

    def commit(self, topics: Any = None, **changes: Any) -> Call:
        """Commit as this member."""
        fields: dict[str, Any] = {
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }
        return self.driver.commit(self.group_id, topics, **{**fields, **changes})


def a_member(driver: ShardDriver, group_id: str = "g", **fields: Any) -> MemberStub:
    """Return a client that has not joined yet. With ``instance_id`` it is static. All other fields
    are those of its JoinGroup.
    """
    instance_id = fields.pop("instance_id", None)
    return MemberStub(driver, group_id, instance_id=instance_id, fields=fields)


def completing(driver: ShardDriver, *members: MemberStub) -> list[MemberStub]:
    """Let all members join. The group is then in CompletingRebalance. Return them, the leader
    first.
    """
    calls = [member.join() for member in members]
    driver.advance_until_answered(*calls)
    for member, call in zip(members, calls, strict=True):
        member.joined(call)
    return sorted(members, key=lambda member: not member.leads)


def assignment_for(members: Iterable[MemberStub]) -> dict[str, bytes]:
    """Return an assignment with different bytes for every member."""
    return {member.member_id: f"part-of-{member.member_id}".encode() for member in members}


def stable(driver: ShardDriver, *members: MemberStub) -> list[MemberStub]:
    """Let all members join and sync. The group is then Stable. Return them, the leader first."""
    ordered = completing(driver, *members)
    calls = [ordered[0].sync(assignment_for(members)), *(m.sync() for m in ordered[1:])]
    assert [call.error for call in calls] == [ErrorCode.NONE] * len(calls)
    assert driver.state(ordered[0].group_id) == "Stable"
    return ordered


def a_stable_group(
    driver: ShardDriver, group_id: str = "g", members: int = 2, **fields: Any
) -> list[MemberStub]:
    """Return a Stable group of dynamic members, the leader first."""
    return stable(driver, *(a_member(driver, group_id, **fields) for _ in range(members)))


def heartbeat_through(driver: ShardDriver, ms: int, *members: MemberStub) -> list[ErrorCode]:
    """Let time pass while these members heartbeat every three seconds. Return their last
    answers.
    """
    left = ms
    answers: list[ErrorCode] = []
    while left > 0:
        pause = min(3_000, left)
        driver.advance(pause)
        left -= pause
        answers = [member.heartbeat().error for member in members]
    return answers
