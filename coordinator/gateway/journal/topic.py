"""Finds the topic of the journal in the upstream cluster, or creates it, and checks it.

The journal has a record for each TxnOffsetCommit, and shows how its transaction ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from groupkeeper.coordinator.core.errors import ErrorCode, error_name
from groupkeeper.coordinator.gateway.journal.links import ADMIN_LANE, JournalLinks, only
from groupkeeper.protocol.codec import uuid_to_topic_id
from groupkeeper.protocol.writer import Row

RETENTION_MS: Final = 7 * 24 * 60 * 60 * 1000
"""How long the journal keeps records. This must be longer than an outage of ours, because a restart
reads the records that were written in the meantime.
"""

_METADATA: Final = 3, range(10, 14)
"""The API key of Metadata, and the versions that we use. From version 10 on, topics have ids."""
_CREATE_TOPICS: Final = 19, range(5, 8)
_DESCRIBE_CONFIGS: Final = 32, range(1, 5)
_TOPIC: Final = 2
"""The type of a resource (ConfigResource.Type.TOPIC)."""
_UNCOMPRESSED: Final = ("producer", "uncompressed")
"""The values of compression.type with which a broker does not compress our records."""
_CREATE_TIMEOUT_MS: Final = 15_000


class JournalRefused(Exception):
    """The topic cannot be used as the journal. The message says what a person must do."""


class FoundTopic(NamedTuple):
    """The topic of the journal, as the cluster describes it."""

    uuid: UUID
    leaders: dict[int, int]
    """Partition -> broker id; a partition without a leader is missing."""

    @property
    def topic_id(self) -> str:
        """The id in Kafka's printed form."""
        return uuid_to_topic_id(self.uuid)


class TopicFinder:
    """Finds and checks one topic."""

    def __init__(self, links: JournalLinks, name: str, partitions: int) -> None:
        self._links = links
        self.name = name
        self._partitions = partitions

    async def found_or_created(self) -> FoundTopic:
        """Return the topic; create it if it does not exist.

        Raises JournalRefused if the topic is not fit for a journal or cannot be created, and
        BrokerError if no broker answers.
        """
        found = await self.find()
        if found is None:
            await self._create()
            found = await self.find()
            if found is None:
                raise JournalRefused(f"the topic {self.name} was created, and does not exist")
        await self._check_configs()
        return found

    async def find(self) -> FoundTopic | None:
        """Return the topic, or None if it does not exist.

        Raises JournalRefused if its number of partitions is wrong or the upstream refuses to
        describe it, and BrokerError if no broker answers.
        """
        topics = [Row(name=self.name, topic_id=None)]
        answer = await self._links.ask_any(
            *_METADATA,
            topics=topics,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        topic = only(answer.topics)
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if topic.error_code:
            raise JournalRefused(
                f"the upstream refuses to describe the topic {self.name}: "
                f"{error_name(topic.error_code)}"
            )
        self._check_partitions(topic.partitions)
        leaders = {p.partition_index: p.leader_id for p in topic.partitions if p.leader_id >= 0}
        return FoundTopic(topic.topic_id, leaders)

    def _check_partitions(self, partitions: Sequence[Any]) -> None:
        if len(partitions) != self._partitions:
            raise JournalRefused(
                f"the topic {self.name} has {len(partitions)} partitions, and the store has "
                f"{self._partitions} shards; name another topic in upstream.journal_topic"
            )

    async def _create(self) -> None:
        configs = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "retention.ms": str(RETENTION_MS),
        }
        topic = Row(
            name=self.name,
            num_partitions=self._partitions,
            replication_factor=-1,
            assignments=[],
            configs=[Row(name=name, value=value) for name, value in configs.items()],
        )
        answer = await self._links.ask(
            await self._controller(),
            ADMIN_LANE,
            *_CREATE_TOPICS,
            topics=[topic],
            timeout=_CREATE_TIMEOUT_MS,
            validate_only=False,
        )
        created = only(answer.topics)
        if created.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise JournalRefused(
                f"the upstream refuses to create the topic {self.name}: "
                f"{error_name(created.error_code)}: {created.error_message}"
            )

    async def _controller(self) -> int:
        """Return the broker that creates topics. With ZooKeeper only this broker creates them. With
        KRaft every broker passes the request on, and Metadata names one of them.
        """
        answer = await self._links.ask_any(
            *_METADATA,
            topics=[],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        return int(answer.controller_id)

    async def _check_configs(self) -> None:
        resource = Row(
            resource_type=_TOPIC,
            resource_name=self.name,
            configuration_keys=["cleanup.policy", "compression.type"],
        )
        answer = await self._links.ask_any(
            *_DESCRIBE_CONFIGS,
            resources=[resource],
            include_synonyms=False,
            include_documentation=False,
        )
        described = only(answer.results)
        found = {each.name: each.value for each in described.configs}
        policy = found.get("cleanup.policy", "delete")
        if policy != "delete":
            raise JournalRefused(
                f"the topic {self.name} has cleanup.policy={policy}, which removes markers of "
                "transactions; set it to delete, or name another topic in upstream.journal_topic"
            )
        compression = found.get("compression.type", "producer")
        if compression not in _UNCOMPRESSED:
            raise JournalRefused(
                f"the topic {self.name} has compression.type={compression}, and compressed records "
                "are not read; set it to producer, or name another topic in upstream.journal_topic"
            )
