"""A store in topics of two brokers, of which one is killed and comes back.

By hand: ``make test-storage-long``. How long a change of leaders takes depends on the machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupkeeper.storage.backends.kafka_topic.store import KafkaTopicStorage
from groupkeeper.storage.backends.kafka_topic.url import parse_url
from groupkeeper.storage.base import StorageError
from tests.helpers.clients.kafka_pair import KafkaPair
from tests.helpers.core.records import commit
from tests.helpers.storage.kafka_topic_site import STORE_SETTINGS
from tests.helpers.storage.storage_owner import SHARDS, Owner

APPEND_TIMEOUT_S = 5
GROUPS = {shard: f"group-{shard}" for shard in SHARDS if shard >= 0}
RECOVERY_LIMIT_S = 90
ROUNDS = 100
KILLED_AT, BACK_AT = 25, 60

pytestmark = pytest.mark.storage_long


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[KafkaPair]:
    pair = KafkaPair(tmp_path, "other")
    state = {"transaction.state.log.replication.factor": 2, "default.replication.factor": 2}
    for broker in (pair.first, pair.second):
        broker.settings |= STORE_SETTINGS | state
    try:
        yield pair.start()
    finally:
        pair.stop()


async def append_to_all(owner: Owner, offset: int) -> None:
    """Commit one offset in each shard, as one append with a time limit."""
    async with asyncio.timeout(APPEND_TIMEOUT_S):
        for shard, group in GROUPS.items():
            await owner.append(shard, [commit(group, offset)])


async def recovered(owner: Owner) -> None:
    """Acquire and load again, until it succeeds."""
    until = time.monotonic() + RECOVERY_LIMIT_S
    while True:
        try:
            async with asyncio.timeout(2 * APPEND_TIMEOUT_S):
                return await owner.reload()
        except (StorageError, TimeoutError):
            assert time.monotonic() < until, "no broker answers"
            await asyncio.sleep(0.2)


async def test_a_killed_broker_loses_nothing_that_was_acknowledged(pair: KafkaPair) -> None:
    """It leads some shards, and coordinates some transactions. If the change takes longer than an
    append may, the append fails, and the next load reads it completely or not at all.
    """
    storage = KafkaTopicStorage(
        parse_url(f"kafka://{pair.bootstrap}/store?replication=2", {}),
        node_id=1,
        name="test:1",
        append_timeout_ms=APPEND_TIMEOUT_S * 1_000,
        lease_ttl_ms=60_000,
    )
    owner = await Owner(storage).start()
    failed = 0
    acknowledged = 0
    for offset in range(1, ROUNDS + 1):
        if offset == KILLED_AT:
            pair.second.kill()
        if offset == BACK_AT:
            await asyncio.to_thread(pair.second.start)
        try:
            await append_to_all(owner, offset)
        except (StorageError, TimeoutError):
            failed += 1
            await recovered(owner)
            found = [owner.model.keys[("offset", s, g, "orders", 0)][0] for s, g in GROUPS.items()]
            assert all(acknowledged <= each <= offset for each in found), (acknowledged, found)
        else:
            acknowledged = offset
    print(  # noqa: T201 - the figure of a run by hand
        f"\na killed broker: {failed} of {ROUNDS} rounds failed"
    )
    await recovered(owner)
    assert acknowledged > BACK_AT
    topics = 2  # the shards, and the events
    assert storage.stats()["round_trips.send"] > topics * len(GROUPS) * ROUNDS  # some again
    for shard, group in GROUPS.items():
        assert owner.model.keys[("offset", shard, group, "orders", 0)][0] == ROUNDS
    await storage.close()
