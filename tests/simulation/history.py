"""The history of a world: every request as its client saw it, and all durable data in order. The
checker compares the two.

A *position* is the number of batches that are durable so far. Positions order all events of a
world.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from groupkeeper.coordinator.core.cluster.image import TopicInfo
from groupkeeper.coordinator.core.events import (
    Assignment,
    Event,
    GroupDeleted,
    LogStarted,
    OffsetDeleted,
    OffsetExpired,
)
from groupkeeper.coordinator.core.records import (
    GroupConfigs,
    GroupRecord,
    GroupRemoved,
    OffsetsAdopted,
    OffsetsCommitted,
    OffsetsRemoved,
    PartitionEnd,
    Record,
    SavedGroup,
    SavedOffset,
    TopicRecord,
    TopicRemoved,
)
from groupkeeper.storage.base import Batch, LeaseEpoch, ShardId
from tests.simulation.ledger import Ledger
from tests.simulation.patience import Timeouts

OffsetKey = tuple[str, str, int]
"""(group, topic, partition)."""

NOTHING = -1


@dataclass(slots=True)
class Op:
    """One request of one client, and its outcome."""

    client: str
    request: Any
    invoked_ms: float
    invoked_at: int
    """The last durable position when it was sent."""
    answered_ms: float | None = None
    answered_at: int | None = None
    """The last durable position when it was answered. None if its client got no answer."""
    result: Any = None
    void_at: int | None = None
    """If the owner had lost its lease before it answered: the position of the loss. The answer may
    be as old as this position.
    """
    allowed_ms: float = 0.0
    """The longest time that its answer may take."""
    is_cut: bool = False
    """True if the connection ended before an answer. The outcome is then unknown."""
    has_epochs: bool = True
    """False if its version has no leader epochs. They are then -1 in requests and results."""
    has_retention: bool = True
    """False if its version has no retention. Its offsets then expire by the rules of
    their group.
    """


class Stored(NamedTuple):
    """The value of a key from this position on."""

    position: int
    offset: int
    topic_id: str
    leader_epoch: int = -1
    metadata: str = ""


class Write(NamedTuple):
    """A durable commit of one partition."""

    position: int
    record: OffsetsCommitted
    leader_epoch: int
    metadata: str


@dataclass
class Durable:
    """All data that was ever stored. Each batch is checked when it becomes durable."""

    position: int = 0
    values: dict[OffsetKey, list[Stored]] = field(default_factory=lambda: defaultdict(list))
    commits: dict[tuple[OffsetKey, int], list[Write]] = field(
        default_factory=lambda: defaultdict(list)
    )
    groups: dict[str, list[tuple[int, GroupRecord | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    topics: dict[str, list[tuple[int, TopicRecord | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    configs: dict[str, list[tuple[int, dict[str, str]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    ends: dict[ShardId, dict[tuple[str, int], int]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """(topic id, partition) -> the stored end, if it is larger than every stored offset."""
    largest: dict[ShardId, dict[tuple[str, int], int]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """(topic id, partition) -> the largest offset ever committed in the shard."""
    saved: dict[str, SavedGroup] = field(default_factory=dict)
    """Group id -> the state that a load must return."""
    events: int = 0
    on_event: Callable[[Event], None] = lambda _: None
    """Called with each event that becomes durable, before its batch is applied here."""
    problems: list[str] = field(default_factory=list)
    """All failures of checks. They are collected here, because an exception would count as a failed
    append.
    """
    void_at: dict[tuple[ShardId, LeaseEpoch], int] = field(default_factory=dict)
    """The position at which a newer lease replaced each lease."""
    _granted: dict[ShardId, LeaseEpoch] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    """All batches that shards made."""
    asked: dict[tuple[str, str], Timeouts] = field(default_factory=dict)
    """The timeouts in the joins of members, even if they were not stored."""
    lost: list[tuple[int, OffsetDeleted | GroupDeleted]] = field(default_factory=list)
    """All deletions, without those of expired offsets."""
    _going: set[OffsetKey] = field(default_factory=set)
    """Offsets that are deleted by the current batch."""

    def granted(self, shard: ShardId, epoch: LeaseEpoch) -> None:
        """Note that a newer lease is durable. From here on nothing may be stored under an older
        one.
        """
        last = self._granted.get(shard)
        if last is not None:
            with self.noting():
                assert epoch > last, f"shard {shard}: epoch {epoch} was given out after {last}"
            self.void_at[shard, last] = self.position
        self._granted[shard] = epoch

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note the failures of checks, for the owner of the world."""
        try:
            yield
        except AssertionError as error:
            self.problem(str(error))

    def problem(self, text: str) -> None:
        self.problems.append(text)

    def stored(self, shard: ShardId, fence: LeaseEpoch, batches: Sequence[Batch]) -> None:
        """Add what one append made durable of a shard."""
        with self.noting():
            self._stored(shard, fence, batches)
        with self.noting():
            self.ledger.stored(shard, fence, batches)

    def _stored(self, shard: ShardId, fence: LeaseEpoch, batches: Sequence[Batch]) -> None:
        wanted = self._granted.get(shard)
        assert fence == wanted, f"shard {shard}: fence {fence} accepted, the lease is {wanted}"
        for batch in batches:
            self.position += 1
            self._going.clear()
            _check_lost_values(self, batch.events)
            for event in batch.events:
                self.on_event(event)
                if isinstance(event, OffsetDeleted | GroupDeleted):
                    self.lost.append((self.position, event))
            for record in batch.records:
                self._apply(shard, record)
            _check_events(self, batch.events)
            _check_reported(self._going, batch.events)
            commits = sum(isinstance(record, OffsetsCommitted) for record in batch.records)
            ours = sum(not isinstance(event, LogStarted) for event in batch.events)
            self.events += ours + commits

    def value(self, key: OffsetKey) -> int:
        """Return the last durable offset of a key."""
        rows = self.values.get(key)
        return rows[-1].offset if rows else NOTHING

    def group(self, group_id: str) -> GroupRecord | None:
        """Return the last durable record of a group."""
        rows = self.groups.get(group_id)
        return rows[-1][1] if rows else None

    def standing_topics(self) -> dict[str, TopicInfo]:
        """Return the current topics."""
        newest = (rows[-1][1] for rows in self.topics.values())
        return {t.name: TopicInfo(t.name, t.topic_id, t.partitions) for t in newest if t}

    def standing_configs(self) -> dict[str, dict[str, str]]:
        """Return the configs of groups. A group without configs has no entry."""
        return {group: rows[-1][1] for group, rows in self.configs.items() if rows and rows[-1][1]}

    def _apply(self, shard: ShardId, record: Record) -> None:  # noqa: C901 - one case a type
        match record:
            case GroupRecord():
                self._group(record)
            case OffsetsCommitted():
                self._committed(shard, record)
            case OffsetsRemoved():
                for topic, partition in record.partitions:
                    self._removed(record.group_id, topic, partition)
            case OffsetsAdopted():
                self._adopted(shard, record)
            case GroupRemoved():
                gone = self.saved.pop(record.group_id, None)
                for topic, parts in gone.offsets.items() if gone else ():
                    for partition in parts:
                        self._gone((record.group_id, topic, partition))
                self.groups[record.group_id].append((self.position, None))
            case TopicRecord():
                self.topics[record.name].append((self.position, record))
            case TopicRemoved():
                self.topics[record.name].append((self.position, None))
            case GroupConfigs():
                self.configs[record.group_id].append((self.position, record.configs))
            case PartitionEnd():
                ends = self.ends[shard]
                ends[record.topic_id, record.partition] = record.end_offset
                if record.end_offset < 0:
                    del ends[record.topic_id, record.partition]

    def _group(self, record: GroupRecord) -> None:
        last = self.group(record.group_id)
        assert last is None or record.generation_id >= last.generation_id, (
            f"{record.group_id}: generation {record.generation_id} after {last.generation_id}"
        )
        self.groups[record.group_id].append((self.position, record))
        offsets = self._offsets_of(record.group_id)
        self.saved[record.group_id] = SavedGroup(record.group_id, record, offsets)

    def _committed(self, shard: ShardId, record: OffsetsCommitted) -> None:
        offsets, largest = self._offsets_of(record.group_id), self.largest[shard]
        for topic in record.topics:
            rows = offsets.setdefault(topic.topic, {})
            for partition, offset, previous, epoch, metadata in topic.partitions:
                key = (record.group_id, topic.topic, partition)
                assert previous == self.value(key), (
                    f"{key}: replaces {previous}, {self.value(key)} was stored"
                )
                value = Stored(self.position, offset, topic.topic_id, epoch, metadata)
                values = self.values[key]
                if values and values[-1].position == self.position:
                    values.pop()  # the same commit replaces it: nobody may be told of it
                values.append(value)
                end = topic.topic_id, partition
                largest[end] = max(offset, largest.get(end, NOTHING))
                self.commits[key, offset].append(Write(self.position, record, epoch, metadata))
                rows[partition] = SavedOffset(
                    offset,
                    epoch,
                    metadata,
                    record.commit_time_ms,
                    record.expire_time_ms,
                    topic.topic_id,
                )
        self.saved.setdefault(record.group_id, SavedGroup(record.group_id, None, offsets))

    def _adopted(self, shard: ShardId, record: OffsetsAdopted) -> None:
        offsets = self._offsets_of(record.group_id)
        for topic in record.topics:
            standing = self.standing_topics().get(topic.topic)
            assert standing is not None, f"{record}: there is no such topic"
            assert standing.topic_id == topic.topic_id, f"{record}: the topic is {standing}"
            for partition, offset in topic.partitions:
                key = (record.group_id, topic.topic, partition)
                last = self.values[key][-1]
                assert (last.offset, last.topic_id) == (offset, ""), f"{record}: {last} is stored"
                self.values[key].append(
                    last._replace(position=self.position, topic_id=topic.topic_id)
                )
                rows = offsets[topic.topic]
                rows[partition] = rows[partition].of_topic(topic.topic_id)
                end, largest = (topic.topic_id, partition), self.largest[shard]
                largest[end] = max(offset, largest.get(end, NOTHING))

    def _removed(self, group_id: str, topic: str, partition: int) -> None:
        rows = self._offsets_of(group_id).get(topic, {})
        if rows.pop(partition, None) is not None:
            self._gone((group_id, topic, partition))
            if not rows:
                del self.saved[group_id].offsets[topic]

    def _offsets_of(self, group_id: str) -> dict[str, dict[int, SavedOffset]]:
        saved = self.saved.get(group_id)
        return {} if saved is None else saved.offsets

    def _gone(self, key: OffsetKey) -> None:
        self._going.add(key)
        self.values[key].append(Stored(self.position, NOTHING, ""))


