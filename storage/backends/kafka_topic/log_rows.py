"""Reads the event logs of a store in topics while another process uses the store.

Each shard has a log with its own sequence numbers (seqs): a partition of the topic of events.
Nothing is written, and no topic is created. Messages are read on an event loop of another thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.storage.backends.journal.driver import LoggedEvent
from groupkeeper.storage.backends.journal.log_view import JournalRow, rows_of_events
from groupkeeper.storage.backends.journal.logged_events import logged_event
from groupkeeper.storage.backends.kafka_topic import own
from groupkeeper.storage.backends.kafka_topic.events import read_messages
from groupkeeper.storage.backends.kafka_topic.lives_log import LivesLog
from groupkeeper.storage.backends.kafka_topic.loaded import decode_end
from groupkeeper.storage.backends.kafka_topic.options import client_options
from groupkeeper.storage.backends.kafka_topic.reach import missing_right, why_unreachable
from groupkeeper.storage.backends.kafka_topic.topics import (
    CLUSTER_PARTITION,
    LIVES_PARTITION,
    TopicAdmin,
)
from groupkeeper.storage.backends.kafka_topic.url import KafkaTopicUrl
from groupkeeper.storage.base import StorageError, StoreBusy
from groupkeeper.storage.blocking_loop import SharedLoop
from groupkeeper.storage.event_log.sealing.sealer import FOR_EVER
from groupkeeper.storage.event_log.several_logs import Logs
from groupkeeper.storage.event_log.source import EventsMoved, LogEnds, LogNote
from groupkeeper.storage.event_log.store_names import name_of_shard

_READ_AT_ONCE: Final = 500
_WAIT_MS: Final = 100
_FETCH_WAIT_MS: Final = 10
"""How long a broker holds a request if there is nothing to fetch. A read from another offset must
wait until the request before it has ended. All partitions are paused between reads, so nothing is
fetched then."""
_PLACES: Final = 4
"""The number of places in a log that a reader remembers, to go on from there without a search."""
_FIRST_LOOK_BACK: Final = 8
"""The search for the last event begins this number of offsets before the end, because each
transaction ends with an offset that has no event."""


class _Found(NamedTuple):
    """An event, and the offset of its message."""

    offset: int
    event: LoggedEvent


class TopicLogs:
    """The logs of one store, over one connection. The connection is open as long as one of the logs
    is open.
    """

    is_shared = True

    def __init__(
        self,
        url: KafkaTopicUrl,
        timeout_ms: int,
        group_id: str | None = None,
        lives: Callable[[], LivesLog] | None = None,
    ) -> None:
        """With ``group_id`` there is only one log: the log of the group's shard. ``lives`` returns
        the log of lives, if this process uses the store and has read it.
        """
        self.name = url.name
        self._url = url
        self._group_id = group_id
        self._options = client_options(url, timeout_ms)
        self._partitions = 0
        self._own_lives = lives
        self._read_lives: LivesLog | None = None
        """The log of lives, as this connection has read it."""
        self._loop = SharedLoop(self._connect, self._disconnect)
        self.run = self._loop.run
        """Runs a call on the loop of the connection."""
        self.leave = self._loop.leave
        """Closes the connection if nobody else uses it."""
        self._consumer: AIOKafkaConsumer | None = None
        self.tails: dict[int, tuple[int, int]] = {}
        """For each partition, an offset and the seq of the last event before it."""
        self.heads: dict[int, tuple[int, int]] = {}
        """For each partition, its first offset and the seq of the first event from there on."""

    def logs(self) -> Logs:
        """Return the log of each shard, by the number of the shard. The name of the cluster shard
        is ``cluster``.

        Raises StoreRefused if there is no store.
        """
        if not self._partitions:
            with self.kept_open():
                pass
        shards = self._partitions - 1
        wanted: Sequence[int] = range(shards + 1)
        if self._group_id is not None:
            wanted = [shard_of(self._group_id, shards)]
        return {self.log_name(each): partial(self.open_rows, each) for each in wanted}

    def log_name(self, partition: int) -> str:
        """Return the name of the log of a partition."""
        return "cluster" if partition == self._partitions - 1 else str(partition)

    def kept_open(self) -> AbstractContextManager[None]:
        return self._loop.kept_open()

    def open_rows(self, partition: int) -> ShardLogRows:
        """Open the log of one partition. Raises StoreRefused if there is no store, and StoreBusy if
        it cannot connect.
        """
        self._loop.enter()
        return ShardLogRows(self, partition)

    async def _disconnect(self) -> None:
        self._read_lives = None
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()

    async def _connect(self) -> None:
        admin = TopicAdmin(self._url, self._options, FOR_EVER)
        self._partitions = await admin.event_partitions()
        self._consumer = consumer = AIOKafkaConsumer(
            **self._options,
            isolation_level="read_committed",
            enable_auto_commit=False,
            fetch_max_wait_ms=_FETCH_WAIT_MS,
        )
        try:
            await consumer.start()
        except (KafkaError, OSError) as error:
            raise StoreBusy(
                f"{self.name}: cannot connect: {await why_unreachable(self._options)}"
            ) from error
        places = [*map(self._place, range(self._partitions))]
        consumer.assign(places)
        consumer.pause(*places)

    def _place(self, partition: int) -> TopicPartition:
        return TopicPartition(self._url.events_topic, partition)

    def _reader(self) -> AIOKafkaConsumer:
        assert self._consumer is not None, "not open"
        return self._consumer

    async def bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset of a partition, and the offset after its last durable message."""
        place = self._place(partition)
        try:
            begin = await self._reader().beginning_offsets([place])
            end = await self._reader().end_offsets([place])
        except KafkaError as error:
            raise self._failure(error) from error
        return begin[place], end[place]

    async def read(self, partition: int, offset: int, end: int) -> tuple[list[_Found], int]:
        """Return the next events from an offset on, and the offset after them. If no event is
        returned, there is none before ``end``. Raises EventsMoved if retention has deleted the
        events.
        """
        place, consumer, first = self._place(partition), self._reader(), offset
        consumer.resume(place)
        try:
            if offset < end and await consumer.position(place) != offset:
                consumer.seek(place, offset)
            while offset < end:
                portions = await consumer.getmany(
                    place, timeout_ms=_WAIT_MS, max_records=_READ_AT_ONCE
                )
                offset = await consumer.position(place)
                if found := [
                    _Found(each.offset, logged_event(each.value))
                    for each in portions.get(place, ())
                    if each.offset < end
                ]:
                    return found, min(offset, end)
        except KafkaError as error:
            raise self._failure(error) from error
        finally:
            consumer.pause(place)
        # A consumer whose offset is deleted continues at the end of the partition, with no error.
        if first < end and (await self.bounds(partition))[0] > first:
            raise EventsMoved(
                f"{self.name}: events of partition {partition} were deleted while they were read: "
                "read again"
            )
        return [], end

    @property
    def has_files(self) -> bool:
        """True if events were moved into files. Connects to the store."""
        return bool(self._lives().sealed)

    def store_name(self, log: str) -> str:
        store = self._lives().store
        return str(name_of_shard(store, log)) if store else ""

    def note(self, log: str) -> LogNote:
        """Return what the process that uses the store has recorded about the files of a log."""
        sealed = self._lives().sealed.get(log)
        if sealed is None:
            return LogNote(frozenset(), None, self.store_name(log))
        return sealed.log_note(self.store_name(log))

    def _lives(self) -> LivesLog:
        if self._own_lives is not None:
            return self._own_lives()
        with self.kept_open():
            if self._read_lives is None:
                self._read_lives = self.run(self._recorded_lives())
            return self._read_lives

    async def _recorded_lives(self) -> LivesLog:
        lives = LivesLog()
        topic = self._url.cluster_topic
        async for message in read_messages(self._options, topic, LIVES_PARTITION, since_ms=0):
            lives.apply(message.offset, message.key, message.value)
        return lives

    async def recorded_seq(self, partition: int) -> int:
        """Return the seq of a shard's last event, from the shard's state; 0 if the shard never
        wrote an event. This reads the whole state of the shard.
        """
        is_cluster = partition == self._partitions - 1
        topic = self._url.cluster_topic if is_cluster else self._url.topic
        last_seq = 0
        place = CLUSTER_PARTITION if is_cluster else partition
        async for message in read_messages(self._options, topic, place, since_ms=0):
            if message.key == own.LOG_END_KEY and message.value is not None:
                last_seq = decode_end(message.value).next_seq - 1
        return last_seq

    def _failure(self, error: KafkaError) -> StorageError:
        text = missing_right(self.name, error)
        return StorageError(f"{self.name}: the events cannot be read: {text or repr(error)}")


