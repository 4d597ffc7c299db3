"""What the topics learn from the runtime, and what the shards learn from the topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from coordinator.core.records import OffsetsCommitted
from coordinator.core.topic_image import TopicImage
from coordinator.runtime.shards import AnyShard, ClusterRunner
from storage.base import CLUSTER_SHARD, ShardId

if TYPE_CHECKING:
    from coordinator.runtime.slot import Write
    from coordinator.topics import Topics


class NoTopics:
    """A host that embeds us without topics: every topic exists, and nobody asks for ends."""

    def __init__(self) -> None:
        """Take the image in which everything exists."""
        self.image = TopicImage.any()

    def loaded(self, shard_id: ShardId, shard: AnyShard) -> None:
        """Nothing to learn."""

    def durable(self, write: Write) -> None:
        """Nothing to learn."""


class TopicFeed:
    """Static mode: topics come from the cluster shard, ends from commits that are durable."""

    def __init__(self, topics: Topics, push: Callable[[TopicImage], None]) -> None:
        """Feed these topics; ``push`` gives an image to all shards."""
        self._topics = topics
        self._push = push

    @property
    def image(self) -> TopicImage:
        """The last image that is durable."""
        return self._topics.image

    def loaded(self, shard_id: ShardId, shard: AnyShard) -> None:
        """Take topics, or ends, from a shard that was read."""
        if isinstance(shard, ClusterRunner):
            if self._topics.replace(shard.topics):
                self._push(self._topics.image)
        else:
            self._topics.raise_ends(shard.ends())

    def durable(self, write: Write) -> None:
        """Take what was written: every shard knows a topic before a client is told of it."""
        topics = self._topics
        if write.slot.shard_id == CLUSTER_SHARD:
            records = [record for batch in write.batches for record in batch.records]
            if topics.apply(records):
                self._push(topics.image)
            return
        for batch in write.batches:
            for record in batch.records:
                if type(record) is OffsetsCommitted:
                    topics.committed(record)
