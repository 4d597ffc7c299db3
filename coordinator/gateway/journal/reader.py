"""Reads the partitions of the journal from the brokers that lead them.

The journal is a topic of ours in the upstream cluster. It shows how transactions with offsets end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import structlog

from groupkeeper.coordinator.gateway.client import BrokerError
from groupkeeper.coordinator.gateway.journal.links import READ_LANE, BadAnswer, JournalLinks
from groupkeeper.coordinator.gateway.journal.records import read_entries
from groupkeeper.coordinator.gateway.journal.shard import RETRY_S, JournalLost, JournalShard
from groupkeeper.coordinator.gateway.journal.topic import FoundTopic
from groupkeeper.coordinator.runtime.line_limit import LineLimit
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.writer import Row

log = structlog.get_logger(__name__)

FETCH: Final = 1, range(13, 16)
"""The API key of Fetch, and the versions that we use. From version 13 on, a fetch names the topic
by id. So it never reads a new topic of the same name.
"""
FETCH_WAIT_MS: Final = 500
FETCH_BYTES: Final = 8 * 1024 * 1024
PARTITION_BYTES: Final = 1024 * 1024

LOG_EVERY_S: Final = 60.0
"""The least time between two log lines about a damaged partition. We read it again more often."""

_OFFSET_OUT_OF_RANGE: Final = 1


class JournalReader:
    """Reads the partitions, and passes their entries to the shards."""

    def __init__(
        self,
        links: JournalLinks,
        shards: Mapping[int, JournalShard],
        out_of_range: Callable[[JournalShard], Awaitable[None]],
        leaders_changed: Callable[[], None],
    ) -> None:
        """``out_of_range`` is called if the offset to read is not in the partition.
        ``leaders_changed`` is called if a broker does not answer, or does not lead a partition.
        """
        self.topic: FoundTopic | None = None
        self._links = links
        self._shards = shards
        self._out_of_range = out_of_range
        self._leaders_changed = leaders_changed
        self._lines = LineLimit(lambda: asyncio.get_running_loop().time(), LOG_EVERY_S, 1)

    async def read(self, broker_id: int) -> None:
        """Read the partitions that a broker leads. Return when it leads none."""
        while self.topic is not None:
            topic = self.topic
            shards = [
                shard
                for shard in self._shards.values()
                if topic.leaders.get(shard.shard_id) == broker_id and shard.is_read
            ]
            if not shards:
                return
            ready = [shard for shard in shards if not shard.is_full]
            try:
                is_good = bool(ready) and await self._fetch(broker_id, topic, ready)
            except BrokerError:
                is_good = False
            if not is_good:
                if ready:
                    self._leaders_changed()
                await asyncio.sleep(RETRY_S)

    async def _fetch(self, broker_id: int, topic: FoundTopic, shards: list[JournalShard]) -> bool:
        """Send one fetch and process the answer. Return False if some partition could not be read.

        Raises BrokerError if the broker does not answer.
        """
        rows = [
            Row(
                partition=shard.shard_id,
                current_leader_epoch=-1,
                fetch_offset=shard.partition.position,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=PARTITION_BYTES,
            )
            for shard in shards
        ]
        answer = await self._links.ask(
            broker_id,
            READ_LANE,
            *FETCH,
            replica_id=-1,
            max_wait=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[Row(topic_id=topic.topic_id, partitions=rows)],
            forgotten_topics_data=[],
            rack_id="",
        )
        if answer.error_code:
            return False
        asked = {shard.shard_id: shard for shard in shards}
        fetched = [each for each_topic in answer.responses for each in each_topic.partitions]
        return all([await self._take(asked, each) for each in fetched])

    async def _take(self, asked: Mapping[int, JournalShard], fetched: Any) -> bool:
        """Process the answer for one partition. Return False if it is an error."""
        shard = asked.get(fetched.partition_index)
        if shard is None:
            raise BadAnswer(f"partition {fetched.partition_index} was not asked for")
        if shard is not self._shards.get(shard.shard_id) or not shard.is_read:
            return True  # the shard was lost or replaced during the fetch
        if fetched.error_code == _OFFSET_OUT_OF_RANGE:
            with suppress(JournalLost):
                await self._out_of_range(shard)
            return False
        if fetched.error_code:
            return False
        try:
            entries, position = read_entries(fetched.records or b"", shard.partition.position)
        except ProtocolError as error:
            if self._lines.allow(f"shard {shard.shard_id}") is not None:
                log.error("journal_unreadable", shard=shard.shard_id, reason=str(error))
            return False
        shard.end = fetched.high_watermark
        shard.read(entries, position)
        return True
