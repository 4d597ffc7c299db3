"""The store in topics of a real Kafka."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Mapping

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.new_topic import NewTopic
from msgspec.structs import replace

from groupkeeper.coordinator.core.consumer_records import ConsumerGroupRecord
from groupkeeper.coordinator.core.events import GroupCreated
from groupkeeper.coordinator.core.records import GroupConfigs, GroupRemoved, OffsetsRemoved
from groupkeeper.storage.backends.kafka_topic.link import KafkaLink
from groupkeeper.storage.backends.kafka_topic.options import client_options
from groupkeeper.storage.base import Batch, StorageError, StoreRefused
from tests.helpers.clients.ecosystem import JDK, kafka_jars, need
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.core.records import TOPIC_ID, commit, group_record
from tests.helpers.storage.kafka_topic_site import KafkaTopicSite
from tests.helpers.storage.storage_owner import IDENTITY

pytestmark = pytest.mark.kafka_topic

FORMATTERS = "org.apache.kafka.tools.consumer"
READ_LIMIT_S = 60


@pytest.fixture
async def site(kafka: RealKafka) -> AsyncIterator[KafkaTopicSite]:
    site = KafkaTopicSite(kafka)
    yield site
    for owner in site.owners:
        await owner.storage.close()


def printed(site: KafkaTopicSite, formatter: str, messages: int) -> list[dict]:
    """What Kafka's own console consumer prints of our topic, which has so many messages."""
    arguments = {
        "--bootstrap-server": site.server.bootstrap,
        "--topic": site.topic,
        "--formatter": f"{FORMATTERS}.{formatter}",
        "--isolation-level": "read_committed",
        "--max-messages": str(messages),
    }
    words = [word for pair in arguments.items() for word in pair]
    java = [need("java", JDK), "-Xmx256m", "-cp", f"{kafka_jars()}/*"]
    done = subprocess.run(
        [*java, f"{FORMATTERS}.ConsoleConsumer", "--from-beginning", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=READ_LIMIT_S,
    )
    assert done.stdout.startswith("{"), done.stderr
    text = done.stdout.strip()
    decoder, found, end = json.JSONDecoder(), [], 0
    while end < len(text):  # the objects follow each other without a space
        line, end = decoder.raw_decode(text, end)
        found.append(line)
    return found


async def written(site: KafkaTopicSite) -> int:
    """The messages in the topic of shards."""
    link = KafkaLink(client_options(site.url(), 5_000), site.topic, Counter())
    await link.connect([site.topic])
    count = 0
    for partition in range(IDENTITY.shards):
        async for _, messages in link.read(site.topic, partition):
            count += len(messages)
    await link.close()
    return count


async def test_kafkas_formatter_of_offsets_reads_our_topic(site: KafkaTopicSite):
    owner = await site.owner()
    await owner.append(0, [commit("g", 7, metadata="note", expire_time_ms=99)], [])
    await owner.append(1, [commit("h", 1), OffsetsRemoved("h", [("orders", 0)])])
    count = await written(site)
    lines = await asyncio.to_thread(printed, site, "OffsetsMessageFormatter", count)
    found = {line["key"]["data"]["group"]: line for line in lines}
    assert found["g"]["key"] == {
        "type": 1,
        "data": {"group": "g", "topic": "orders", "partition": 0},
    }
    assert found["g"]["value"] == {
        "version": 4,
        "data": {
            "offset": 7,
            "leaderEpoch": 0,
            "metadata": "note",
            "commitTimestamp": 1_700_000_000_007,
            "topicId": TOPIC_ID,
        },
    }
    assert found["h"]["value"] is None


async def test_kafkas_formatter_of_groups_reads_our_topic(site: KafkaTopicSite):
    owner = await site.owner()
    await owner.append(0, [group_record("g", members=2), commit("g", 1)])
    await owner.append(1, [group_record("gone"), GroupRemoved("gone")])
    lines = await asyncio.to_thread(
        printed, site, "GroupMetadataMessageFormatter", await written(site)
    )
    found = {line["key"]["data"]["group"]: line["value"] for line in lines}
    assert found["gone"] is None
    group = found["g"]["data"]
    assert (group["protocolType"], group["generation"]) == ("consumer", 1)
    assert [member["groupInstanceId"] for member in group["members"]] == [None, "static"]


async def create(site: KafkaTopicSite, topic: str, count: int, settings: Mapping[str, str]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=site.server.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, count, 1, topic_configs=dict(settings))])
    await admin.close()


COMPACT = {"cleanup.policy": "compact", "max.message.bytes": "8388608"}


