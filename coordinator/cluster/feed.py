"""What topics and configs learn from the runtime, and what the shards learn from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from groupkeeper.coordinator.cluster.group_configs import GroupConfigStore
from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.cluster.settings import GroupOverrides
from groupkeeper.coordinator.core.records import OffsetsAdopted, OffsetsCommitted
from groupkeeper.coordinator.runtime.shards import AnyShard, ClusterRunner
from groupkeeper.storage.base import CLUSTER_SHARD, ShardId

if TYPE_CHECKING:
    from groupkeeper.coordinator.cluster.topics import Topics
    from groupkeeper.coordinator.runtime.append import Write


class NoTopics:
    """A host that embeds us without topics: every topic exists, nobody asks for ends, and there is
    no cluster shard that could hold configs of groups.
    """

    def __init__(self) -> None:
        """Take the image in which everything exists."""
        self.image = TopicImage.any()

    def settings(self, shard_id: ShardId) -> Mapping[str, GroupOverrides]:
        """Nothing is set."""
        return {}

    def loaded(self, shard_id: ShardId, shard: AnyShard) -> None:
        """Nothing to learn."""

    def durable(self, write: Write) -> None:
        """Nothing to learn."""


class ClusterFeed:
    """Static mode: topics and configs come from the cluster shard, ends from commits that are
    durable.
    """

    def __init__(
        self,
        topics: Topics,
        configs: GroupConfigStore,
        push_image: Callable[[TopicImage], None],
        push_settings: Callable[[ShardId, Mapping[str, GroupOverrides]], None],
    ) -> None:
        """Feed these; ``push_image`` goes to all shards, ``push_settings`` to one."""
        self._topics = topics
        self._configs = configs
        self._push_image = push_image
        self._push_settings = push_settings

    @property
    def image(self) -> TopicImage:
        """The last image that is durable."""
        return self._topics.image

    def settings(self, shard_id: ShardId) -> Mapping[str, GroupOverrides]:
        """What is durably set for groups of a shard."""
        return self._configs.settings(shard_id)

    def loaded(self, shard_id: ShardId, shard: AnyShard) -> None:
        """Take topics and configs, or ends, from a shard that was read."""
        if isinstance(shard, ClusterRunner):
            if self._topics.replace(shard.topics):
                self._push_image(self._topics.image)
            self._push(self._configs.replace(shard.configs))
        else:
            self._topics.raise_ends(shard.ends())

    def durable(self, write: Write) -> None:
        """Take what was written: every shard knows of it before a client is told."""
        topics = self._topics
        if write.shard_id == CLUSTER_SHARD:
            records = [record for batch in write.batches for record in batch.records]
            if topics.apply(records):
                self._push_image(topics.image)
            self._push(self._configs.apply(records))
            return
        for batch in write.batches:
            for record in batch.records:
                kind = type(record)
                if kind is OffsetsCommitted:
                    topics.committed(record)  # type: ignore[arg-type]
                elif kind is OffsetsAdopted:
                    topics.raise_ends(_adopted_ends(record))  # type: ignore[arg-type]

    def _push(self, changed: set[ShardId]) -> None:
        for shard_id in changed:
            self._push_settings(shard_id, self._configs.settings(shard_id))


def _adopted_ends(record: OffsetsAdopted) -> dict[tuple[str, int], int]:
    return {
        (topic.topic_id, partition): offset
        for topic in record.topics
        for partition, offset in topic.partitions
    }
