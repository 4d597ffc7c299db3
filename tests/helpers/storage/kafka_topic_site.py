"""A store in topics of a real Kafka."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from groupkeeper.storage.backends.kafka_topic.events import read_events
from groupkeeper.storage.backends.kafka_topic.link import Fence, KafkaLink
from groupkeeper.storage.backends.kafka_topic.options import client_options
from groupkeeper.storage.backends.kafka_topic.store import KafkaTopicStorage
from groupkeeper.storage.backends.kafka_topic.url import KafkaTopicUrl, parse_url
from groupkeeper.storage.backends.kafka_topic.written import Message
from groupkeeper.storage.event_log.log_clock import wall_clock_ms
from groupkeeper.storage.segment_lines import EventDict
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.storage.fake_kafka import FakeAdmin, FakeKafka, FakeLink, Pause, no_pause
from tests.helpers.storage.storage_owner import IDENTITY, Owner

TTL_MS = 1_000
STORE_SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 5,
    "log.retention.ms": -1,  # the events of tests are old
}


class KafkaTopicSite:
    """One store, and the processes that use it."""

    def __init__(self, server: RealKafka, topic: str = "") -> None:
        self.server = server
        self.topic = topic or f"s{uuid.uuid4().hex}"
        self.owners: list[Owner] = []
        self.pause: Pause = no_pause

    def url(self, port: int | None = None) -> KafkaTopicUrl:
        return parse_url(f"kafka://127.0.0.1:{port or self.server.port}/{self.topic}", {})

    def storage(
        self,
        node_id: int = 1,
        *,
        ttl_ms: int = TTL_MS,
        timeout_ms: int = 5_000,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> KafkaTopicStorage:
        return KafkaTopicStorage(
            self.url(),
            node_id=node_id,
            name=f"host:{node_id}",
            append_timeout_ms=timeout_ms,
            lease_ttl_ms=ttl_ms,
            clock=clock,
            connect=self._connect,
        )

    def _connect(self, *arguments: Any) -> PausedLink:
        link = PausedLink(*arguments)
        link.pause = lambda *stage: self.pause(*stage)
        return link

    async def owner(self, node_id: int = 1) -> Owner:
        owner = Owner(self.storage(node_id))
        self.owners.append(owner)
        return await owner.start()

    async def again(self, owner: Owner) -> Owner:
        """Close the store and open it again."""
        await owner.storage.close()
        return await self.owner(1)

    def events(self) -> list[EventDict]:
        """Return all events, shard by shard. The cluster shard is the last one."""

        async def read() -> list[EventDict]:
            options = client_options(self.url(), 5_000)
            topic = self.url().events_topic
            return [
                event
                for partition in range(IDENTITY.shards + 1)
                async for event in read_events(options, topic, partition, 0)
            ]

        return in_thread(read)


def in_thread(work: Callable[[], Any]) -> Any:
    """Run a coroutine in its own loop, beside the loop of the test."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(work())))
    thread.start()
    thread.join()
    (result,) = found
    return result


class PausedLink(KafkaLink):
    """Awaits ``pause`` before and after each request of a transaction, as ``FakeLink`` does."""

    pause: Pause

    async def begin(self, fence: Fence, partitions: Mapping[str, int]) -> None:
        await self.pause("begin", False)
        await super().begin(fence, partitions)
        await self.pause("begin", True)

    async def send(
        self, fence: Fence, topic: str, partition: int, messages: Sequence[Message], sequence: int
    ) -> int:
        await self.pause("send", False)
        result = await super().send(fence, topic, partition, messages, sequence)
        await self.pause("send", True)
        return result

    async def commit(self, fence: Fence) -> None:
        await self.pause("commit", False)
        await super().commit(fence)
        await self.pause("commit", True)


class FakeKafkaSite:
    """One store in a fake cluster, and the processes that use it."""

    ttl_ms = 200

    def __init__(self, cluster: FakeKafka) -> None:
        self.cluster = cluster
        self.owners: list[Owner] = []
        self.pause: Pause = no_pause
        self._url = parse_url("kafka://127.0.0.1:1/store", {})

    def storage(self, node_id: int = 1) -> KafkaTopicStorage:
        return KafkaTopicStorage(
            self._url,
            node_id=node_id,
            name=f"host:{node_id}",
            append_timeout_ms=1_000,
            lease_ttl_ms=self.ttl_ms,
            connect=self.connect,  # type: ignore[arg-type]
            admin=FakeAdmin,  # type: ignore[arg-type]
        )

    def url(self) -> KafkaTopicUrl:
        return self._url

    def connect(self, *_: object) -> FakeLink:
        return FakeLink(self.cluster, lambda *stage: self.pause(*stage))

    async def owner(self, node_id: int = 1) -> Owner:
        owner = Owner(self.storage(node_id))
        self.owners.append(owner)
        return await owner.start()

    async def again(self, owner: Owner) -> Owner:
        """Close the store and open it again."""
        await owner.storage.close()
        return await self.owner(1)

    def events(self) -> list[EventDict]:
        return self.cluster.events(self._url.events_topic, IDENTITY.shards + 1)
