"""Reads the event log of one shard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from groupkeeper.storage.base import StorageError
from groupkeeper.storage.segment_lines import EventDict, decode_line

_WAIT_MS: Final = 100


async def read_events(
    options: Mapping[str, Any], topic: str, partition: int, since_ms: int
) -> AsyncIterator[EventDict]:
    """Yield the durable events of a shard from a time on, oldest first."""
    async for message in read_messages(options, topic, partition, since_ms):
        yield decode_line(message.value)


async def read_messages(
    options: Mapping[str, Any], topic: str, partition: int, since_ms: int
) -> AsyncIterator[ConsumerRecord]:
    """Yield the durable messages of a partition from a time on. Raises StorageError if they cannot
    be read.
    """
    place = TopicPartition(topic, partition)
    consumer = AIOKafkaConsumer(
        **options, isolation_level="read_committed", enable_auto_commit=False
    )
    try:
        await consumer.start()
        consumer.assign([place])
        end = (await consumer.end_offsets([place]))[place]
        found = (await consumer.offsets_for_times({place: max(since_ms, 0)}))[place]
        if found is None:
            return
        consumer.seek(place, found.offset)
        while await consumer.position(place) < end:
            portions = await consumer.getmany(place, timeout_ms=_WAIT_MS)
            for message in portions.get(place, ()):
                yield message
    except KafkaError as error:
        raise StorageError(f"{topic}: cannot be read: {error!r}") from error
    finally:
        await consumer.stop()
