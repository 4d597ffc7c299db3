"""Copies a topic exactly once, until it is killed: BOOTSTRAP SOURCE SINK GROUP TRANSACTIONAL_ID.

Every third transaction is aborted. In every tenth, with its offsets sent, it prints "open" and
waits a moment: then a test may kill it, or somebody else. It ends only if it is fenced.

It is no member of the group. Members that send no generation with their offsets read records twice
if a rebalance comes while a transaction is open (KIP-447), with Kafka as well.
"""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

AT_ONCE = 50
PAUSE_S = 0.7


class Copier:
    """It keeps the count of transactions over new clients."""

    def __init__(self, bootstrap: str, source: str, sink: str, group: str, name: str) -> None:
        self.bootstrap, self.source, self.sink = bootstrap, source, sink
        self.group, self.name = group, name
        self.transactions = 0

    async def run(self) -> None:
        while True:
            try:
                await self._copy()
            except ProducerFenced as fenced:
                _say("fenced", repr(fenced))
                return
            except KafkaError as error:
                _say("again", repr(error))
                await asyncio.sleep(0.1)

    async def _copy(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            transactional_id=self.name,
            transaction_timeout_ms=10_000,
        )
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            metadata_max_age_ms=2_000,
        )
        try:
            await producer.start()  # the one before it is fenced, and its transaction ended
            await consumer.start()
            places = await producer.partitions_for(self.source)
            consumer.assign([TopicPartition(self.source, each) for each in sorted(places)])
            while True:
                found = await consumer.getmany(timeout_ms=200, max_records=AT_ONCE)
                if found:
                    await self._transact(consumer, producer, found)
        finally:
            for client in (consumer, producer):
                await asyncio.wait_for(_stopped(client), 30)

    async def _transact(
        self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, found: dict
    ) -> None:
        self.transactions += 1
        await producer.begin_transaction()
        for records in found.values():
            for record in records:
                await producer.send(self.sink, record.value)
        offsets = {place: records[-1].offset + 1 for place, records in found.items()}
        await producer.send_offsets_to_transaction(offsets, self.group)
        if self.transactions % 10 == 0:
            _say("open")
            await asyncio.sleep(PAUSE_S)
        if self.transactions % 3 == 0:
            await producer.abort_transaction()
            await _rewind(consumer)
        else:
            await producer.commit_transaction()
            _say("committed")


def _say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


async def _rewind(consumer: AIOKafkaConsumer) -> None:
    for place in consumer.assignment():
        committed = await consumer.committed(TopicPartition(*place))
        consumer.seek(place, committed or 0)


async def _stopped(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    try:
        await client.stop()
    except KafkaError as error:
        _say("stop", repr(error))


if __name__ == "__main__":
    asyncio.run(Copier(*sys.argv[1:6]).run())
