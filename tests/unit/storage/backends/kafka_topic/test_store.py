"""A store in topics of Kafka, over a cluster in memory."""

from __future__ import annotations

import asyncio

from groupkeeper.storage.backends.kafka_topic.link import MESSAGES_A_TURN
from groupkeeper.storage.base import Batch
from tests.helpers.core.records import commit
from tests.helpers.runtime.virtual_loop import turns
from tests.helpers.storage.fake_kafka import FakeKafka
from tests.helpers.storage.kafka_topic_site import FakeKafkaSite


async def test_other_work_goes_on_while_a_large_commit_becomes_messages():
    site = FakeKafkaSite(FakeKafka())
    owner = await site.owner()
    large = Batch([commit("g", 1, partitions=20 * MESSAGES_A_TURN)], [])
    appending = asyncio.ensure_future(owner.storage.append([owner.item(0, large)]))
    passed = 0
    while not appending.done():
        passed += 1
        await turns()
    assert passed > 20
    assert await appending == []
    await owner.storage.close()
