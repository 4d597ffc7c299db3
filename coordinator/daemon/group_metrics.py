"""Members, offsets and lag of each group for /metrics, under the names of kafka_exporter.

Existing dashboards and alerts for kafka_exporter (github.com/danielqsj/kafka_exporter) keep
working. The snapshot is taken on the loop in slices, and rendered in another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.cluster.image import TopicInfo
    from groupkeeper.coordinator.core.groups.group import Group
    from groupkeeper.coordinator.core.records import SavedOffset

Detail: TypeAlias = Literal["off", "summary", "partitions"]
"""The setting ``metrics.groups``."""

PIECE_SERIES: Final = 200
"""The number of series between two readings of the clock: about 100 us of work."""
COST_OF_GROUP: Final = 3
MAX_GROUP_ID_CHARS: Final = 249
"""A group with a longer id is left out and counted as dropped. Ids may have 32,767 characters, and
a page with 10,000 such labels took 1 GB. Kafka has this limit for topic names.
"""


class Family(NamedTuple):
    """A metric of kafka_exporter; all are gauges."""

    name: str
    labels: tuple[str, ...]
    help: str
    detail: Detail
    """The lowest setting of ``metrics.groups`` that shows the metric. "partitions" includes
    "summary"."""


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
        "Committed offsets of a group, summed over the partitions of a topic.",
        "summary",
    ),
    Family(
        "kafka_consumergroup_lag_sum",
        GROUP_TOPIC,
        "Lag of a group, summed over the partitions of a topic.",
        "summary",
    ),
    Family(
        "kafka_topic_partition_current_offset",
        PARTITION,
        "End of a partition: the largest offset ever committed or configured.",
        "partitions",
    ),
    Family(
        "kafka_topic_partition_oldest_offset",
        PARTITION,
        "Always 0: there are no records here. Gateway mode does not have it.",
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
        "End of the partition minus the committed offset of a group.",
        "partitions",
    ),
)

Row: TypeAlias = tuple[tuple[str, ...], int]
"""The label values in the order of the family, and the number."""


@dataclass
class Snapshot:
    """The series of one scrape. ``room`` is how many more may be added."""

    room: int
    rows: dict[str, list[Row]] = field(default_factory=lambda: {f.name: [] for f in FAMILIES})
    dropped: int = 0
    """The number of series for which there was no room."""

    def add(self, name: str, labels: tuple[str, ...], value: int) -> None:
        """Add one series, if there is room."""
        if self.room > 0:
            self.room -= 1
            self.rows[name].append((labels, value))
        else:
            self.dropped += 1


class MetricsWalk:
    """Fills a snapshot. The caller can pause after each ``PIECE_SERIES`` series, because it gets
    control back there.
    """

    def __init__(
        self,
        shards: Callable[[], Iterable[Mapping[str, Group]]],
        topics: Callable[[], Iterable[TopicInfo]],
        end_offset: Callable[[str, int], int],
        detail: Detail,
        *,
        has_records: bool = False,
    ) -> None:
        """``shards`` returns the groups of each loaded shard. ``has_records``: an upstream cluster
        has records of the topics, so a partition need not begin at 0.
        """
        self._has_records = has_records
        self._shards = shards
        self._topics = topics
        self._end_offset = end_offset
        self._partitions = detail == "partitions"

    def fill(self, snapshot: Snapshot) -> Iterator[None]:
        """Add every topic and group. Groups created or deleted during the walk may be left out.

        If there is not enough room, topics first get half of the room. Then come all groups, and
        then the remaining topics. So a large number of partitions leaves room for groups, and a
        large number of groups leaves room for topics.
        """
        done = 0
        kept = snapshot.room // 2
        topics = self._add_topics(snapshot)
        some = takewhile(lambda _: snapshot.room > kept, topics)
        for series in chain(some, self._add_groups(snapshot), topics):
            done += series
            if done >= PIECE_SERIES:
                done = 0
                yield

    def _add_topics(self, snapshot: Snapshot) -> Iterator[int]:
        """Add the topics. Yields the work done since the last yield, as a number of series. The
        methods below do the same."""
        for info in list(self._topics()):
            snapshot.add("kafka_topic_partitions", (info.name,), info.partitions)
            yield 1
            if not self._partitions:
                continue
            for partition in range(info.partitions):
                labels = (info.name, str(partition))
                end = self._end_offset(info.topic_id, partition)
                if end >= 0:
                    snapshot.add("kafka_topic_partition_current_offset", labels, end)
                    if not self._has_records:
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
            end = self._end_offset(stored.topic_id, partition)
            lag = max(0, end - stored.offset)  # 0 if the end is not known
            total += stored.offset
            lag_total += lag
            if self._partitions:
                labels = (group_id, topic, str(partition))
                snapshot.add("kafka_consumergroup_current_offset", labels, stored.offset)
                if end >= 0:
                    snapshot.add("kafka_consumergroup_lag", labels, lag)
            yield 1
        snapshot.add("kafka_consumergroup_current_offset_sum", (group_id, topic), total)
        snapshot.add("kafka_consumergroup_lag_sum", (group_id, topic), lag_total)
        yield 2
