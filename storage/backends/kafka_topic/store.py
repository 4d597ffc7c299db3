"""A store in topics of Kafka. A shard is a partition, which compaction keeps small.

An append is one transaction: the messages of its records and of its events. There is no journal
that must be folded into values later, because compaction keeps the newest message of each key. The
transactional id of a shard is its fence: a process that acquires the shard also acquires the id,
and the brokers refuse all writes of earlier owners. See docs/decisions/0039-kafka-topic.md.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final

import structlog

from groupkeeper.coordinator.core.records import Record
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.storage.backends.journal.driver import LifeOver
from groupkeeper.storage.backends.journal.life_journal import error_text
from groupkeeper.storage.backends.journal.store import boot_time_ms
from groupkeeper.storage.backends.kafka_topic.events import read_events
from groupkeeper.storage.backends.kafka_topic.link import Fenced, KafkaLink
from groupkeeper.storage.backends.kafka_topic.lives import TopicLife
from groupkeeper.storage.backends.kafka_topic.lives_log import log_name
from groupkeeper.storage.backends.kafka_topic.loaded import load_shard
from groupkeeper.storage.backends.kafka_topic.newest import read_newest
from groupkeeper.storage.backends.kafka_topic.options import client_options
from groupkeeper.storage.backends.kafka_topic.sealing import TopicEvents
from groupkeeper.storage.backends.kafka_topic.shard import HeldShard, ShardLog
from groupkeeper.storage.backends.kafka_topic.topics import (
    CLUSTER_PARTITION,
    MESSAGE_BYTES,
    TopicAdmin,
)
from groupkeeper.storage.backends.kafka_topic.url import KafkaTopicUrl
from groupkeeper.storage.backends.kafka_topic.written import Message
from groupkeeper.storage.base import (
    CLUSTER_SHARD,
    ROUND_TRIPS,
    Lease,
    LeaseEpoch,
    ShardAppend,
    ShardId,
    StorageError,
    StorageLimits,
    StoreIdentity,
    StoreRefused,
)
from groupkeeper.storage.cancellation import unless_cancelled
from groupkeeper.storage.event_log.log_clock import mint_log_id, wall_clock_ms
from groupkeeper.storage.event_log.sealing.sealer import FOR_EVER
from groupkeeper.storage.event_log.store_names import name_of_shard
from groupkeeper.storage.leases.lives import ReadTime, beat_interval_ms
from groupkeeper.storage.segment_lines import EventDict

TRANSACTION_TIMEOUT_MS: Final = 60_000
"""The brokers abort a transaction that its writer left open for this time."""

FENCES_AT_ONCE: Final = 10
"""The largest number of shards that are acquired at the same time."""

_log = structlog.get_logger(__name__)


class KafkaTopicStorage:
    """Implements the contract of storage with topics of Kafka."""

    def __init__(  # noqa: PLR0913 - some are only for tests
        self,
        url: KafkaTopicUrl,
        *,
        node_id: int,
        name: str,
        append_timeout_ms: int,
        lease_ttl_ms: int,
        retention_ms: int = FOR_EVER,
        clock: Callable[[], int] = wall_clock_ms,
        timer_ms: Callable[[], int] = boot_time_ms,
        new_log_id: Callable[[], str] = mint_log_id,
        connect: Callable[..., KafkaLink] = KafkaLink,
        admin: Callable[..., TopicAdmin] = TopicAdmin,
    ) -> None:
        """``name`` has the host and the process id, for messages of other processes. The topic of
        events is created with ``retention_ms``.
        """
        self.limits = StorageLimits(max_step_bytes=MESSAGE_BYTES // 2, one_lane=False, shared=True)
        self._url = url
        self._node_id = node_id
        self._name = name
        self._ttl_ms = lease_ttl_ms
        self._timer_ms = timer_ms
        self._clock = clock
        self._new_log_id = new_log_id
        self._round_trips: Counter[str] = Counter()
        self._options = client_options(url, append_timeout_ms)
        self._admin = admin(url, self._options, retention_ms)
        self._link = connect(self._options, url.name, self._round_trips)
        beats = client_options(url, lease_ttl_ms)
        self._beats = connect(beats, url.name, self._round_trips)
        self._own = self._new_own_life()
        self._identity: StoreIdentity | None = None
        """None if the store is not open."""
        self._read_time = ReadTime(lease_ttl_ms)
        self._beating: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()
        self._life_id = ""
        self._epochs: dict[ShardId, LeaseEpoch] = {}
        self._shards: dict[ShardId, HeldShard] = {}
        self._fencing = asyncio.Semaphore(FENCES_AT_ONCE)
        self._events = TopicEvents(url, lambda: self._own, self._shards)

    def _new_own_life(self) -> TopicLife:
        return TopicLife(
            self._beats,
            self._url.cluster_topic,
            self._url.name,
            ttl_ms=self._ttl_ms,
            timer_ms=self._timer_ms,
        )

    # --- opening and closing ----------------------------------------------------------------------

    async def open(self, identity: StoreIdentity) -> None:
        """Connect, create or check the topics, and register this process with the store (begin a
        life).

        Raises StoreRefused if another process uses the store. If that process was killed, the call
        waits until its life counts as dead.
        """
        if self._identity is not None:
            raise StoreRefused(f"{self._url.name}: is in use by another coordinator here")
        self._identity = identity
        self._own = self._new_own_life()
        self._events.opened()
        try:
            await self._admin.prepare_cluster()
            await self._beats.connect([self._url.cluster_topic])
            await self._own.check_identity(identity)
            await self._admin.prepare_shards(identity.shards)
            await self._link.connect(
                [self._url.topic, self._url.cluster_topic, self._url.events_topic]
            )
            await self._begin_life()
        except BaseException:
            await self.close()
            raise
        self._beating = asyncio.get_running_loop().create_task(self._beat_forever())

    async def close(self) -> None:
        """End the life and disconnect."""
        if self._identity is None:
            return
        self._identity = None
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
            self._beating = None
        self._forget()
        try:
            async with asyncio.timeout(self._ttl_ms / 1000):
                await self._own.end()
        except (StorageError, TimeoutError) as error:  # the next start waits until it is dead
            _log.warning("life_not_ended", store=self._url.name, error=error_text(error))
        finally:
            await self._beats.close()
            await self._link.close()

    # --- lives ------------------------------------------------------------------------------------

    async def _begin_life(self) -> None:
        self._forget()
        self._life_id = uuid.uuid4().hex
        await self._own.begin(self._node_id, self._life_id, self._name)
        await self._beat()

    async def _beat_forever(self) -> None:
        while True:
            began_ms = self._timer_ms()
            try:
                async with asyncio.timeout(self._ttl_ms / 1000):
                    await unless_cancelled(self._beat())
            except Exception as error:  # noqa: BLE001 - whatever it is, the next beat may succeed
                _log.warning("beat_failed", store=self._url.name, error=error_text(error))
            took_ms = self._timer_ms() - began_ms
            await asyncio.sleep(max(beat_interval_ms(self._ttl_ms) - took_ms, 1) / 1000)

    async def _beat(self) -> None:
        if self._own.life is None:
            return
        sent_ms = self._timer_ms()
        try:
            await self._own.write()
        except LifeOver:
            self._lose_life()
            return
        self._read_time.beat_succeeded(sent_ms)
        self._drop_lost()

    def _drop_lost(self) -> None:
        """Forget the epochs of shards that another life has acquired."""
        owners = self._own.log.owners
        for shard, epoch in [*self._epochs.items()]:
            if owners.get(shard) != (self._life_id, epoch):
                del self._epochs[shard]

    def _lose_life(self) -> None:
        _log.error("life_ended", store=self._url.name)
        self._forget()

    def _forget(self) -> None:
        """Forget all epochs and shards, and forbid reads."""
        self._epochs.clear()
        self._shards.clear()
        self._read_time.life_ended()

    # --- leases -----------------------------------------------------------------------------------

    async def acquire(self, shards: Collection[ShardId], owner: str) -> dict[ShardId, Lease]:
        """Acquire the shards, and fence their earlier writers.

        Our life writes a message before the fences and another one after them. If our life has
        ended between the two messages, the fences may have stopped the process that owns the shards
        at present. Then this process acquires nothing, and that process acquires its shards again.
        """
        self._check_open()
        async with self._beginning:
            if self._own.life is None:
                await self._begin_life()
        try:
            epoch = await self._own.write(shards)
            await _all(map(self._fence, shards))
            await self._own.write()
        except LifeOver:
            self._lose_life()
            raise StorageError(f"{self._url.name}: the life ended during an acquire") from None
        owners = self._own.log.owners
        ours = [shard for shard in shards if owners.get(shard) == (self._life_id, epoch)]
        self._epochs |= dict.fromkeys(ours, epoch)
        return {shard: Lease(shard, owner, epoch) for shard in ours}

    async def _fence(self, shard: ShardId) -> None:
        owned = self._shards.get(shard)
        name = log_name(shard)
        if owned is None:
            store = name_of_shard(self._own.log.store, name)
            log = ShardLog(self._clock, self._new_log_id, store)
            owned = self._shards[shard] = HeldShard(shard, log)
        owned.fence = None
        async with self._fencing:
            fence = await self._link.fence(f"{self._url.topic}-{name}", TRANSACTION_TIMEOUT_MS)
        owned.fenced(fence)

    async def renew(self, leases: Collection[Lease]) -> Collection[ShardId]:
        """Return the shards that did not belong to this process any more at the last beat."""
        self._check_open()
        return self.lost(leases)

    def lost(self, leases: Collection[Lease]) -> Collection[ShardId]:
        return [lease.shard for lease in leases if self._epochs.get(lease.shard) != lease.epoch]

    def read_time_left_ms(self) -> int:
        return self._read_time.left_ms(self._timer_ms())

    async def release(self, leases: Collection[Lease]) -> None:
        """Write nothing more under these leases. The shards become free when the life ends."""
        self._check_open()
        for lease in leases:
            if self._epochs.get(lease.shard) == lease.epoch:
                del self._epochs[lease.shard]

    # --- loading ----------------------------------------------------------------------------------

    async def load(
        self, shards: Collection[ShardId]
    ) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        """Yield the records of the newest messages of each shard."""
        self._check_open()
        for shard in shards:
            topic, partition = self._place(shard)
            newest = await read_newest(self._link, topic, partition)
            loaded = await load_shard(newest.values, f"{topic}-{partition}")
            owned = self._shards.get(shard)
            if owned is not None:
                owned.keys = loaded.keys
                owned.log.loaded(loaded.log_end)
            for record in loaded.records():
                yield shard, [record]

    def _place(self, shard: ShardId) -> tuple[str, int]:
        """Return the topic and the partition of a shard."""
        if shard == CLUSTER_SHARD:
            return self._url.cluster_topic, CLUSTER_PARTITION
        return self._url.topic, shard

    def _events_place(self, shard: ShardId) -> tuple[str, int]:
        """Return the topic and the partition of a shard's events. The last partition has the events
        of the cluster shard.
        """
        assert self._identity is not None
        partition = self._identity.shards if shard == CLUSTER_SHARD else shard
        return self._url.events_topic, partition

    # --- appending --------------------------------------------------------------------------------

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        """Write each item in its own transaction. Return the fenced shards."""
        self._check_open()
        fenced = [item.shard for item in items if self._epochs.get(item.shard) != item.fence]
        ours = [item for item in items if item.shard not in fenced and item.batches]
        for item in ours:
            owned = self._shards.get(item.shard)
            if owned is None or owned.fence is None or owned.keys is None:
                raise StorageError(
                    f"{self._url.name}: refused, as nobody knows whether the last append was stored"
                )
        written = [self._begin_write(item) for item in ours]  # before the append first suspends
        outcomes = await asyncio.gather(*written, return_exceptions=True)
        failures = [each for each in outcomes if isinstance(each, BaseException)]
        for item, outcome in zip(ours, outcomes, strict=True):
            if isinstance(outcome, Fenced):
                self._epochs.pop(item.shard, None)
                fenced.append(item.shard)
        for failure in failures:
            if not isinstance(failure, Fenced):
                raise failure
        return fenced

    def _begin_write(self, item: ShardAppend) -> asyncio.Future[None]:
        owned = self._shards[item.shard]
        return asyncio.ensure_future(self._write(owned, item, owned.begin_write(item)))

    async def _write(self, owned: HeldShard, item: ShardAppend, state: Iterable[Message]) -> None:
        """Write an item in one transaction. If this fails, the shard needs a new fence."""
        fence, owned.fence = owned.fence, None
        assert fence is not None
        newest, events, end = await owned.messages(item, state)
        places = {self._place(item.shard): newest, self._events_place(item.shard): events}
        parts = {place: messages for place, messages in places.items() if messages}

        async def send(topic: str, partition: int, messages: list[Message]) -> None:
            sequence = owned.sequences.get(topic, 0)
            owned.sequences[topic] = await self._link.send(
                fence, topic, partition, messages, sequence
            )

        if parts:
            await self._link.begin(fence, dict(parts.keys()))
            await _all(send(*place, messages) for place, messages in parts.items())
            await self._link.commit(fence)
        if end is not None:
            owned.log.written(end)
        owned.fence = fence

    def unfolded(self) -> int:
        """Return 0: there is no journal, so no request waits to be folded."""
        return 0

    # --- figures ----------------------------------------------------------------------------------

    def stats(self) -> dict[str, float]:
        return {
            "last_seq": sum(owned.log.next_seq - 1 for owned in self._shards.values()),
            "lease_time_left_s": self.read_time_left_ms() / 1000,
            **{ROUND_TRIPS + call: count for call, count in self._round_trips.items()},
        }

    async def check_after_unclean_end(self) -> str | None:
        """Return None: the brokers check their own files."""
        return None

    async def history(self, group_id: str, since_ms: int = 0) -> AsyncIterator[EventDict]:
        """Yield the durable events of a group from ``since_ms`` on, oldest first."""
        self._check_open()
        assert self._identity is not None
        partition = shard_of(group_id, self._identity.shards)
        topic = self._url.events_topic
        async for event in read_events(self._options, topic, partition, since_ms):
            if event["group"] == group_id and event["ts_ms"] >= since_ms:
                yield event

    def event_source(self) -> TopicEvents:
        """Return the object that reads the events of all shards, to move them into files."""
        return self._events

    def _check_open(self) -> None:
        if self._identity is None:
            raise StorageError(f"{self._url.name}: is not open")


async def _all(calls: Iterable[Awaitable[None]]) -> None:
    """Wait for all calls, and raise the first failure. No call continues in the background, because
    it could overwrite newer values of the next acquire.
    """
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
