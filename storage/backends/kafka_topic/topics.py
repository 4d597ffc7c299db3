"""Creates the topics of a store, and refuses topics that cannot be used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.admin.new_topic import NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from groupkeeper.storage.backends.kafka_topic.reach import missing_right, why_unreachable
from groupkeeper.storage.backends.kafka_topic.url import KafkaTopicUrl
from groupkeeper.storage.base import StorageError, StoreBusy, StoreRefused

LIVES_PARTITION: Final = 0
"""The partition of the cluster topic with the lives (the registrations of processes)."""
CLUSTER_PARTITION: Final = 1
"""The partition of the cluster topic with the cluster shard: topics and configs."""
CLUSTER_PARTITIONS: Final = 2

MESSAGE_BYTES: Final = 8 * 1024 * 1024
"""The least ``max.message.bytes`` of a topic."""
COMPACTION_LAG_MS: Final = 3_600_000
"""Messages about lives are compacted only after this time."""
_REPLICAS: Final = 3
_SAFE_REPLICAS: Final = 2
_IN_SYNC: Final = "min.insync.replicas"
_COMPACT: Final = {"cleanup.policy": "compact", "max.message.bytes": str(MESSAGE_BYTES)}
_LAG: Final = "min.compaction.lag.ms"


class _Wanted(NamedTuple):
    """The partitions and configs that the store needs of a topic."""

    partitions: int
    settings: Mapping[str, str]


class TopicsLook(NamedTuple):
    """The findings of ``look``, as lines of text."""

    missing: list[str]
    """The topics that do not exist."""
    problems: list[str]
    """The reasons why a start refuses a topic."""
    advice: list[str]
    """Advice about topics that work, but may lose data if one broker fails."""


class _Topic(NamedTuple):
    """The numbers of partitions and replicas that a topic has."""

    partitions: int
    replicas: int
    """The smallest number of replicas of a partition."""


class TopicAdmin:
    """Creates and checks the topics of one store."""

    def __init__(self, url: KafkaTopicUrl, options: Mapping[str, Any], retention_ms: int) -> None:
        self._url = url
        self._options = options
        self._retention_ms = retention_ms

    async def prepare_cluster(self) -> None:
        """Create or check the cluster topic, which has the lives. Raises StoreRefused if it cannot
        be used.
        """
        await self._prepare(self._cluster())

    async def prepare_shards(self, shards: int) -> None:
        """Create or check the topics of shards and events. Raises StoreRefused if one cannot be
        used.
        """
        await self._prepare(self._of_shards(shards))

    async def look(self, shards: int) -> TopicsLook:
        """Return what is missing or wrong with the topics. Create no topic, and refuse none."""
        wanted = self._cluster() | self._of_shards(shards)
        look = TopicsLook([], [], [])
        async with self._connected() as admin:
            found = await _described(admin, [*wanted])
            look.missing.extend(topic for topic in wanted if topic not in found)
            for topic, described in found.items():
                settings = await _settings(admin, topic)
                look.problems.extend(_problems(topic, described, settings, *wanted[topic]))
                look.advice.extend(_advice(topic, described, settings))
        return look

    async def event_partitions(self) -> int:
        """Return the number of partitions with events. Raises StoreRefused if there is no store."""
        topic = self._url.events_topic
        async with self._connected() as admin:
            found = await _described(admin, [topic])
        if topic not in found:
            raise StoreRefused(f"{self._url.name}: there is no store: no topic {topic}")
        return found[topic].partitions

    def _cluster(self) -> dict[str, _Wanted]:
        settings = _COMPACT | {_LAG: str(COMPACTION_LAG_MS)}
        return {self._url.cluster_topic: _Wanted(CLUSTER_PARTITIONS, settings)}

    def _of_shards(self, shards: int) -> dict[str, _Wanted]:
        events = {
            "cleanup.policy": "delete",
            "retention.ms": str(self._retention_ms),
            "max.message.bytes": str(MESSAGE_BYTES),
        }
        return {
            self._url.topic: _Wanted(shards, _COMPACT),
            self._url.events_topic: _Wanted(shards + 1, events),
        }

    async def _prepare(self, wanted: Mapping[str, _Wanted]) -> None:
        async with self._connected() as admin:
            found = await _described(admin, [*wanted])
            missing = {topic: wanted[topic] for topic in wanted if topic not in found}
            if missing:
                await self._create(admin, missing)
            for topic, described in found.items():
                settings = await _settings(admin, topic)
                for problem in _problems(topic, described, settings, *wanted[topic]):
                    raise StoreRefused(f"{self._url.name}: {problem}")

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(**self._options)
        try:
            await admin.start()
        except (KafkaError, OSError) as error:
            await admin.close()
            reason = await why_unreachable(self._options)
            raise StoreBusy(f"{self._url.name}: cannot connect: {reason}") from error
        try:
            yield admin
        except (KafkaError, OSError) as error:
            text = missing_right(self._url.name, error) if isinstance(error, KafkaError) else None
            if text is not None:
                raise StoreRefused(f"{self._url.name}: {text}") from error
            text = f"{self._url.name}: {error!r}"
            is_away = isinstance(error, OSError) or error.retriable
            raise (StoreBusy(text) if is_away else StorageError(text)) from error
        finally:
            await admin.close()

    async def _create(self, admin: AIOKafkaAdminClient, missing: Mapping[str, _Wanted]) -> None:
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
                text = f"{error_type.__name__}: {why[0] if why else ''}"
                raise StoreRefused(
                    f"{self._url.name}: topic {topic} cannot be created: "
                    f"{missing_right(self._url.name, error_type) or text}"
                )


def _problems(
    topic: str,
    found: _Topic,
    settings: Mapping[str, str],
    wanted_count: int,
    wanted: Mapping[str, str],
) -> Iterator[str]:
    """Yield the reasons why a topic would lose or mix up data."""
    if found.partitions != wanted_count:
        yield (
            f"topic {topic} has {found.partitions} partitions, the store needs {wanted_count}: "
            "use another topic, or set offsets.topic_num_partitions as it was"
        )
    policy = settings["cleanup.policy"]
    if policy != wanted["cleanup.policy"]:
        yield (
            f"topic {topic} has cleanup.policy={policy}, which would delete what is stored: set it "
            f"to {wanted['cleanup.policy']}"
        )
    for name in (_LAG, "max.message.bytes"):
        if int(settings[name]) < int(wanted.get(name, 0)):
            yield f"topic {topic} has {name}={settings[name]}: set it to {wanted[name]} or more"


def _advice(topic: str, found: _Topic, settings: Mapping[str, str]) -> Iterator[str]:
    """Yield advice for a topic that could be safer."""
    if found.replicas < _SAFE_REPLICAS:
        yield f"topic {topic} has one replica: with its broker, all of it is lost"
    elif int(settings[_IN_SYNC]) < _SAFE_REPLICAS:
        yield (
            f"topic {topic} has {_IN_SYNC}=1: a write counts although only one broker has it. Set "
            f"it to {_SAFE_REPLICAS}"
        )


async def _described(admin: AIOKafkaAdminClient, topics: list[str]) -> dict[str, _Topic]:
    """Return by name those of the topics that exist. Create none."""
    there = await admin.list_topics()
    known = [topic for topic in topics if topic in there]
    described = await admin.describe_topics(known) if known else []
    return {
        each["topic"]: _Topic(
            len(each["partitions"]), min(len(part["replicas"]) for part in each["partitions"])
        )
        for each in described
    }


async def _settings(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    (resource,) = answer.resources
    return {entry[0]: entry[1] for entry in resource[-1]}
