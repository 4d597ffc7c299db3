"""Reads the newest message of each key of a partition."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from groupkeeper.storage.backends.kafka_topic.link import KafkaLink


class Newest(NamedTuple):
    """The content of a compacted partition."""

    values: dict[bytes, bytes]
    """The newest value of each key that is set."""
    messages: int
    """The number of messages that were read for it."""


async def read_newest(link: KafkaLink, topic: str, partition: int) -> Newest:
    """Read all committed messages of a partition. Return the newest value of each key."""
    values: dict[bytes, bytes] = {}
    count = 0
    async for _, messages in link.read(topic, partition):
        count += len(messages)
        for message in messages:
            if message.value is None:
                values.pop(message.key, None)
            else:
                values[message.key] = message.value
        await asyncio.sleep(0)
    return Newest(values, count)
