"""The topics of a fake upstream cluster, as its brokers describe them."""

from __future__ import annotations

from typing import Any

from groupkeeper.coordinator.cluster.topics import mint_topic_id
from groupkeeper.coordinator.gateway.client import NoAnswer
from groupkeeper.protocol.codec import write_response
from groupkeeper.protocol.writer import Row

METADATA = 3
UNKNOWN_TOPIC, TOPIC_DENIED = 3, 29


class FakeUpstream:
    """Answers Metadata. A topic may be left out of the list of all topics, as with ACLs."""

    def __init__(self, version: int = 12, **topics: int) -> None:
        self.version = version
        self.topics: dict[str, tuple[str, int]] = {}
        self.hidden: set[str] = set()
        self.is_down = False
        self.asked: list[list[str] | None] = []
        for name, partitions in topics.items():
            self.create(name, partitions)

    def create(self, name: str, partitions: int = 3) -> str:
        """Create a topic, or create it again with another id."""
        topic_id = mint_topic_id()
        self.topics[name] = topic_id, partitions
        return topic_id

    async def ask_frame(self, key: int, versions: range, **values: Any) -> tuple[int, bytes]:
        assert key == METADATA
        assert self.version in versions
        asked = values["topics"]
        assert values["allow_auto_topic_creation"] is False
        by_id = {topic_id: name for name, (topic_id, _) in self.topics.items()}
        names = (
            None
            if asked is None
            else [topic.name or by_id.get(topic.topic_id, "") for topic in asked]
        )
        self.asked.append(names)
        if self.is_down:
            raise NoAnswer("the fake upstream is down")
        shown = [name for name in self.topics if name not in self.hidden]
        rows = [self._row(name) for name in (shown if names is None else names)]
        return self.version, write_response(
            METADATA,
            self.version,
            1,
            0,
            {
                "brokers": [],
                "cluster_id": "c",
                "controller_id": 1,
                "topics": rows,
                "error_code": 0,
                "cluster_authorized_operations": 0,
            },
        )

    def _row(self, name: str) -> Row:
        topic_id, count = self.topics.get(name, ("", 0))
        error = 0 if name in self.topics else UNKNOWN_TOPIC
        if name in self.hidden:
            topic_id, count, error = "", 0, TOPIC_DENIED
        return Row(
            error_code=error,
            name=name,
            topic_id=topic_id,
            is_internal=name.startswith("__"),
            partitions=[self._partition(number) for number in range(count)],
            topic_authorized_operations=0,
        )

    @staticmethod
    def _partition(number: int) -> Row:
        return Row(
            error_code=0,
            partition_index=number,
            leader_id=1,
            leader_epoch=0,
            replica_nodes=[1, 2, 3],
            isr_nodes=[1, 2],
            offline_replicas=[3],
        )
