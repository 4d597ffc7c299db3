"""Reads the end offsets of partitions in the upstream, from which the lag of groups is computed.

The upstream is the Kafka cluster behind the gateway.

Only partitions with a committed offset are asked for. The committed offsets are read before the
ends. So a commit between the two reads cannot make a lag negative.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import structlog

from groupkeeper.coordinator.cluster.ends import PartitionKey
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.gateway.client import BrokerError
from groupkeeper.coordinator.gateway.gateway_topics import GatewayTopics
from groupkeeper.coordinator.gateway.topic_list import METADATA, METADATA_VERSIONS
from groupkeeper.coordinator.gateway.upstream_groups import AsksCluster
from groupkeeper.coordinator.runtime.line_limit import LineLimit
from groupkeeper.protocol.writer import Row

LIST_OFFSETS, LIST_OFFSETS_VERSIONS = 2, range(1, 10)
LATEST: Final = -1
PARTITIONS_AT_ONCE: Final = 1_000
"""A request is sent as soon as its topics have this many partitions. After this many offsets are
examined, other tasks of the event loop can run.
"""
LOG_EVERY_S: Final = 60.0

_log = structlog.get_logger("groupkeeper.gateway")


class UpstreamEnds:
    """Asks the leaders of partitions for their end offsets."""

    def __init__(
        self,
        cluster: AsksCluster,
        topics: GatewayTopics,
        live_groups: Callable[[], Iterator[Mapping[str, Group]]],
        is_ours: Callable[[], bool],
    ) -> None:
        """``live_groups`` yields the groups of each shard, by group id. ``run`` asks for nothing
        while ``is_ours`` returns False, because the upstream may then be the wrong cluster.
        """
        self._cluster = cluster
        self._topics = topics
        self._live_groups = live_groups
        self._is_ours = is_ours
        self._lines = LineLimit(asyncio.get_running_loop().time, LOG_EVERY_S, 1)

    async def run(self, interval_ms: int) -> None:
        """Refresh the ends now and after each interval, until cancelled."""
        while True:
            try:
                if self._is_ours():
                    await self.refresh()
            except BrokerError as error:
                if self._lines.allow("ends") is not None:
                    _log.warning("ends_not_read", problem=str(error))
            except Exception:  # noqa: BLE001 - a round must not be the last one
                _log.exception("ends_failed")
            await asyncio.sleep(interval_ms / 1000)

    async def refresh(self) -> None:
        """Ask for all ends once. If a leader does not answer, the known ends of its partitions
        stay.

        Raises BrokerError if no broker answers.
        """
        wanted = await self._committed()
        portion: dict[str, set[int]] = {}
        count = 0
        for name, partitions in wanted.items():
            portion[name] = partitions
            count += self._partitions(name)
            if count >= PARTITIONS_AT_ONCE:
                await self._ask(portion)
                portion, count = {}, 0
        if portion:
            await self._ask(portion)

    def _partitions(self, name: str) -> int:
        info = self._topics.image.by_name.get(name)
        return 0 if info is None else info.partitions

    async def _committed(self) -> dict[str, set[int]]:
        """Return the partitions that have a committed offset, by the name of the topic."""
        found: dict[str, set[int]] = {}
        examined = 0
        for groups in self._live_groups():
            for group_id in list(groups):
                group = groups.get(group_id)
                if group is None:
                    continue
                for topic, offsets in list(group.offsets.items()):
                    if topic in self._topics.image.by_name:
                        found.setdefault(topic, set()).update(offsets)
                    examined += 1 + len(offsets)
                    if examined >= PARTITIONS_AT_ONCE:
                        examined = 0
                        await asyncio.sleep(0)
        return found

    async def _ask(self, wanted: Mapping[str, set[int]]) -> None:
        answer = await self._cluster.ask(
            METADATA,
            METADATA_VERSIONS,
            topics=[Row(name=name, topic_id="") for name in wanted],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        leaders: dict[int, dict[str, list[int]]] = {}
        for topic in answer.topics:
            for row in topic.partitions:
                if row.partition_index in wanted.get(topic.name, ()) and row.leader_id >= 0:
                    of_leader = leaders.setdefault(row.leader_id, {})
                    of_leader.setdefault(topic.name, []).append(row.partition_index)
        results = await asyncio.gather(
            *[self._ask_leader(leader, topics) for leader, topics in leaders.items()]
        )
        for found in results:
            self._topics.gateway_ends.observe(found)

    async def _ask_leader(
        self, leader: int, topics: Mapping[str, list[int]]
    ) -> dict[PartitionKey, int]:
        by_name = self._topics.image.by_name
        ids = {name: by_name[name].topic_id for name in topics if name in by_name}
        try:
            answer = await self._cluster.client(leader).ask(
                LIST_OFFSETS,
                LIST_OFFSETS_VERSIONS,
                replica_id=-1,
                isolation_level=0,
                topics=[
                    Row(
                        name=name,
                        partitions=[
                            Row(partition_index=each, current_leader_epoch=-1, timestamp=LATEST)
                            for each in partitions
                        ],
                    )
                    for name, partitions in topics.items()
                ],
            )
        except BrokerError as error:
            if self._lines.allow(f"leader {leader}") is not None:
                _log.warning("ends_not_read", broker=leader, problem=str(error))
            return {}
        return {
            (ids[topic.name], row.partition_index): row.offset
            for topic in answer.topics
            for row in topic.partitions
            if row.error_code == ErrorCode.NONE and row.offset >= 0 and topic.name in ids
        }
