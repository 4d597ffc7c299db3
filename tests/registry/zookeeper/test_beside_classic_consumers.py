"""Kafka 0.8.2.2 and ours on one ZooKeeper: its consumer as a member beside ours, and its tools."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from groupkeeper.clients.zookeeper.errors import PartitionClaimedByOther, RunningInstances
from groupkeeper.clients.zookeeper.registration import SubscriptionPattern
from groupkeeper.clients.zookeeper.registry import Registry
from groupkeeper.clients.zookeeper.watches import Watch
from tests.helpers.clients.classic_kafka import ClassicKafka
from tests.helpers.clients.real_zookeeper import RealZooKeeper

pytestmark = [pytest.mark.registry, pytest.mark.java]

TOPIC, PARTITIONS, MESSAGES = "orders", 4, 40
LIMIT_S = 60


@pytest.fixture(scope="module")
def classic(
    zookeeper: RealZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClassicKafka]:
    """A broker with messages, in a chroot of its own."""
    place = f"{zookeeper.servers}/classic"
    kafka = ClassicKafka(tmp_path_factory.mktemp("classic") / "kafka", place)
    with kafka.broker():
        kafka.create_topic(TOPIC, PARTITIONS)
        kafka.produce(TOPIC, MESSAGES)
        yield kafka


async def until(watch: Watch, wanted) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not wanted(watch.current):
            await anext(watch)


async def test_a_classic_consumer_shares_a_group_with_an_instance_of_ours(classic):
    async with Registry(classic.servers) as registry:
        group = registry.group("mixed")
        ours = group.instance("a-before-theirs")
        await ours.register([TOPIC])
        for partition in range(PARTITIONS):
            await ours.claim_partition(TOPIC, partition)
        with classic.consumer("mixed", TOPIC) as process:
            async with await group.watch_instances() as instances:
                await until(instances, lambda found: len(found) == 2)
                theirs = instances.current[1]
            registration = await theirs.registration()
            assert registration.pattern == SubscriptionPattern.WHITE_LIST
            assert registration.subscription == {TOPIC: 1}
            # by the range assignment the second half is theirs: it waits until we release it
            assert (await group.owners())[TOPIC] == dict.fromkeys(range(PARTITIONS), ours.id)
            for partition in (2, 3):
                await ours.release_partition(TOPIC, partition)
            thread = f"{theirs.id}-0"
            for partition in (2, 3):
                async with await group.watch_partition_owner(TOPIC, partition) as owner:
                    await until(owner, lambda found: found is not None)
                    assert owner.current.id == thread
            with pytest.raises(PartitionClaimedByOther, match=re.escape(thread)):
                await ours.claim_partition(TOPIC, 2)
            async with asyncio.timeout(LIMIT_S):
                # an offset has no watch
                while (await group.fetch_all_offsets()).get(TOPIC, {}).keys() != {2, 3}:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            process.kill()
            async with await group.watch_instances() as instances:
                await until(instances, lambda found: found == (ours,))
        for partition in (2, 3):
            async with await group.watch_partition_owner(TOPIC, partition) as owner:
                await until(owner, lambda found: found is None)
            await ours.claim_partition(TOPIC, partition)
        with pytest.raises(RunningInstances):
            await group.delete()


async def test_the_tools_of_kafka_read_and_write_our_offsets(classic, tmp_path):
    exported, imported = tmp_path / "exported", tmp_path / "imported"
    async with Registry(classic.servers) as registry:
        group = registry.group("ours")
        member = group.new_instance()
        await member.register([TOPIC])
        for partition in range(PARTITIONS):
            await member.claim_partition(TOPIC, partition)
            await group.commit_offset(TOPIC, partition, 10 + partition)
        named = ["--zookeeper", classic.servers, "--group", "ours", "--topic", TOPIC]
        shown = await asyncio.to_thread(classic.tool, "kafka.tools.ConsumerOffsetChecker", *named)
        rows = [line.split() for line in shown.splitlines() if line.startswith("ours")]
        assert [(row[1], int(row[2]), int(row[3]), row[6]) for row in rows] == [
            (TOPIC, partition, 10 + partition, member.id) for partition in range(PARTITIONS)
        ]
        at = ["--zkconnect", classic.servers]
        named = [*at, "--group", "ours", "--output-file", str(exported)]
        await asyncio.to_thread(classic.tool, "kafka.tools.ExportZkOffsets", *named)
        text = exported.read_text()
        assert sorted(text.split()) == [
            f"/consumers/ours/offsets/{TOPIC}/{partition}:{10 + partition}"
            for partition in range(PARTITIONS)
        ]
        imported.write_text(text.replace("/ours/", "/imported/"))
        named = [*at, "--input-file", str(imported)]
        await asyncio.to_thread(classic.tool, "kafka.tools.ImportZkOffsets", *named)
        theirs = registry.group("imported")
        assert await theirs.fetch_all_offsets() == await group.fetch_all_offsets()
