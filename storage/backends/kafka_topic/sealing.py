"""The events of an open store in topics, for sealing: a log for each shard. To seal events is to
move them into files.

A thread reads the events from the topic, as any reader of the store does. The daemon has rendered
them already, but to keep them in memory until they are sealed would need much memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from groupkeeper.storage.backends.kafka_topic.lives import TopicLife
from groupkeeper.storage.backends.kafka_topic.lives_log import LivesLog, log_name
from groupkeeper.storage.backends.kafka_topic.log_rows import TopicLogs
from groupkeeper.storage.backends.kafka_topic.shard import HeldShard
from groupkeeper.storage.backends.kafka_topic.url import KafkaTopicUrl
from groupkeeper.storage.base import ShardId, StorageError
from groupkeeper.storage.event_log.log_clock import LogClock
from groupkeeper.storage.event_log.source import Address, EventRows, LogHead, LogNote, OpenRows

READ_TIMEOUT_MS: Final = 10_000


class TopicEvents:
    """The events of the shards of this process (``event_log.source.EventSource``)."""

    address: Address | None = None

    def __init__(
        self,
        url: KafkaTopicUrl,
        life: Callable[[], TopicLife],
        held: Mapping[ShardId, HeldShard],
    ) -> None:
        """``life`` returns the present life of this process, and ``held`` has the shards that it
        has acquired.
        """
        self.clock = LogClock()
        self._url = url
        self._logs = TopicLogs(url, READ_TIMEOUT_MS, lives=self._lives)
        self._life = life
        self._held = held
        self._notes: Mapping[str, LogNote] = {}
        """How far each log is sealed, as the thread that seals has reported it."""
        self._written: dict[str, LogNote] = {}
        """What this process has recorded in the store."""

    def opened(self) -> None:
        """Forget what was recorded in the store before it was opened."""
        self._notes = {}
        self._written.clear()

    # --- on the thread that seals -----------------------------------------------------------------

    def open_logs(self) -> Mapping[str, OpenRows]:
        return self._logs.logs()

    def last_seqs(self) -> Mapping[str, int]:
        if self._life().life is None:
            raise StorageError("the life of this process has ended")
        return {log_name(shard): held.log.next_seq - 1 for shard, held in [*self._held.items()]}

    def sealed(self, notes: Mapping[str, LogNote]) -> None:
        self._notes = notes

    def rows_of(self, group_id: str) -> OpenRows:
        logs = TopicLogs(self._url, READ_TIMEOUT_MS, group_id, self._lives)  # another connection

        def open_rows() -> EventRows:
            (open_log,) = logs.logs().values()
            return open_log()

        return open_rows

    def open_rows(self) -> EventRows:
        raise NotImplementedError("each shard has a log of its own (open_logs)")

    # --- on the loop ------------------------------------------------------------------------------

    async def head(self) -> LogHead:
        """Return no log: the topic cannot become an older copy of itself."""
        return LogHead(None, 0)

    async def note_place(self, log_dir: str) -> None:
        """Do nothing: the place is recorded with the first sealed event."""

    async def note_sealed(self, seq: int, new: Collection[str], gone: Collection[str]) -> None:
        """Record for each log how far it is in files, if this has changed."""
        life = self._life()
        for name, note in self._notes.items():
            if note.log_ids != frozenset() or name in life.log.sealed:
                sealed = life.log.sealed.get(name)
                recorded = self._written.get(name) or (sealed and sealed.log_note())
                if note != recorded:
                    await life.note_sealed(name, note)
                    self._written[name] = note

    async def trim(self, sealed_row: int) -> int:
        """Delete nothing: ``retention.ms`` of the topic deletes events."""
        return 0

    def _lives(self) -> LivesLog:
        return self._life().log
