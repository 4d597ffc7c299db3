"""Reads a topic of numbers as a member of a group, until it is killed: BOOTSTRAP TOPIC GROUP
PARTITIONS. It prints the lines that ``tests/helpers/gateway/readers.py`` explains.
"""

from __future__ import annotations

import asyncio
import sys
import time

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord


class Listener(ConsumerRebalanceListener):
    async def on_partitions_assigned(self, assigned: object) -> None:
        _say("assigned")

    async def on_partitions_revoked(self, revoked: object) -> None:
        """Do nothing: each batch is committed after it was read."""


async def run(bootstrap: str, topic: str, group: str, partitions: int) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=20_000,
        heartbeat_interval_ms=1_000,
        metadata_max_age_ms=2_000,
    )
    while True:
        try:
            await consumer.start()
        except KafkaError as error:  # aiokafka does not wait for its first broker
            sys.stdout.write(f"failed {error!r}\n")
            await asyncio.sleep(0.5)
        else:
            break
    consumer.subscribe([topic], listener=Listener())
    while True:
        found = await consumer.getmany(timeout_ms=200, max_records=500)
        next_offsets = {place: _read(records, partitions) for place, records in found.items()}
        if not next_offsets:
            continue
        try:
            await consumer.commit(next_offsets)
        except KafkaError as error:
            sys.stdout.write(f"failed {error!r}\n")
            continue
        for place, offset in next_offsets.items():
            _say("committed", place.partition, offset)


def _read(records: list[ConsumerRecord], partitions: int) -> int:
    first, partition = records[0].offset, records[0].partition
    for n, record in enumerate(records):
        right = record.offset * partitions + partition
        if record.offset != first + n or int(record.value) != right:
            _say("wrong", partition, record.offset)
    end = first + len(records)
    _say("read", partition, first, end)
    return end


def _say(word: str, *numbers: int) -> None:
    numbers = (int(time.time() * 1000), *numbers)
    sys.stdout.write(" ".join([word, *map(str, numbers)]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:4], int(sys.argv[4])))
