"""The topics that are durable: records in the cluster shard (docs/design.md#static-mode)."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

import structlog

from groupkeeper.coordinator.cluster.ends import Ends
from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.cluster.shard import ClusterShard
from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.records import Record, TopicRecord, TopicRemoved
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.topics import ChangeTopics, ChangeTopicsResult, NewTopic
from groupkeeper.coordinator.core.wire_values import int32, int64, text
from groupkeeper.coordinator.runtime.tickets import Awaited, Ticket

log = structlog.get_logger(__name__)

OURSELVES = Client("groupkeeper", "", "User:groupkeeper")
_RETRY_S = 0.2


class ConfiguredTopic(NamedTuple):
    """A topic that must exist."""

    name: str
    partitions: int
    end_offset: int = 0
    """The least end of each of its partitions."""


Submit: TypeAlias = Callable[[ChangeTopics, Ticket], None]


def mint_topic_id() -> str:
    """Return a new topic id in Kafka's printed form. As in Kafka, it never begins with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
        if not text.startswith("-"):
            return text


class Topics:
    """The topics that are durable in the store. Later changes are added when they are durable."""

    def __init__(
        self,
        configured: Iterable[ConfiguredTopic] = (),
        mint: Callable[[], str] = mint_topic_id,
    ) -> None:
        """Start without topics. ``ensure_configured`` creates the configured ones.

        Raises TypeError or ValueError if a configured topic is invalid.
        """
        if not isinstance(configured, Iterable):
            raise _no_topic(configured)
        self.image = TopicImage.of()
        self._configured = {topic.name: topic for topic in map(_checked, configured)}
        self._mint = mint
        self._submit: Submit | None = None
        self.ends = Ends()
        """The ends of the partitions of these topics, without those that the config names."""

    # --- For handlers -----------------------------------------------------------------------------

    def end_offset(self, topic_id: str, partition: int) -> int:
        """Return the end of a partition, for ListOffsets (LATEST) and Fetch (high watermark). 0 if
        no commit and no config named an end.
        """
        end = self.ends.of(topic_id, partition)
        info = self.image.by_id.get(topic_id)
        configured = self._configured.get(info.name) if info is not None else None
        return end if configured is None else max(end, configured.end_offset)

    def change(self, request: ChangeTopics, ticket: Ticket) -> None:
        """Create, grow or delete topics. The ticket is answered when the change is durable and
        every loaded shard has it.
        """
        assert self._submit is not None, "not bound to a coordinator"
        self._submit(request, ticket)

    async def change_and_wait(self, request: ChangeTopics) -> ChangeTopicsResult:
        """Create, grow or delete topics, and wait for the result (``change``)."""
        answer = Awaited()
        self.change(request, answer)
        result: ChangeTopicsResult = await answer.future
        return result

    # --- For the coordinator ----------------------------------------------------------------------

    def bind(self, submit: Submit) -> None:
        """Set the function that submits changes of topics to the cluster shard. The coordinator
        calls this once.
        """
        self._submit = submit

    async def ensure_configured(self) -> None:
        """Create and grow the configured topics. Retry while the store fails. Nothing is deleted or
        reduced because of the config.

        Raises ValueError if a topic is refused.
        """
        self._log_differences()
        while request := self._missing():
            result = await self.change_and_wait(request)
            _refuse_wrong(result)
            if result.error is not ErrorCode.NONE:
                await asyncio.sleep(_RETRY_S)  # the store failed, so the shard loads again

    def check(self, limits: CoreLimits) -> None:
        """Raise ValueError if even an empty store would refuse one of the configured topics."""
        wanted = tuple(NewTopic(t.name, t.partitions, t.name) for t in self._configured.values())
        step = ClusterShard(limits).handle(ChangeTopics(OURSELVES, wanted), None, Now(0, 0))
        for reply in step.replies:
            _refuse_wrong(reply.result)

    def replace(self, topics: Mapping[str, TopicInfo]) -> bool:
        """Replace all topics, for example after a load. Return True if this is a change."""
        if topics == self.image.by_name:
            return False
        self.image = self.image.followed_by(topics.values())
        self.ends.topics_changed(self.image.by_id)
        return True

    def apply(self, records: Iterable[Record]) -> bool:
        """Apply durable records of the cluster shard. Return True if they change the topics."""
        by_name = dict(self.image.by_name)
        for record in records:
            if isinstance(record, TopicRecord):
                info = TopicInfo(record.name, record.topic_id, record.partitions)
                by_name[record.name] = info
            elif isinstance(record, TopicRemoved):
                by_name.pop(record.name, None)
        return self.replace(by_name)

    def _missing(self) -> ChangeTopics | None:
        wanted = self._configured.values()
        stored = self.image.by_name
        create = [
            NewTopic(t.name, t.partitions, self._mint()) for t in wanted if t.name not in stored
        ]
        grow = [
            (t.name, t.partitions)
            for t in wanted
            if t.name in stored and stored[t.name].partitions < t.partitions
        ]
        if not create and not grow:
            return None
        return ChangeTopics(OURSELVES, tuple(create), tuple(grow))

    def _log_differences(self) -> None:
        for info in self.image.by_name.values():
            wanted = self._configured.get(info.name)
            if wanted is None:
                log.info("topic_not_in_config", topic=info.name, partitions=info.partitions)
            elif wanted.partitions < info.partitions:
                log.info(
                    "topic_has_more_partitions_than_config",
                    topic=info.name,
                    partitions=info.partitions,
                    configured=wanted.partitions,
                )


def _refuse_wrong(result: Result) -> None:
    assert isinstance(result, ChangeTopicsResult)
    for change in (*result.created, *result.grown):
        if change.error is not ErrorCode.NONE:
            raise ValueError(f"topic {change.name!r} of the config: {change.message}")


def _checked(topic: ConfiguredTopic) -> ConfiguredTopic:
    """Return a configured topic with checked values. Raises TypeError or ValueError if one is
    invalid.

    The check is here, because a value that raises an exception in the core would be retried without
    end.
    """
    if not isinstance(topic, ConfiguredTopic):
        raise _no_topic(topic)
    name, partitions, end_offset = topic
    return ConfiguredTopic(
        text("topic", name),
        int32(f"the partitions of {name}", partitions),
        int64(f"the end offset of {name}", end_offset),
    )


def _no_topic(given: object) -> TypeError:
    return TypeError(
        "Topics takes a list of ConfiguredTopic(name, partitions), and a GroupCoordinator names "
        f"with their numbers of partitions without it, not {given!r}"
    )
