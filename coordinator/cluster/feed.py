"""Passes durable topics, configs and facts about the upstream from the runtime to their stores, and
changes back to the shards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from groupkeeper.coordinator.cluster.ends import PartitionKey
from groupkeeper.coordinator.cluster.group_configs import GroupConfigStore
from groupkeeper.coordinator.cluster.upstream_record import UpstreamRecord
from groupkeeper.coordinator.core.cluster.group_configs import GroupOverrides
from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.cluster.shard import ClusterShard
from groupkeeper.coordinator.core.records import OffsetsAdopted, OffsetsCommitted
from groupkeeper.coordinator.runtime.shards import AnyShard
from groupkeeper.storage.base import CLUSTER_SHARD, ShardId

if TYPE_CHECKING:
    from groupkeeper.coordinator.cluster.topics import Topics
    from groupkeeper.coordinator.runtime.slot import Write


class NoTopics:
    """The ``Observer`` of a coordinator whose host has no list of topics. Every topic exists.

    Ends are not tracked. Groups have no configs, since there is no cluster shard to store them.
    """

    def __init__(self) -> None:
        self.image = TopicImage.any()

    def settings(self, shard_id: ShardId) -> Mapping[str, GroupOverrides]:
        """Return an empty mapping: no group has configs."""
        return {}

    def loaded(self, shard_id: ShardId, shard: AnyShard) -> None:
        """Do nothing."""

    def durable(self, write: Write) -> None:
        """Do nothing."""


class ClusterFeed:
    """The ``Observer`` of a coordinator with topics. Topics and configs come from the cluster
    shard, ends from durable commits.
    """

    def __init__(
        self,
        topics: Topics,
        configs: GroupConfigStore,
        upstream: UpstreamRecord,
        push_image: Callable[[TopicImage], None],
        push_settings: Callable[[ShardId, Mapping[str, GroupOverrides]], None],
    ) -> None:
        """``push_image`` passes the topics to all shards, ``push_settings`` passes configs to one
        shard.
        """
        self._topics = topics
        self._ends = topics.ends
        self._configs = configs
        self._upstream = upstream
        self._push_image = push_image
        self._push_settings = push_settings

    @property
    def image(self) -> TopicImage:
        """The durable topics."""
        return self._topics.image

    def settings(self, shard_id: ShardId) -> Mapping[str, GroupOverrides]:
        """Return the durable configs of single groups in a shard, by group id."""
        return self._configs.overrides(shard_id)

    def loaded(self, shard_id: ShardId, shard: AnyShard) -> None:
        """Read topics, configs and the facts about the upstream from the loaded cluster shard. Read
        ends from any other loaded shard.
        """
        if isinstance(shard, ClusterShard):
            if self._topics.replace(shard.topics):
                self._push_image(self._topics.image)
            self._push(self._configs.replace(shard.configs))
            self._upstream.replace(shard.ports, shard.upstream_id)
        else:
            self._ends.raise_to(shard.ends())

    def durable(self, write: Write) -> None:
        """Update the stores from a durable write. Changes of topics and configs are passed to the
        shards before the client gets its answer.
        """
        if write.shard_id == CLUSTER_SHARD:
            records = [record for batch in write.batches for record in batch.records]
            if self._topics.apply(records):
                self._push_image(self._topics.image)
            self._push(self._configs.apply(records))
            self._upstream.apply(records)
            return
        for batch in write.batches:
            for record in batch.records:
                kind = type(record)
                if kind is OffsetsCommitted:
                    self._ends.committed(record)  # type: ignore[arg-type]
                elif kind is OffsetsAdopted:
                    self._ends.raise_to(_adopted_ends(record))  # type: ignore[arg-type]

    def _push(self, changed: set[ShardId]) -> None:
        for shard_id in changed:
            self._push_settings(shard_id, self._configs.overrides(shard_id))


def _adopted_ends(record: OffsetsAdopted) -> dict[PartitionKey, int]:
    return {
        (topic.topic_id, partition): offset
        for topic in record.topics
        for partition, offset in topic.partitions
    }
