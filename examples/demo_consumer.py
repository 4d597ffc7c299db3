"""A consumer of `make demo`: joins, pretends to read, commits, and prints each step as JSON.

    demo_consumer.py NAME BOOTSTRAP GROUP TOPIC

groupkeeper stores no messages, so there are none to read. Instead, the position of every owned
partition grows by a few each time, as if messages had arrived.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

COMMIT_EVERY_S = 0.25
SESSION_TIMEOUT_MS = 3_000
HEARTBEAT_MS = 300
COMMIT_LIMIT_S = 2
"""The library would retry without a limit. The demo has to report a failure."""


def tell(event: str, **facts: Any) -> None:
    """Print one event as a line of JSON, for the demo."""
    print(json.dumps({"event": event, **facts}), flush=True)


class Listener(ConsumerRebalanceListener):
    """Continues each partition at the committed offset of the group."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer
        self.positions: dict[TopicPartition, int] = {}

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """A rebalance has begun."""
        self.positions = {}
        if revoked:
            tell("revoked")

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """The rebalance has ended: fetch the committed offsets."""
        positions = {p: await self.consumer.committed(p) or 0 for p in sorted(assigned)}
        tell("assigned", positions={p.partition: at for p, at in positions.items()})
        self.positions = positions


async def consume(name: str, bootstrap: str, group: str, topic: str) -> None:
    """Consume until killed."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id=name,
        group_id=group,
        partition_assignment_strategy=(RangePartitionAssignor,),
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_offset_reset="earliest",
        retry_backoff_ms=100,
    )
    listener = Listener(consumer)
    consumer.subscribe([topic], listener=listener)
    await consumer.start()
    while True:
        await asyncio.sleep(COMMIT_EVERY_S)
        owned = dict(listener.positions)
        if not owned:
            continue
        steps = {p: at + 1 + p.partition % 3 for p, at in owned.items()}
        try:
            await asyncio.wait_for(consumer.commit(steps), COMMIT_LIMIT_S)
        except (KafkaError, TimeoutError) as error:
            tell("commit failed", error=type(error).__name__)
            continue
        tell("committed", offsets={p.partition: at for p, at in steps.items()})
        if listener.positions == owned:  # otherwise other consumers own them now
            listener.positions = steps


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(consume(*sys.argv[1:5]))
