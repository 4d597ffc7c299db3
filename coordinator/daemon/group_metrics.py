"""Members, offsets and lag of each group for /metrics, under the names of kafka_exporter.

The dashboards and alerts that people have for kafka_exporter (github.com/danielqsj/kafka_exporter)
go on working. The snapshot is taken in slices of a turn; whoever renders it does so elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.cluster.image import TopicInfo
    from groupkeeper.coordinator.core.groups.group import Group
    from groupkeeper.coordinator.core.records import SavedOffset

Detail: TypeAlias = Literal["off", "summary", "partitions"]
"""The setting ``metrics.groups``."""

PIECE_SERIES: Final = 200
"""Offsets, topics and groups that are looked at between two looks at the time: some 100 us."""
COST_OF_GROUP: Final = 3
MAX_GROUP_ID_CHARS: Final = 249
"""A group with a longer id is left out, and counted as dropped: ids may have 32,767 characters, and
a page of 10,000 such labels took 1 GB. Kafka has this limit for names of topics."""


class Family(NamedTuple):
    """A metric of kafka_exporter: a gauge."""

    name: str
    labels: tuple[str, ...]
    help: str
    detail: Detail
    """Where it is shown; what "summary" has is in "partitions", too."""


GROUP = ("consumergroup",)
GROUP_TOPIC = ("consumergroup", "topic")
GROUP_PARTITION = ("consumergroup", "topic", "partition")
PARTITION = ("topic", "partition")

FAMILIES: Final = (
    Family("kafka_topic_partitions", ("topic",), "Partitions of a topic.", "summary"),
    Family("kafka_consumergroup_members", GROUP, "Members of a group.", "summary"),
    Family(
        "kafka_consumergroup_current_offset_sum",
        GROUP_TOPIC,
        "Committed offsets of a group, added up over the partitions of a topic.",
        "summary",
    ),
    Family(
        "kafka_consumergroup_lag_sum",
        GROUP_TOPIC,
        "Lag of a group, added up over the partitions of a topic.",
        "summary",
    ),
    Family(
        "kafka_topic_partition_current_offset",
        PARTITION,
        "End of a partition: the largest offset that was ever committed or configured.",
        "partitions",
    ),
    Family(
        "kafka_topic_partition_oldest_offset",
        PARTITION,
        "Always 0: there are no records here.",
        "partitions",
    ),
    Family(
        "kafka_consumergroup_current_offset",
        GROUP_PARTITION,
        "Committed offset of a group.",
        "partitions",
    ),
    Family(
        "kafka_consumergroup_lag",
        GROUP_PARTITION,
        "End of the partition less the committed offset of a group.",
        "partitions",
    ),
)

Row: TypeAlias = tuple[tuple[str, ...], int]
"""Label values in the order of the family, and the number."""


@dataclass
class Snapshot:
    """What stood there while it was taken, at most ``room`` series of it."""

    room: int
    rows: dict[str, list[Row]] = field(default_factory=lambda: {f.name: [] for f in FAMILIES})
    dropped: int = 0
    """Series that had no room."""

    def add(self, name: str, labels: tuple[str, ...], value: int) -> None:
        """Take one series, if there is room."""
        if self.room > 0:
            self.room -= 1
            self.rows[name].append((labels, value))
        else:
            self.dropped += 1


class MetricsWalk:
    """Fills a snapshot piece by piece: iterate, and look at the time between two pieces."""

    def __init__(
        self,
        shards: Callable[[], Iterable[Mapping[str, Group]]],
        topics: Callable[[], Iterable[TopicInfo]],
        end_offset: Callable[[str, int], int],
        detail: Detail,
    ) -> None:
        """``shards`` returns the groups of each shard that answers."""
        self._shards = shards
        self._topics = topics
        self._end_offset = end_offset
        self._partitions = detail == "partitions"

    def fill(self, snapshot: Snapshot) -> Iterator[None]:
        """Add every topic and every group; groups that come or go meanwhile may be left out."""
        done = 0
        for series in chain(self._add_topics(snapshot), self._add_groups(snapshot)):
            done += series
            if done >= PIECE_SERIES:
                done = 0
                yield

    def _add_topics(self, snapshot: Snapshot) -> Iterator[int]:
        """Add the topics; yield how many series were looked at, as all that follow do."""
        for info in list(self._topics()):
            snapshot.add("kafka_topic_partitions", (info.name,), info.partitions)
            yield 1
            if not self._partitions:
                continue
            for partition in range(info.partitions):
                labels = (info.name, str(partition))
                end = self._end_offset(info.topic_id, partition)
                snapshot.add("kafka_topic_partition_current_offset", labels, end)
                snapshot.add("kafka_topic_partition_oldest_offset", labels, 0)
                yield 2

    def _add_groups(self, snapshot: Snapshot) -> Iterator[int]:
        for groups in self._shards():
            for group_id in list(groups):
                group = groups.get(group_id)
                if group is None:
                    continue
                if len(group_id) <= MAX_GROUP_ID_CHARS:
                    yield from self._add_group(snapshot, group)
                else:
                    snapshot.dropped += 1
                    yield 1

    def _add_group(self, snapshot: Snapshot, group: Group) -> Iterator[int]:
        snapshot.add("kafka_consumergroup_members", (group.group_id,), len(group.members))
        yield COST_OF_GROUP
        for topic in list(group.offsets):
            offsets = group.offsets.get(topic, {})
            if snapshot.room <= 0:
                snapshot.dropped += 2 + (2 * len(offsets) if self._partitions else 0)
                yield 1
            else:
                yield from self._add_topic(snapshot, group.group_id, topic, offsets)

    def _add_topic(
        self, snapshot: Snapshot, group_id: str, topic: str, offsets: Mapping[int, SavedOffset]
    ) -> Iterator[int]:
        total = lag_total = 0
        for partition in list(offsets):
            stored = offsets.get(partition)
            if stored is None:
                continue
            lag = max(0, self._end_offset(stored.topic_id, partition) - stored.offset)
            total += stored.offset
            lag_total += lag
            if self._partitions:
                labels = (group_id, topic, str(partition))
                snapshot.add("kafka_consumergroup_current_offset", labels, stored.offset)
                snapshot.add("kafka_consumergroup_lag", labels, lag)
            yield 1
        snapshot.add("kafka_consumergroup_current_offset_sum", (group_id, topic), total)
        snapshot.add("kafka_consumergroup_lag_sum", (group_id, topic), lag_total)
        yield 2