def _check_lost_values(durable: Durable, events: Sequence[Event]) -> None:
    """Check that an event about lost offsets has their stored values."""
    for event in events:
        if isinstance(event, OffsetDeleted | OffsetExpired):
            for topic in event.topics:
                for part in topic.partitions:
                    key = (event.group_id, topic.topic, part.partition)
                    stored = durable.value(key)
                    assert part.offset == stored, f"{key}: {part.offset} lost of {stored}"
                    last = durable.values[key][-1]
                    told, kept = (part.leader_epoch, part.metadata), last[3:]
                    assert told == kept, f"{key}: {stored} lost with {told}, was with {kept}"


def _check_reported(going: set[OffsetKey], events: Sequence[Event]) -> None:
    """Check that each deleted offset has an event."""
    told = {
        (event.group_id, topic.topic, part.partition)
        for event in events
        if isinstance(event, OffsetDeleted | OffsetExpired)
        for topic in event.topics
        for part in topic.partitions
    }
    assert going == told, f"offsets that went: {sorted(going)}, told: {sorted(told)}"


def _check_events(durable: Durable, events: Sequence[Event]) -> None:
    """Check that an event does not come before its record: what it reports is durable with it, or
    was before.
    """
    for event in events:
        match event:
            case Assignment():
                record = durable.group(event.group_id)
                assert record is not None, f"{event.group_id}: an assignment, and no group"
                assert record.generation_id >= event.generation_id, (
                    f"{event.group_id}: the assignment of {event.generation_id} before its record"
                )
            case OffsetDeleted() | OffsetExpired():
                for topic in event.topics:
                    for part in topic.partitions:
                        key = (event.group_id, topic.topic, part.partition)
                        assert durable.value(key) == NOTHING, f"{key}: lost, and still stored"
            case GroupDeleted():
                assert event.group_id not in durable.saved, (
                    f"{event.group_id}: deleted, still stored"
                )
