"""``storage check`` of a store in topics of Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from groupkeeper.storage.base import StoreIdentity, StoreRefused
from groupkeeper.storage.tools.check import StoreReport
from groupkeeper.storage.tools.check_kafka_topic import check_kafka_topic
from tests.helpers.core.records import commit, group_record
from tests.helpers.storage.fake_kafka import Entry, FakeAdmin, FakeKafka
from tests.helpers.storage.kafka_topic_site import TTL_MS, FakeKafkaSite, KafkaTopicSite
from tests.helpers.storage.storage_owner import IDENTITY, Owner

Site = FakeKafkaSite | KafkaTopicSite


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka_topic)])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    if request.param == "fake":
        site: Site = FakeKafkaSite(FakeKafka())
    else:
        site = KafkaTopicSite(request.getfixturevalue("kafka"))
    yield site
    for owner in site.owners:
        await owner.storage.close()


async def check(
    site: Site, *, writes: bool = False, identity: StoreIdentity = IDENTITY
) -> StoreReport:
    fakes = {}
    if isinstance(site, FakeKafkaSite):
        fakes = {"connect": site.connect, "admin": FakeAdmin}
    return await check_kafka_topic(
        site.url(),
        identity,
        append_timeout_ms=5_000,
        lease_ttl_ms=TTL_MS,
        measures_writes=writes,
        **fakes,  # type: ignore[arg-type]
    )


async def filled(site: Site) -> Owner:
    owner = await site.owner()
    await owner.append(0, [group_record("g"), commit("g", 1, partitions=5)])
    await owner.append(1, [commit("h", 1)])
    return owner


async def test_a_check_reads_every_group_and_says_who_uses_the_store(site: Site) -> None:
    owner = await filled(site)
    report = await check(site, writes=True)
    assert (report.used_by, report.write_ms, report.problems) == ("node 1 (host:1)", None, [])
    assert (report.groups, report.offsets, report.largest_group) == (2, 6, "g")
    assert report.round_trip_ms is not None
    await owner.append(1, [commit("h", 2)])  # the check has fenced nobody


async def test_writes_are_measured_if_nobody_uses_the_store_and_leave_nothing(site: Site) -> None:
    owner = await filled(site)
    await owner.storage.close()
    assert (await check(site)).write_ms is None
    report = await check(site, writes=True)
    assert (report.used_by, report.problems) == ("", [])
    assert report.write_ms is not None
    again = await site.owner()
    assert again.model.keys == owner.model.keys


async def test_a_store_of_another_identity_is_refused(site: Site) -> None:
    await (await filled(site)).storage.close()
    with pytest.raises(StoreRefused, match="belongs to cluster 'test-cluster'"):
        await check(site, identity=StoreIdentity("other", IDENTITY.shards))


async def test_a_message_that_cannot_be_read_is_named_and_the_rest_is_read() -> None:
    site = FakeKafkaSite(FakeKafka())
    await (await filled(site)).storage.close()
    site.cluster.partitions[site.url().topic, 3].append(Entry(b"\0\x02\0\1x", b"\1"))
    report = await check(site)
    (problem,) = report.problems
    assert "partition 3: group 'x' cannot be read" in problem
    assert "Its shard stays LOADING" in problem
    assert report.groups == 2


@pytest.mark.kafka_topic
async def test_without_topics_there_is_no_store_and_none_is_made(kafka) -> None:
    site = KafkaTopicSite(kafka)
    with pytest.raises(StoreRefused, match=f"there is no topic {site.topic}-cluster"):
        await check(site)
    assert site.topic not in await topics(site)


async def topics(site: KafkaTopicSite) -> list[str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=site.server.bootstrap)
    await admin.start()
    found: list[str] = await admin.list_topics()
    await admin.close()
    return found


@pytest.mark.kafka_topic
async def test_a_topic_that_loses_data_is_a_problem_and_one_replica_an_advice(kafka) -> None:
    site = KafkaTopicSite(kafka)
    await (await filled(site)).storage.close()
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    changed = {"cleanup.policy": "delete", "max.message.bytes": "8388608"}
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, site.topic, changed)])
    await admin.close()
    report = await check(site)
    assert report.problems == [
        f"topic {site.topic} has cleanup.policy=delete, which would delete what is stored: set it "
        "to compact"
    ]
    assert f"topic {site.topic} has one replica: with its broker, all of it is lost" in (
        report.advice
    )
