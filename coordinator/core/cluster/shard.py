"""The cluster shard (-1): topics with their ids, the configs of groups, and ports of listeners.

It works like ``Shard``: requests and time in, steps out. Hard state changes only in ``apply``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from groupkeeper.coordinator.core.cluster.changes import alter_configs
from groupkeeper.coordinator.core.cluster.group_configs import GroupOverrides
from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.cluster.names import (
    CLUSTER_TOPIC,
    OFFSETS_TOPIC,
    metric_name,
    topic_name_error,
)
from groupkeeper.coordinator.core.dispatch import FUNCTION_OF, handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import (
    AdminAction,
    Event,
    of_client,
)
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.records import (
    GroupConfigs,
    ListenerPort,
    Record,
    SavedGroup,
    TopicRecord,
    TopicRemoved,
    UpstreamId,
)
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.requests.topics import (
    AlterGroupConfigs,
    ChangeTopics,
    ChangeTopicsResult,
    ChangeUpstream,
    ChangeUpstreamResult,
    NewTopic,
    TopicChange,
)
from groupkeeper.coordinator.core.step import SMALL_RECORD_BYTES, Reply, Step, Ticket
from groupkeeper.coordinator.core.work import Work, WorkOutcome

T = TypeVar("T")
Named: TypeAlias = tuple[str | None, str]
"""A topic to delete: (name, ""), or (None, topic id)."""


class ClusterShard:
    """The topics, the configs of single groups, and facts about the upstream: the ports of
    listeners and the cluster id.
    """

    def __init__(self, limits: CoreLimits) -> None:
        self.limits = limits
        self.topics: dict[str, TopicInfo] = {}
        self.ids: dict[str, str] = {}
        """Topic id -> name."""
        self.metric_names: Counter[str] = Counter()
        """Name in metrics -> the number of topics with this name. Topics of one request may share a
        name (``_Change``).
        """
        self.partition_count = 0
        self.configs: dict[str, dict[str, str]] = {}
        """Group id -> key -> value. A group without configs has no entry."""
        self.ports: dict[int, int] = {}
        """Upstream broker -> the port of its listener."""
        self.upstream_id = ""
        """The cluster id of the upstream; "" if none is stored."""
        self.step: Step
        """The effects of the current request."""

    def image(self) -> TopicImage:
        return TopicImage.of(*self.topics.values())

    def apply(self, record: Record) -> None:
        """Apply a record. Both requests and loads use this method. Nothing else changes the topics,
        the configs, the ports or the cluster id.
        """
        if isinstance(record, TopicRecord):
            self._forget(record.name)
            info = TopicInfo(record.name, record.topic_id, record.partitions)
            self.topics[record.name] = info
            self.ids[record.topic_id] = record.name
            self.metric_names[metric_name(record.name)] += 1
            self.partition_count += record.partitions
        elif isinstance(record, TopicRemoved):
            self._forget(record.name)
        elif isinstance(record, GroupConfigs):
            if record.configs:
                self.configs[record.group_id] = record.configs
            else:
                self.configs.pop(record.group_id, None)
        elif isinstance(record, ListenerPort):
            if record.port:
                self.ports[record.broker_id] = record.port
            else:
                self.ports.pop(record.broker_id, None)
        elif isinstance(record, UpstreamId):
            self.upstream_id = record.cluster_id
        else:
            raise TypeError(f"{type(record).__name__} does not belong to the cluster shard")

    def _forget(self, name: str) -> None:
        info = self.topics.pop(name, None)
        if info is not None:
            del self.ids[info.topic_id]
            in_metrics = metric_name(name)
            self.metric_names[in_metrics] -= 1
            if self.metric_names[in_metrics] == 0:
                del self.metric_names[in_metrics]
            self.partition_count -= info.partitions

    def handle(self, request: Request, ticket: Ticket, now: Now) -> Step:
        """Handle a request. Each topic or group in it is checked on its own, in the request's
        order.
        """
        self.step = step = Step()
        FUNCTION_OF[type(request)](self, request, ticket)
        return step

    @handles(AlterGroupConfigs)
    def alter_configs(self, request: AlterGroupConfigs, ticket: Ticket) -> None:
        """Check the changes of each group, and record the valid ones."""
        result, records, events = alter_configs(self.configs, request, self.limits)
        self.step.replies.append(Reply(ticket, result))
        if not request.validate_only:
            for record in records:
                self.apply(record)
            self._write(records, events)

    @handles(ChangeUpstream)
    def change_upstream(self, request: ChangeUpstream, ticket: Ticket) -> None:
        """Record ports that differ from the stored ones, and the cluster id if none is stored."""
        records: list[Record] = [
            ListenerPort(broker_id, port)
            for broker_id, port in request.ports
            if self.ports.get(broker_id, 0) != port
        ]
        if request.cluster_id and not self.upstream_id:
            records.append(UpstreamId(request.cluster_id))
        self.step.replies.append(Reply(ticket, ChangeUpstreamResult(ErrorCode.NONE)))
        for record in records:
            self.apply(record)
        self._write(records, ())

    @handles(ChangeTopics)
    def change_topics(self, request: ChangeTopics, ticket: Ticket) -> None:
        """Create, grow and delete the topics that the request names."""
        change = _Change(self, request)
        result = ChangeTopicsResult(
            ErrorCode.NONE,
            tuple(change.create(topic) for topic in request.create),
            tuple(change.grow(name, count) for name, count in request.grow),
            change.delete(request.delete),
        )
        self.step.replies.append(Reply(ticket, result))
        if not request.validate_only:
            self._write(change.records, [_event(request, record) for record in change.records])

    def _write(self, records: Sequence[Record], events: Sequence[Event]) -> None:
        self.step.records = [*self.step.records, *records]
        self.step.record_bytes += SMALL_RECORD_BYTES * len(records)
        self.step.events = [*self.step.events, *events]

    # --- what the runtime calls on every shard; this one has no groups, ends, deadlines or work ---

    def expire(self, now: Now) -> Step:
        return Step()

    def next_deadline(self) -> int | None:
        return None

    def work_done(self, work: Work, outcome: WorkOutcome, now: Now) -> Step:
        return Step()

    def topics_changed(self, image: TopicImage, now: Now) -> Step:
        """Do nothing: the image comes from this shard."""
        return Step()

    def configs_changed(self, overrides: Mapping[str, GroupOverrides], now: Now) -> Step:
        """Do nothing: the configs come from this shard."""
        return Step()

    def loaded(self, now: Now) -> Step:
        """End a load. There is no live state to create."""
        return Step()

    def resumed(self, stopped_ms: int, now: Now) -> Step:
        return Step()

    def load_group(self, group_id: str, records: Sequence[Record], now: Now) -> Step:
        return Step()

    def saved(self, group_id: str) -> SavedGroup | None:
        return None

    def ends(self) -> Mapping[tuple[str, int], int]:
        return {}

    def group_count(self) -> int:
        return 0

    def offset_count(self) -> int:
        return 0


class _Change:
    """One ChangeTopics in progress. With ``validate_only`` it changes a copy of the topics, so that
    the checks of later topics see earlier changes.
    """

    def __init__(self, shard: ClusterShard, request: ChangeTopics) -> None:
        self.records: list[Record] = []
        self._limits = shard.limits
        self._is_observed = request.observed
        self._target = shard
        if request.validate_only:
            self._target = ClusterShard(shard.limits)
            for info in shard.topics.values():
                self._target.apply(TopicRecord(info.name, info.topic_id, info.partitions))
        self._repeated = _repeated(topic.name for topic in request.create)
        self._created: Counter[str] = Counter()
        """Name in metrics -> the number of new topics of this request with this name."""

    def _apply(self, record: Record) -> None:
        self._target.apply(record)
        self.records.append(record)

    def create(self, topic: NewTopic) -> TopicChange:
        error, message = self._create_error(topic)
        if error is ErrorCode.NONE:
            self._apply(TopicRecord(topic.name, topic.topic_id, topic.partitions))
            self._created[metric_name(topic.name)] += 1
            return TopicChange(topic.name, topic.topic_id, topic.partitions, error, None)
        return TopicChange(topic.name, "", -1, error, message)

    def _create_error(self, topic: NewTopic) -> tuple[ErrorCode, str | None]:
        wrong_name = topic_name_error(topic.name)
        if topic.name in self._repeated:
            return ErrorCode.INVALID_REQUEST, "Duplicate topic name."
        if self._is_observed:
            return self._observed_error(topic)
        if topic.name == CLUSTER_TOPIC:
            return ErrorCode.INVALID_REQUEST, f"Nobody may create {CLUSTER_TOPIC}."
        if wrong_name is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, wrong_name
        if topic.name in self._target.topics:
            return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists."
        if topic.name == OFFSETS_TOPIC:
            # Kafka's answer. Tools that copy or restore topics skip the topic then.
            message = f"The name {OFFSETS_TOPIC} is taken: offsets are in the storage here."
            return ErrorCode.TOPIC_ALREADY_EXISTS, message
        in_metrics = metric_name(topic.name)
        if self._collides(in_metrics):
            message = f"Topic '{topic.name}' collides with another: metrics call both {in_metrics}"
            return ErrorCode.INVALID_TOPIC_EXCEPTION, message
        if topic.refusal is not None:
            return topic.refusal
        if topic.partitions < 1:
            return ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."
        return self._room_error(topic.partitions)

    def _observed_error(self, topic: NewTopic) -> tuple[ErrorCode, str | None]:
        """Return the error if the name or the id of an upstream topic already exists here. Return
        NONE if neither does.
        """
        if topic.name in self._target.topics or topic.topic_id in self._target.ids:
            message = f"Topic '{topic.name}' or its id already exists."
            return ErrorCode.TOPIC_ALREADY_EXISTS, message
        return ErrorCode.NONE, None

    def _collides(self, in_metrics: str) -> bool:
        """Return True if an older topic has this name in metrics, or if it is the name of
        ``__consumer_offsets``. Two topics of one request may share a name
        (ReplicationControlManager.validateNewTopicNames).
        """
        there = self._target.metric_names[in_metrics]
        return in_metrics == OFFSETS_TOPIC or there > self._created[in_metrics]

    def _room_error(self, more: int) -> tuple[ErrorCode, str | None]:
        """Return the error if ``more`` partitions exceed the limit, else NONE. There is a limit
        because Metadata lists every partition.
        """
        limit = self._limits.max_partitions
        if self._is_observed:
            return ErrorCode.NONE, None
        if self._target.partition_count + more > limit:
            return ErrorCode.POLICY_VIOLATION, f"More than {limit} partitions in all."
        return ErrorCode.NONE, None

    def grow(self, name: str, count: int) -> TopicChange:
        info = self._target.topics.get(name)
        if info is None:
            return TopicChange(name, "", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        if count <= info.partitions:
            message = f"The topic has {info.partitions} partitions: it can only grow."
            return TopicChange(name, "", -1, ErrorCode.INVALID_PARTITIONS, message)
        error, no_room = self._room_error(count - info.partitions)
        if error is not ErrorCode.NONE:
            return TopicChange(name, "", -1, error, no_room)
        self._apply(TopicRecord(name, info.topic_id, count))
        return TopicChange(name, info.topic_id, count, ErrorCode.NONE, None)

    def delete(self, asked: tuple[Named, ...]) -> tuple[TopicChange, ...]:
        """Delete every topic that is named once.

        A topic that is named by its name and by its id is kept, and both entries are refused with
        INVALID_REQUEST (ControllerApis.deleteTopics).
        """
        repeated = _repeated(asked)
        ids = {topic_id for name, topic_id in asked if name is None}
        found = [self._find(*named) for named in asked]
        both_ways = {
            info.topic_id
            for named, info in zip(asked, found, strict=True)
            if info and named == (info.name, "") and named not in repeated and info.topic_id in ids
        }
        answers = []
        for named, info in zip(asked, found, strict=True):
            if named in repeated:
                change = TopicChange(*named, -1, ErrorCode.INVALID_REQUEST, "Duplicate topic.")
            elif info is None:
                by_id = named[0] is None
                error = (
                    ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                change = TopicChange(*named, -1, error, "This server does not host it.")
            elif info.topic_id in both_ways:
                message = "The topic of this name is named by its id, too."
                change = TopicChange(*info[:2], -1, ErrorCode.INVALID_REQUEST, message)
            else:
                self._apply(TopicRemoved(info.name))
                change = TopicChange(*info, ErrorCode.NONE, None)
            answers.append(change)
        return tuple(answers)

    def _find(self, name: str | None, topic_id: str) -> TopicInfo | None:
        return self._target.topics.get(self._target.ids.get(topic_id, "") if name is None else name)


def _repeated(names: Iterable[T]) -> set[T]:
    seen: set[T] = set()
    repeated: set[T] = set()
    for name in names:
        (repeated if name in seen else seen).add(name)
    return repeated


def _event(request: ChangeTopics, record: Record) -> AdminAction:
    if isinstance(record, TopicRecord):
        action, target, detail = "set_topic", record.name, f"partitions={record.partitions}"
    else:
        assert isinstance(record, TopicRemoved), "a change of topics makes no other record"
        action, target, detail = "delete_topic", record.name, ""
    return AdminAction(
        **of_client(request.client),
        action=action,
        target=target,
        detail=detail,
    )
