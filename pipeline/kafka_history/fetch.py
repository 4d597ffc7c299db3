"""Fetches the record batches of a topic as a broker stores them, with aiokafka's client.

aiokafka's consumer returns only records. It does not show the transaction of a record, and it drops
the control batches that end transactions. aiokafka's client and its class MemoryRecords show both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import CorruptRecordException, KafkaError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.memory_records import MemoryRecords

READ_UNCOMMITTED: Final = 0
"""The isolation level of the requests. With it, the broker returns all records up to the high
watermark, including those of open and aborted transactions."""
FETCH_WAIT_MS: Final = 500
FETCH_BYTES: Final = 32 * 2**20
PARTITION_BYTES: Final = 2**20
RETRY_S: Final = 0.2
FETCH_VERSION: Final = 4
"""The version of the Fetch requests with aiokafka before 0.13. It is the first version with
transactions. Later versions of aiokafka choose the version themselves."""
REPLICA_ID: Final = -1
"""The replica id in the requests, which Kafka's protocol defines for consumers."""


class FetchStalledError(Exception):
    """A partition has returned nothing for too long. The message is one line."""


async def fetch_batches(
    client: AIOKafkaClient,
    topic: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    stalled_s: float,
) -> AsyncIterator[list[tuple[int, Any]]]:
    """Yield lists of (partition, batch), from the offsets ``starts`` up to the offsets ``ends``.

    Each list has the batches of one round of requests. A batch that contains a start or an end is
    yielded whole. Raises FetchStalledError if nothing arrives for ``stalled_s`` seconds, and
    KafkaError for errors that are not temporary.
    """
    fetch = _Fetch(client, topic, dict(starts))
    now = asyncio.get_running_loop().time
    since = now()
    while missing := [each for each, at in fetch.positions.items() if at < ends[each]]:
        if batches := await fetch.once(missing):
            yield batches
            since = now()
        elif now() - since >= stalled_s:
            why = f" ({fetch.trouble!r})" if fetch.trouble else ""
            raise FetchStalledError(
                f"{topic}-{missing[0]} returned nothing for {stalled_s:g} s{why}"
            )


def _request(topic: str, wanted: list[tuple[int, int, int]]) -> Any:
    what = (FETCH_WAIT_MS, 1, FETCH_BYTES, READ_UNCOMMITTED, [(topic, wanted)])
    if isinstance(FetchRequest, list):  # before aiokafka 0.13 each version had its own class
        return FetchRequest[FETCH_VERSION](REPLICA_ID, *what)
    return FetchRequest(*what)


class _Fetch:
    """Fetches several partitions. Has the offset reached in each partition (``positions``), and the
    last temporary error (``trouble``).
    """

    def __init__(self, client: AIOKafkaClient, topic: str, positions: dict[int, int]) -> None:
        self._client = client
        self._topic = topic
        self.positions = positions
        self.trouble: KafkaError | None = None

    async def once(self, numbers: list[int]) -> list[tuple[int, Any]]:
        """Send one request to every leader of these partitions, return the batches in the answers,
        and advance ``positions``.
        """
        by_leader: dict[int | None, list[int]] = {}
        for number in numbers:
            leader = self._client.cluster.leader_for_partition(TopicPartition(self._topic, number))
            by_leader.setdefault(leader, []).append(number)
        answers = await asyncio.gather(*(self._ask(*each) for each in by_leader.items()))
        return [found for answer in answers for found in answer]

    async def _ask(self, leader: int | None, numbers: list[int]) -> list[tuple[int, Any]]:
        if leader is None or leader < 0:
            return await self._again(None)
        wanted = [(each, self.positions[each], PARTITION_BYTES) for each in numbers]
        try:
            response = await self._client.send(leader, _request(self._topic, wanted))
        except KafkaError as error:
            return await self._again(error)
        found = []
        for _, partitions in response.topics:
            for number, error_code, _, *_, data in partitions:
                if error_code:
                    await self._again(for_code(error_code)(f"{self._topic}-{number}"))
                else:
                    found += self._batches(number, data)
        return found

    async def _again(self, error: KafkaError | None) -> list[tuple[int, Any]]:
        """Wait after a temporary error, such as a moved leader or a broken connection, and return
        no batch. The caller then retries. If the error is not temporary, raise it."""
        if error is not None and not error.retriable:
            raise error
        self.trouble = error
        self._client.force_metadata_update()
        await asyncio.sleep(RETRY_S)
        return []

    def _batches(self, number: int, data: bytes) -> list[tuple[int, Any]]:
        records = MemoryRecords(data)
        found: list[tuple[int, Any]] = []
        while records.has_next():
            batch: Any = records.next_batch()
            if not batch.validate_crc():
                raise CorruptRecordException(f"{self._topic}-{number} at {batch.base_offset}")
            found.append((number, batch))
        if found:
            self.positions[number] = found[-1][1].next_offset
        return found
