"""Bugs put into the code on purpose, one for each rule that worlds check. A world has to find each.

Each is a function that patches the code. ``test_breakages`` runs worlds over it until one fails.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec
import pytest

from groupkeeper.coordinator.core.classic import joining, membership, saved
from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.groups.census import Census
from groupkeeper.coordinator.core.offsets import commit as offset_commit
from groupkeeper.coordinator.core.offsets import fetch as offset_fetch
from groupkeeper.coordinator.core.records import GroupRecord, OffsetsCommitted, OffsetsRemoved
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    SyncGroup,
)
from groupkeeper.coordinator.core.requests.offsets import OffsetFetch, OffsetFetchResult
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.runtime.lane import Lane
from groupkeeper.coordinator.runtime.leases import Leases
from groupkeeper.coordinator.runtime.recovery import Recovery
from groupkeeper.coordinator.runtime.slot import Slot
from groupkeeper.coordinator.server.connection import Connection
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.sqlite.fold import FoldWork, _LargeGroup
from groupkeeper.storage.backends.sqlite.fold_write import FoldWriter
from groupkeeper.storage.backends.sqlite.keyed import LoadedKeys
from groupkeeper.storage.base import Lease, ShardAppend, ShardId
from groupkeeper.storage.codec.events import Stamp
from groupkeeper.storage.event_log.log_clock import LogClock
from tests.helpers.core.handlers import handle_with
from tests.simulation.breakages_of_accounts import ACCOUNTS
from tests.simulation.breakages_of_members import MEMBERS
from tests.simulation.breakages_of_requests import REQUESTS
from tests.simulation.breakages_of_retention import RETENTION
from tests.simulation.breakages_of_timers import TIMERS

Patch = pytest.MonkeyPatch
Breakage = Callable[[Patch], None]


def reply_before_durability(patch: Patch) -> None:
    carry_out = Slot.carry_out

    def hasty(self: Slot, step: Any) -> None:
        step.replies = [msgspec.structs.replace(reply, waits=False) for reply in step.replies]
        waiting, self.unfinished = self.unfinished, None
        for reply in step.replies:
            self.answer(reply)
        step.replies = []
        self.unfinished = waiting
        carry_out(self, step)

    patch.setattr(Slot, "carry_out", hasty)


def store_without_fence(patch: Patch) -> None:
    append = MemoryOffsetStorage.append

    async def unfenced(
        self: MemoryOffsetStorage, items: Sequence[ShardAppend]
    ) -> Collection[ShardId]:
        held = [item._replace(fence=self._epochs.get(item.shard, 0)) for item in items]
        return await append(self, held)

    patch.setattr(MemoryOffsetStorage, "append", unfenced)


def lease_not_taken_again(patch: Patch) -> None:
    """After a failed append the shards are loaded under the old epoch."""

    async def keep(self: Recovery, wanted: Sequence[Slot]) -> None:
        new = [slot for slot in wanted if slot.lease is None]
        for slot in wanted:
            slot.needs_lease = slot.lease is None
        await acquire(self, new)

    acquire = Recovery._acquire_leases
    patch.setattr(Recovery, "_acquire_leases", keep)


def append_without_load(patch: Patch) -> None:
    """The lease is acquired again, but nothing is loaded."""

    async def nothing(*_: Any) -> None:
        pass

    patch.setattr("groupkeeper.coordinator.runtime.recovery.load_records", nothing)


def answered_twice(patch: Patch) -> None:
    release = Slot.release

    def twice(self: Slot, write: Any) -> None:
        first = write.replies[0] if write.replies else None
        release(self, write)
        if first is not None:
            first.ticket.resolve(first.result)

    patch.setattr(Slot, "release", twice)


def dropped_and_not_answered(patch: Patch) -> None:
    patch.setattr(Slot, "close_unanswered", lambda self: [])


def parked_at_a_stop_and_not_answered(patch: Patch) -> None:
    patch.setattr(Slot, "close_parked", lambda self: [])
    patch.setattr(Slot, "close_unanswered", lambda self: [])


def generation_goes_back(patch: Patch) -> None:
    """A stored group starts again from the first generation."""
    apply = ShardState.apply

    def forgetful(self: ShardState, record: Any) -> None:
        apply(self, record)

    def to_record(group: ClassicGroup) -> GroupRecord:
        record = told(group)
        return msgspec.structs.replace(record, generation_id=max(0, record.generation_id % 3))

    told = saved.to_record
    patch.setattr(ShardState, "apply", forgetful)
    patch.setattr(saved, "to_record", to_record)


def owned_twice(patch: Patch) -> None:
    """Every member gets the assignment of the first one."""
    store = membership._store_assignment

    def generous(shard: ShardState, group: ClassicGroup, request: SyncGroup) -> None:
        if request.assignments:
            first = request.assignments[0][1]
            shares = tuple((name, first) for name, _ in request.assignments)
            request = msgspec.structs.replace(request, assignments=shares)
        store(shard, group, request)

    patch.setattr(membership, "_store_assignment", generous)


def event_before_its_record(patch: Patch) -> None:
    carry_out = Slot.carry_out

    def eager(self: Slot, step: Any) -> None:
        if step.events and step.records:
            self.lane.add_events(self, step.events)
            step.events = []
        carry_out(self, step)

    patch.setattr(Slot, "carry_out", eager)


def record_dropped(kind: type) -> Breakage:
    """A change is applied, but never written."""

    def breakage(patch: Patch) -> None:
        def forgetful(self: ShardState, record: Any, size_bytes: int = 0) -> None:
            self.apply(record)
            if type(record) is not kind:
                self.step.records = [*self.step.records, record]

        patch.setattr(ShardState, "record", forgetful)

    return breakage


def spurious_zero(patch: Patch) -> None:
    patch.setattr(offset_fetch, "NO_OFFSET", 0)


def loading_reads_nothing(patch: Patch) -> None:
    """While a shard loads, a fetch returns no offsets."""
    nothing = OffsetFetchResult(ErrorCode.NONE, [])
    patch.setattr(OffsetFetch, "loading_answer", lambda self: nothing)


def zombies_commit(patch: Patch) -> None:
    """A commit is accepted with any generation."""
    judge = ClassicGroup.commit_error

    def lenient(self: ClassicGroup, request: Any) -> ErrorCode:
        error = judge(self, request)
        if error in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            return ErrorCode.NONE
        return error

    patch.setattr(ClassicGroup, "commit_error", lenient)
    patch.setattr(ClassicGroup, "commit_restarts_session", lambda _: False)


def refused_and_stored(patch: Patch) -> None:
    """A commit is stored, but the client gets an error."""
    reply = ShardState.reply

    def contrary(self: ShardState, ticket: Any, result: Any, waits: bool = True) -> None:
        if result is offset_commit._OK and self.now.wall_ms % 7 == 0:
            result = msgspec.structs.replace(result, error=ErrorCode.REBALANCE_IN_PROGRESS)
        reply(self, ticket, result, waits)

    patch.setattr(ShardState, "reply", contrary)


def invented_commit(patch: Patch) -> None:
    """The stored value differs from the one that was sent."""
    record = ShardState.record

    def inventive(self: ShardState, made: Any, size_bytes: int = 0) -> None:
        if isinstance(made, OffsetsCommitted) and self.now.wall_ms % 5 == 0:
            partition, offset, *rest = made.topics[0].partitions[0]
            made.topics[0].partitions[0] = (partition, offset + 10**6, *rest)
        record(self, made, size_bytes)

    patch.setattr(ShardState, "record", inventive)


def metadata_is_lost(patch: Patch) -> None:
    """A commit is stored whole, but kept in memory without its metadata."""
    apply = ShardState._apply_commit

    def forgetful(self: ShardState, record: OffsetsCommitted) -> None:
        topics = [
            msgspec.structs.replace(
                topic,
                partitions=[(*part[:4], "") for part in topic.partitions],
            )
            for topic in record.topics
        ]
        apply(self, msgspec.structs.replace(record, topics=topics))

    patch.setattr(ShardState, "_apply_commit", forgetful)


def leader_epoch_is_not_stored(patch: Patch) -> None:
    record = ShardState.record

    def without(self: ShardState, made: Any, size_bytes: int = 0) -> None:
        for topic in made.topics if isinstance(made, OffsetsCommitted) else ():
            topic.partitions[:] = [(*part[:3], -1, part[4]) for part in topic.partitions]
        record(self, made, size_bytes)

    patch.setattr(ShardState, "record", without)


def metadata_is_not_told(patch: Patch) -> None:
    read = offset_fetch._all_stored

    def without(*arguments: Any, **named: Any) -> Any:
        return [
            (name, topic_id, [(*row[:3], "", row[4]) for row in rows])
            for name, topic_id, rows in read(*arguments, **named)
        ]

    patch.setattr(offset_fetch, "_all_stored", without)


def heartbeat_does_not_count(patch: Patch) -> None:
    beat = membership.heartbeat

    def unheard(*arguments: Any) -> None:
        patch.setattr(ShardState, "restart_session", lambda *_: None)
        try:
            beat(*arguments)
        finally:
            patch.setattr(ShardState, "restart_session", restart)

    restart = ShardState.restart_session
    handle_with(patch, Heartbeat, unheard)


def load_loses_a_slice(patch: Patch) -> None:
    load = MemoryOffsetStorage.load

    async def partly(self: MemoryOffsetStorage, shards: Collection[ShardId]) -> Any:
        async for shard, records in load(self, shards):
            yield shard, records[:-1]

    patch.setattr(MemoryOffsetStorage, "load", partly)


def fold_runs_ahead(patch: Patch) -> None:
    """SQLite: the log counts as folded up to a row that is not folded."""
    patch.setattr(
        "groupkeeper.storage.backends.sqlite.fold.FoldMap.folded_row",
        lambda self, last_row: last_row,
    )


def fold_fails_silently(patch: Patch) -> None:
    """SQLite: the groups of a failed fold count as folded."""
    write = FoldWriter.write

    def silent(self: FoldWriter, writer: Any, work: FoldWork, *rest: Any) -> None:
        write(self, writer, work, *rest)
        work.error, work.has_keyed = None, False

    patch.setattr(FoldWriter, "write", silent)


def part_counts_as_its_group(patch: Patch) -> None:
    """SQLite: a large group counts as folded once its first part is written."""
    begin = _LargeGroup.__init__

    def begun(self: _LargeGroup, key: Any, row: int) -> None:
        begin(self, key, 1 << 60)

    patch.setattr(_LargeGroup, "__init__", begun)


def group_has_no_bound(patch: Patch) -> None:
    patch.setattr("groupkeeper.coordinator.core.offsets.commit.too_much", lambda *_: set())


def replaced_offset_keeps_its_room(patch: Patch) -> None:
    """An offset that replaces another one counts in full."""
    count = offset_commit.too_much
    patch.setattr(offset_commit, "too_much", lambda _, *rest: count({}, *rest))


def groups_have_no_bound(patch: Patch) -> None:
    patch.setattr(Census, "admits", lambda self: True)


def one_group_too_few(patch: Patch) -> None:
    patch.setattr(Census, "admits", lambda self: self.groups + 1 < self.max_groups)


def full_census_turns_all_away(patch: Patch) -> None:
    """If there is no room for another group, requests of existing groups are refused as well."""
    join = joining.join_group

    def strict(shard: ShardState, group: Any, request: JoinGroup, ticket: Any) -> None:
        if shard.census.groups >= shard.census.max_groups:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            shard.reply(ticket, JoinGroupResult(error, request.member_id))
        else:
            join(shard, group, request, ticket)

    handle_with(patch, JoinGroup, strict)


def load_leaves_keys_out_of_their_table(patch: Patch) -> None:
    """SQLite: a row counts as folded although its table lacks it."""
    patch.setattr(LoadedKeys, "missing", lambda self: [])


def seq_used_twice(patch: Patch) -> None:
    append = MemoryOffsetStorage.append

    async def again(self: MemoryOffsetStorage, items: Any) -> Collection[ShardId]:
        self._last_seq -= self._last_seq > 20
        return await append(self, items)

    patch.setattr(MemoryOffsetStorage, "append", again)


def log_time_goes_back(patch: Patch) -> None:
    def raw(self: LogClock) -> Stamp:
        clock_ms = self._clock()
        return Stamp(self._log_id, clock_ms, clock_ms)

    patch.setattr(LogClock, "stamp", raw)


def log_names_a_wrong_end(patch: Patch) -> None:
    started = LogClock.started
    patch.setattr(LogClock, "started", lambda self, last_seq: started(self, last_seq - 1))


def two_appends_at_a_time(patch: Patch) -> None:
    gather = Lane.gather

    def impatient(self: Lane, *arguments: Any) -> Any:
        self._task = None
        return gather(self, *arguments)

    patch.setattr(Lane, "gather", impatient)


def replies_out_of_order(patch: Patch) -> None:
    answered = Connection.answered

    def jump_the_queue(self: Connection, exchange: Any) -> None:
        if self._owed and self._owed[0] is not exchange:
            self._owed.remove(exchange)
            self._owed.insert(0, exchange)
        answered(self, exchange)

    patch.setattr(Connection, "answered", jump_the_queue)


def one_alone_is_fenced(patch: Patch) -> None:
    """If several shards of an append were fenced, all but the first count as written."""
    finish = Lane._finish

    async def lenient(self: Lane, append: Any, fenced: Collection[ShardId]) -> None:
        await finish(self, append, sorted(fenced)[:1])

    patch.setattr(Lane, "_finish", lenient)


def renewal_is_not_heard(patch: Patch) -> None:
    """The runtime ignores that a renewal reports a lost lease. Only an append reports it."""

    async def deaf(self: Leases) -> None:
        held = [slot.lease for slot in self._slots.values() if slot.lease is not None]
        await self._storage.renew(held)

    patch.setattr(Leases, "renew", deaf)


def lease_given_out_twice(patch: Patch) -> None:
    """A store gives a new lease the epoch of the old one."""

    def same(
        self: MemoryOffsetStorage, shards: Collection[ShardId], owner: str
    ) -> dict[ShardId, Lease]:
        self._last_epoch = max(self._last_epoch - 2, 0)
        return take_over(self, shards, owner)

    take_over = MemoryOffsetStorage.take_over
    patch.setattr(MemoryOffsetStorage, "take_over", same)


BREAKAGES: Final[dict[str, tuple[Breakage, str]]] = {
    "a reply before durability": (reply_before_durability, "answered ahead of|not durable"),
    "a store without a fence": (store_without_fence, "accepted, the lease is"),
    "a lease that is not taken again after a failure": (
        lease_not_taken_again,
        "two appends of a shard|replayed|goes on with a lease that is lost",
    ),
    "an epoch that is given out twice": (lease_given_out_twice, "was given out after"),
    "of the fenced shards of an append one alone": (
        one_alone_is_fenced,
        "answered ahead of|not durable|replayed",
    ),
    "a renewal that is not heard": (renewal_is_not_heard, "goes on with a lease that is lost"),
    "a new lease without a load": (append_without_load, "was not loaded"),
    "two appends at a time": (two_appends_at_a_time, "two appends of a shard|replayed"),
    "an answer given twice": (answered_twice, "answered twice"),
    "a dropped shard that answers nobody": (
        dropped_and_not_answered,
        " ms for |never answered|is stuck",
    ),
    "a stop that answers nobody": (
        parked_at_a_stop_and_not_answered,
        " ms for |never answered|is stuck",
    ),
    "replies out of order": (replies_out_of_order, "replies out of order"),
    "a generation that goes back": (generation_goes_back, "in Stable|in Empty|generation"),
    "a partition owned twice": (owned_twice, "are held by"),
    "a commit of another generation": (zombies_commit, "accepted of|from outside|is answered"),
    "an event before its record": (event_before_its_record, "before its record|made was"),
    "a commit that is not written": (record_dropped(OffsetsCommitted), "not durable|replayed"),
    "a removal that is not written": (record_dropped(OffsetsRemoved), "still stored|replayed"),
    "a commit that was refused and is stored": (refused_and_stored, "and is stored"),
    "a commit that nobody made": (invented_commit, "nobody committed it|not durable"),
    "metadata that is lost": (metadata_is_lost, "replayed"),
    "a leader epoch that is not stored": (leader_epoch_is_not_stored, "is kept with"),
    "metadata that is not told": (metadata_is_not_told, "was read with"),
    "a spurious zero": (spurious_zero, ": 0 was read"),
    "offsets that look like none while loading": (
        loading_reads_nothing,
        "by no shard|-1 was read",
    ),
    "a load that loses records": (load_loses_a_slice, "replayed"),
    "a fold that runs ahead of the log": (fold_runs_ahead, "replayed|loaded"),
    "a fold that fails and is not told": (fold_fails_silently, "replayed|loaded"),
    "a part that counts as its group": (part_counts_as_its_group, "replayed|loaded"),
    "a group without a bound": (group_has_no_bound, "larger than"),
    "a bound of a group that counts a replaced offset": (
        replaced_offset_keeps_its_room,
        "is refused, and",
    ),
    "groups without a bound": (groups_have_no_bound, "one group more"),
    "a bound of groups that is met one too early": (one_group_too_few, "turned away from"),
    "a bound of groups that turns away those that there are": (
        full_census_turns_all_away,
        "turned away, and is there",
    ),
    "a table that misses what a row set": (load_leaves_keys_out_of_their_table, "replayed"),
    "a heartbeat that does not count": (heartbeat_does_not_count, "silent for|before its session"),
    "a seq that is used twice": (seq_used_twice, "of the log"),
    "a log whose time goes back": (log_time_goes_back, "ts_ms"),
    "a log that names a wrong end": (log_names_a_wrong_end, "log_started"),
    **ACCOUNTS,
    **MEMBERS,
    **REQUESTS,
    **RETENTION,
    **TIMERS,
}
"""Maps a broken rule (docs/contribute/breakages.md) to the function that patches the code, and a
regex for the failure that a world reports.
"""
