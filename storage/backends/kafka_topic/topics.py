"""Creates the topics of a store, and refuses topics that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.admin.new_topic import NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from groupkeeper.storage.backends.kafka_topic.url import KafkaTopicUrl
from groupkeeper.storage.base import StorageError, StoreRefused

LIVES_PARTITION: Final = 0
"""The partition of the cluster topic with the lives."""
CLUSTER_PARTITION: Final = 1
"""The partition of the cluster topic with topics and configs."""
CLUSTER_PARTITIONS: Final = 2

MESSAGE_BYTES: Final = 8 * 1024 * 1024
"""A message must be allowed to have so many bytes."""
COMPACTION_LAG_MS: Final = 3_600_000
"""Messages about lives stay for so long before they are compacted."""
_REPLICAS: Final = 3
_COMPACT: Final = {"cleanup.policy": "compact", "max.message.bytes": str(MESSAGE_BYTES)}
_LAG: Final = "min.compaction.lag.ms"


class TopicAdmin:
    """The topics of one store."""

    def __init__(self, url: KafkaTopicUrl, options: Mapping[str, Any], retention_ms: int) -> None:
        self._url = url
        self._options = options
        self._retention_ms = retention_ms

    async def prepare_cluster(self) -> None:
        """Create or check the topic of lives."""
        settings = _COMPACT | {_LAG: str(COMPACTION_LAG_MS)}
        await self._prepare({self._url.cluster_topic: (CLUSTER_PARTITIONS, settings)})

    async def prepare_shards(self, shards: int) -> None:
        """Create or check the topics of shards and events."""
        events = {
            "cleanup.policy": "delete",
            "retention.ms": str(self._retention_ms),
            "max.message.bytes": str(MESSAGE_BYTES),
        }
        await self._prepare(
            {
                self._url.topic: (shards, _COMPACT),
                self._url.events_topic: (shards + 1, events),
            }
        )

    async def _prepare(self, wanted: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
        admin = AIOKafkaAdminClient(**self._options)
        try:
            await admin.start()
            found = await self._partitions(admin, [*wanted])
            missing = {topic: wanted[topic] for topic in wanted if topic not in found}
            if missing:
                await self._create(admin, missing)
            for topic, count in found.items():
                settings = await _settings(admin, topic)
                self._check(topic, count, settings, *wanted[topic])
        except (KafkaError, OSError) as error:
            raise StorageError(f"{self._url.name}: {error!r}") from error
        finally:
            await admin.close()

    async def _partitions(self, admin: AIOKafkaAdminClient, topics: list[str]) -> dict[str, int]:
        """Return the number of partitions of those topics that exist. Asking creates none."""
        there = await admin.list_topics()
        known = [topic for topic in topics if topic in there]
        described = await admin.describe_topics(known) if known else []
        return {each["topic"]: len(each["partitions"]) for each in described}

    async def _create(
        self, admin: AIOKafkaAdminClient, missing: Mapping[str, tuple[int, Mapping[str, str]]]
    ) -> None:
        brokers = len((await admin.describe_cluster())["brokers"])
        replicas = self._url.replication or min(brokers, _REPLICAS)
        new = [
            NewTopic(topic, count, replicas, topic_configs=dict(settings))
            for topic, (count, settings) in missing.items()
        ]
        answer = await admin.create_topics(new)
        for topic, code, *why in answer.topic_errors:
            error_type = for_code(code)
            if code and error_type is not TopicAlreadyExistsError:
                raise StoreRefused(
                    f"{self._url.name}: topic {topic} cannot be created: "
                    f"{error_type.__name__}: {why[0] if why else ''}"
                )

    def _check(
        self,
        topic: str,
        count: int,
        settings: Mapping[str, str],
        wanted_count: int,
        wanted: Mapping[str, str],
    ) -> None:
        """Refuse a topic that would lose or mix up what it stores."""
        if count != wanted_count:
            raise StoreRefused(
                f"{self._url.name}: topic {topic} has {count} partitions, the store needs "
                f"{wanted_count}: use another topic, or set coordinator.shards as it was"
            )
        policy = settings["cleanup.policy"]
        if policy != wanted["cleanup.policy"]:
            raise StoreRefused(
                f"{self._url.name}: topic {topic} has cleanup.policy={policy}, which would delete "
                f"what is stored: set it to {wanted['cleanup.policy']}"
            )
        for name in (_LAG, "max.message.bytes"):
            if int(settings[name]) < int(wanted.get(name, 0)):
                raise StoreRefused(
                    f"{self._url.name}: topic {topic} has {name}={settings[name]}: set it to "
                    f"{wanted[name]} or more"
                )


async def _settings(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    (resource,) = answer.resources
    return {entry[0]: entry[1] for entry in resource[-1]}
