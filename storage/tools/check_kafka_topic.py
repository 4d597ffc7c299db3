"""Read a whole store in topics of Kafka and measure its speed, for ``groupkeeper storage check``.

Creates no topic and changes no group.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from groupkeeper.storage.backends.journal.store import boot_time_ms
from groupkeeper.storage.backends.kafka_topic import own
from groupkeeper.storage.backends.kafka_topic.link import KafkaLink
from groupkeeper.storage.backends.kafka_topic.lives import TopicLife
from groupkeeper.storage.backends.kafka_topic.loaded import load_shard
from groupkeeper.storage.backends.kafka_topic.newest import read_newest
from groupkeeper.storage.backends.kafka_topic.options import client_options
from groupkeeper.storage.backends.kafka_topic.store import TRANSACTION_TIMEOUT_MS
from groupkeeper.storage.backends.kafka_topic.topics import CLUSTER_PARTITION, TopicAdmin
from groupkeeper.storage.backends.kafka_topic.url import KafkaTopicUrl
from groupkeeper.storage.base import StoreIdentity, StoreRefused
from groupkeeper.storage.event_log.sealing.sealer import FOR_EVER
from groupkeeper.storage.tools.check import StoreReport, median_ms

MANY_MESSAGES: Final = 100_000
MANY_FOR_A_KEY: Final = 10
"""The report advises more compaction if the store has more than ``MANY_MESSAGES`` messages, and
more than this number for each key. A start reads all messages."""


async def check_kafka_topic(  # noqa: PLR0913 - some are only for tests
    url: KafkaTopicUrl,
    identity: StoreIdentity,
    *,
    append_timeout_ms: int,
    lease_ttl_ms: int,
    measures_writes: bool = False,
    connect: Callable[..., KafkaLink] = KafkaLink,
    admin: Callable[..., TopicAdmin] = TopicAdmin,
) -> StoreReport:
    """Read and check the topics of a store. Raises StoreRefused if there is no store.

    To measure writes, the check registers as a user of the store for a moment, and commits
    transactions that change nothing. Nothing is written if a process uses the store.
    """
    options = client_options(url, append_timeout_ms)
    look = await admin(url, options, FOR_EVER).look(identity.shards)
    if look.missing:
        raise StoreRefused(
            f"{url.name}: there is no topic {look.missing[0]}: the first start creates it"
        )
    check = _Check(url, identity, connect(options, url.name, Counter()), lease_ttl_ms)
    check.report.problems += look.problems
    check.report.advice += look.advice
    await check.run(measures_writes=measures_writes)
    return check.report


class _Check:
    def __init__(
        self, url: KafkaTopicUrl, identity: StoreIdentity, link: KafkaLink, lease_ttl_ms: int
    ) -> None:
        self.report = StoreReport()
        self._url = url
        self._identity = identity
        self._link = link
        self._life = TopicLife(
            link, url.cluster_topic, url.name, ttl_ms=lease_ttl_ms, timer_ms=boot_time_ms
        )

    async def run(self, *, measures_writes: bool) -> None:
        try:
            await self._link.connect([self._url.topic, self._url.cluster_topic])
            if lives := await self._life.look(self._identity):
                self.report.used_by = f"node {lives[0].node_id} ({lives[0].name})"
            self.report.round_trip_ms = await median_ms(lambda: self._life.look(self._identity))
            await self._read()
            if measures_writes and not lives:
                await self._measure_writes()
        finally:
            await self._link.close()

    async def _read(self) -> None:
        """Read all shards as a start does."""
        began = time.perf_counter()
        places = [(self._url.topic, shard) for shard in range(self._identity.shards)]
        messages = keys = 0
        for topic, partition in [(self._url.cluster_topic, CLUSTER_PARTITION), *places]:
            newest = await read_newest(self._link, topic, partition)
            messages += newest.messages
            keys += len(newest.values)
            await self._add(newest.values, f"topic {topic}, partition {partition}")
        self.report.read_ms = (time.perf_counter() - began) * 1000
        if messages > max(MANY_MESSAGES, MANY_FOR_A_KEY * keys):
            self.report.advice.append(
                f"{messages} messages have {keys} keys, and a start reads all of them: let the "
                "brokers compact more often, by a smaller segment.ms or min.cleanable.dirty.ratio "
                f"of topic {self._url.topic}"
            )

    async def _add(self, newest: dict[bytes, bytes], place: str) -> None:
        try:
            for record in (await load_shard(newest, place)).records():
                self.report.add(record)
        except StoreRefused as error:
            self.report.problems.append(
                f"{error}. Its shard stays LOADING: write the value again, or clear its key to "
                "lose what it has"
            )

    async def _measure_writes(self) -> None:
        try:
            await self._life.begin(0, f"check-{uuid.uuid4().hex}", "groupkeeper storage check")
        except StoreRefused:  # a daemon was faster
            return
        try:
            fence: Any = await self._link.fence(f"{self._url.topic}-check", TRANSACTION_TIMEOUT_MS)
            topic, written = self._url.cluster_topic, 0

            async def write() -> None:
                nonlocal written
                await self._link.begin(fence, {topic: CLUSTER_PARTITION})
                nothing = [(own.CHECKED_KEY, None)]
                written = await self._link.send(fence, topic, CLUSTER_PARTITION, nothing, written)
                await self._link.commit(fence)

            self.report.write_ms = await median_ms(write)
        finally:
            await self._life.end()