class ShardLogRows:
    """The events of one shard as rows (``event_log.source``)."""

    def __init__(self, logs: TopicLogs, partition: int) -> None:
        self._logs = logs
        self._partition = partition
        self._held: tuple[int, int] | None = None
        self._passed: deque[tuple[int, int]] = deque(maxlen=_PLACES)
        """For some events that were read: the seq, and the offset after the event."""

    def hold(self) -> None:
        self._held = self._bounds()

    def close(self) -> None:
        self._logs.leave()

    def note(self) -> LogNote:
        return self._logs.note(self._logs.log_name(self._partition))

    def ends(self) -> LogEnds:
        begin, end = self._bounds()
        last_seq = self._last_seq(begin, end)
        return LogEnds(self._first_seq(begin, end) or last_seq + 1, last_seq)

    def log_id_at(self, seq: int) -> str | None:
        begin, end = self._bounds()
        found, _ = self._read(self._offset_of(seq, begin, end), end)
        return found[0].event.log_id if found and found[0].event.seq == seq else None

    def rows(self, after_seq: int, containing: bytes = b"") -> Iterator[JournalRow]:
        begin, end = self._bounds()
        offset = self._offset_of(after_seq + 1, begin, end)
        while True:
            found, offset = self._read(offset, end)
            if not found:
                return
            self._passed.append((found[-1].event.seq, offset))
            later = (each.event for each in found if each.event.seq > after_seq)
            for row in rows_of_events(later):
                if not containing or any(containing in each.line[1] for each in row.logged):
                    yield row

    def _bounds(self) -> tuple[int, int]:
        bounds: tuple[int, int] = self._held or self._logs.run(self._logs.bounds(self._partition))
        return bounds

    def _read(self, offset: int, end: int) -> tuple[Sequence[_Found], int]:
        found: tuple[Sequence[_Found], int] = self._logs.run(
            self._logs.read(self._partition, offset, end)
        )
        return found

    def _first_seq(self, begin: int, end: int) -> int:
        """Return the seq of the first event; 0 if there is none."""
        known = self._logs.heads.get(self._partition)
        if known is not None and known[0] == begin:
            return known[1]
        found, _ = self._read(begin, end)
        if not found:
            return 0
        self._logs.heads[self._partition] = begin, found[0].event.seq
        return found[0].event.seq

    def _last_seq(self, begin: int, end: int) -> int:
        """Return the seq of the last event; 0 if the partition never had one."""
        known = self._logs.tails.get(self._partition)
        if known is not None and known[0] == end:
            return known[1]
        last_seq, back = 0, _FIRST_LOOK_BACK
        while not last_seq and end > begin:
            offset = max(begin, end - back)
            while offset < end:
                found, offset = self._read(offset, end)
                last_seq = found[-1].event.seq if found else last_seq
            if end - back <= begin:
                break
            back *= 4
        if not last_seq and begin:  # retention has deleted all events
            last_seq = self._logs.run(self._logs.recorded_seq(self._partition))
        self._logs.tails[self._partition] = end, last_seq
        return last_seq

    def _offset_of(self, seq: int, begin: int, end: int) -> int:
        """Return an offset from which the first event has this seq, or a later one."""
        known = self._logs.tails.get(self._partition)
        if known is not None and known[1] == seq - 1 and begin <= known[0] <= end:
            return known[0]
        if seq <= 1:
            return begin
        for passed_seq, offset in reversed(self._passed):
            if passed_seq < seq and begin <= offset <= end:
                if seq - passed_seq <= 2 * _READ_AT_ONCE:
                    return offset
                break
        low, high = begin, end  # events before offset low are below seq, those from high on are not
        while low < high:
            middle = (low + high) // 2
            found, behind = self._read(middle, high)
            if not found or found[0].event.seq >= seq:
                high = middle
            elif found[-1].event.seq >= seq:
                return next(each.offset for each in found if each.event.seq >= seq)
            else:
                low = behind
        return low