@pytest.mark.parametrize(
    ("suffix", "count", "settings", "words"),
    [
        ("", IDENTITY.shards, {}, "has cleanup.policy=delete.*set it to compact"),
        ("", 3, COMPACT, f"has 3 partitions, the store needs {IDENTITY.shards}"),
        ("-cluster", 1, COMPACT, "-cluster has 1 partitions, the store needs 2"),
        ("-cluster", 2, COMPACT, "min.compaction.lag.ms=0: set it to 3600000 or more"),
        ("-events", IDENTITY.shards + 1, {}, "max.message.bytes=1048588: set it to 8388608"),
    ],
)
async def test_a_topic_that_cannot_be_used_is_refused_with_the_reason(
    site: KafkaTopicSite, suffix: str, count: int, settings: Mapping[str, str], words: str
):
    await create(site, f"{site.topic}{suffix}", count, settings)
    with pytest.raises(StoreRefused, match=words) as refusal:
        await site.owner()
    assert "\n" not in str(refusal.value)


async def test_a_topic_that_was_made_beforehand_is_used(site: KafkaTopicSite):
    await create(site, site.topic, IDENTITY.shards, COMPACT)
    owner = await site.owner()
    await owner.append(0, [commit("g", 1)])
    again = await site.again(owner)
    assert again.model.keys == owner.model.keys


async def test_an_open_transaction_of_a_killed_process_does_not_hold_up_the_next(
    site: KafkaTopicSite,
):
    owner = await site.owner()
    await owner.append(0, [commit("g", 1)])

    async def stop(call: str, is_done: bool) -> None:
        if (call, is_done) == ("commit", False):
            await asyncio.sleep(3_600)  # ends when the test cancels it

    site.pause = stop
    late = asyncio.ensure_future(owner.storage.append([owner.item(0, Batch([commit("g", 2)], []))]))
    await asyncio.wait([late], timeout=0.5)
    assert not late.done()
    owner.storage._beating.cancel()  # type: ignore[attr-defined]  # as if it were killed
    site.pause = no_more
    second = await site.owner(2)
    assert second.model.keys == owner.model.keys
    late.cancel()


async def no_more(call: str, is_done: bool) -> None:
    """Hold up nothing."""


async def test_10_000_partitions_of_a_group_come_back(site: KafkaTopicSite):
    owner = await site.owner()
    await owner.append(2, [commit("big", 5, partitions=10_000), ConsumerGroupRecord("big")])
    again = await site.again(owner)
    assert again.model.keys == owner.model.keys
    await again.append(2, [GroupRemoved("big")])
    assert (await site.again(again)).model.keys == {}


async def test_a_group_whose_members_are_too_large_is_refused_with_what_to_do(
    site: KafkaTopicSite,
):
    """A store of another kind may have such a group. Then it cannot move here."""
    owner = await site.owner()
    group = group_record("large", members=9)
    members = [replace(each, subscription=b"\xff" * 1_000_000) for each in group.members]
    with pytest.raises(StorageError, match=r"larger than max\.message\.bytes"):
        await owner.append(1, [replace(group, members=tuple(members))])
    await owner.reload()
    assert not owner.model.keys


NAMES = [
    *("", ".", "..", "a/b", "/", "\0", "a\0b", "%", "é\U0001f600", "\ue000"),
    "x" * 32_767,
    "\0" * 32_767,
]


async def test_every_name_comes_back_and_goes(site: KafkaTopicSite):
    owner = await site.owner()
    for name in NAMES:
        await owner.append(1, [commit(name, 7), group_record(name)], [GroupCreated(group_id=name)])
        await owner.append(2, [ConsumerGroupRecord(name)])
        await owner.append(-1, [GroupConfigs(name, {"a": "1"})])
    again = await site.again(owner)
    assert again.model.keys == owner.model.keys
    names = [event["group"] for event in site.events() if event["kind"] == "group_created"]
    assert sorted(names) == sorted(NAMES)
    for name in NAMES:
        await again.append(1, [GroupRemoved(name)])
        await again.append(2, [GroupRemoved(name)])
        await again.append(-1, [GroupConfigs(name, {})])
    assert (await site.again(again)).model.keys == {}


async def test_the_history_of_a_group_has_its_events(site: KafkaTopicSite):
    owner = await site.owner()
    shard = 3  # of "g", of 4 shards
    await owner.append(shard, [commit("g", 1)], [GroupCreated(group_id="g")])
    await owner.append(shard, [commit("other", 1)])
    await owner.append(shard, [commit("g", 2)])
    found = [event async for event in owner.storage.history("g")]  # type: ignore[attr-defined]
    assert [(event["seq"], event["kind"]) for event in found] == [
        (1, "group_created"),
        (2, "commit"),
        (4, "commit"),
    ]
