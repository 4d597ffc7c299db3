"""A fake upstream cluster with groups and partition ends. Requests and answers are objects, not
bytes.
"""

from __future__ import annotations

from typing import Any

from groupkeeper.coordinator.gateway.client import NoAnswer, NotSent, UnsupportedApi
from groupkeeper.coordinator.gateway.upstream_groups import UpstreamOffset
from groupkeeper.protocol.writer import Row

METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 3, 8, 9, 10
LIST_OFFSETS, DESCRIBE_GROUPS, CONSUMER_GROUP_DESCRIBE = 2, 15, 69
GROUP_ID_NOT_FOUND, UNSTABLE_OFFSET_COMMIT, UNKNOWN_MEMBER_ID = 69, 88, 25
LEADER = 7


class FakeGroups:
    """The cluster, and at the same time each of its brokers."""

    def __init__(self) -> None:
        self.members: dict[str, str] = {}
        """Group -> the protocol of its members: ``classic`` or ``consumer``."""
        self.stored: dict[str, dict[tuple[str, int], tuple[int, int, str]]] = {}
        self.unstable: set[str] = set()
        self.ends: dict[tuple[str, int], int] = {}
        self.lacks: set[int] = set()
        """APIs that the brokers do not have."""
        self.is_down = False
        self.asked: list[int] = []
        self.commits: list[tuple[str, list[UpstreamOffset]]] = []

    def client(self, broker_id: int) -> FakeGroups:
        if broker_id != LEADER:
            raise NotSent("no such broker")
        return self

    async def ask(self, api_key: int, versions: range, **values: Any) -> Any:
        assert len(versions)
        self.asked.append(api_key)
        if self.is_down:
            raise NoAnswer("the fake upstream is down")
        if api_key in self.lacks:
            raise UnsupportedApi("the fake upstream has no such API")
        return self._answers[api_key](self, values)

    def _find(self, values: Any) -> Row:
        (key,) = values["coordinator_keys"]
        return Row(coordinators=[Row(key=key, node_id=LEADER, error_code=0)])

    def _describe(self, values: Any) -> Row:
        (group,) = values["groups"]
        state = "Stable" if self.members.get(group) == "classic" else "Dead"
        return Row(groups=[Row(error_code=0, group_state=state)])

    def _describe_consumer(self, values: Any) -> Row:
        (group,) = values["group_ids"]
        is_one = self.members.get(group) == "consumer"
        error = 0 if is_one else GROUP_ID_NOT_FOUND
        return Row(groups=[Row(error_code=error, members=[Row()] if is_one else [])])

    def _fetch(self, values: Any) -> Row:
        assert values["require_stable"]
        group = values["group_id"]
        error = UNSTABLE_OFFSET_COMMIT if group in self.unstable else 0
        topics: dict[str, list[Row]] = {}
        for (topic, partition), (offset, epoch, metadata) in self.stored.get(group, {}).items():
            row = Row(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                metadata=metadata,
                error_code=error,
            )
            topics.setdefault(topic, []).append(row)
        rows = [Row(name=name, partitions=found) for name, found in topics.items()]
        return Row(groups=[Row(error_code=0, topics=rows)])

    def _commit(self, values: Any) -> Row:
        group = values["group_id"]
        error = UNKNOWN_MEMBER_ID if group in self.members else 0
        seen = []
        topics = []
        for topic in values["topics"]:
            rows = []
            for row in topic.partitions:
                value = row.committed_offset, row.committed_leader_epoch, row.committed_metadata
                seen.append(UpstreamOffset(topic.name, row.partition_index, *value))
                rows.append(Row(partition_index=row.partition_index, error_code=error))
                if not error:
                    self.stored.setdefault(group, {})[topic.name, row.partition_index] = value
            topics.append(Row(name=topic.name, partitions=rows))
        self.commits.append((group, seen))
        return Row(topics=topics)

    def _metadata(self, values: Any) -> Row:
        topics = []
        for asked in values["topics"]:
            partitions = [number for topic, number in self.ends if topic == asked.name]
            rows = [Row(partition_index=each, leader_id=LEADER) for each in partitions]
            topics.append(Row(name=asked.name, partitions=rows))
        return Row(topics=topics)

    def _list_offsets(self, values: Any) -> Row:
        topics = []
        for topic in values["topics"]:
            rows = [
                Row(
                    partition_index=each.partition_index,
                    error_code=0,
                    offset=self.ends[topic.name, each.partition_index],
                )
                for each in topic.partitions
            ]
            topics.append(Row(name=topic.name, partitions=rows))
        return Row(topics=topics)

    _answers = {  # noqa: RUF012 - it never changes
        METADATA: _metadata,
        OFFSET_COMMIT: _commit,
        OFFSET_FETCH: _fetch,
        FIND_COORDINATOR: _find,
        DESCRIBE_GROUPS: _describe,
        CONSUMER_GROUP_DESCRIBE: _describe_consumer,
        LIST_OFFSETS: _list_offsets,
    }
