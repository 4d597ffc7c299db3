"""Our own connections to a real Kafka that asks for TLS and a login, and groups there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.offsets import OffsetFetch
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.gateway.adoption import Adoption
from groupkeeper.coordinator.gateway.brokers import UpstreamBrokers
from groupkeeper.coordinator.gateway.client import BrokerError
from groupkeeper.coordinator.gateway.ends import UpstreamEnds
from groupkeeper.coordinator.gateway.gateway_topics import GatewayTopics
from groupkeeper.coordinator.gateway.mirror import UpstreamMirror
from groupkeeper.coordinator.gateway.observed_topics import ObservedTopics
from groupkeeper.coordinator.gateway.security import Security, read_security
from groupkeeper.coordinator.gateway.settings import GatewaySettings
from groupkeeper.coordinator.gateway.upstream_groups import UpstreamGroups
from groupkeeper.coordinator.handlers.services import Endpoint
from groupkeeper.coordinator.runtime.tickets import Awaited
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from tests.helpers.clients.real_kafka import CLUSTER_ID, RealKafka
from tests.helpers.runtime.coordinator import a_commit
from tests.helpers.storage.kafka_access import PASSWORD, USER, KafkaAccess, make_user

pytestmark = pytest.mark.gateway

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> KafkaAccess:
    return KafkaAccess(tmp_path_factory.mktemp("access"))


@pytest.fixture(scope="module")
def guarded(access: KafkaAccess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """A Kafka that asks who one is, with the rights of docs/use/gateway.md for our user."""
    server = RealKafka(tmp_path_factory.mktemp("guarded"), {})
    server.settings |= access.settings(server.port)
    try:
        server.start()
        make_user(server.bootstrap)
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("orders", 3), NewTopic("other", 1)])["orders"].result()
        rights = [
            (ResourceType.TOPIC, AclOperation.DESCRIBE),
            (ResourceType.TOPIC, AclOperation.READ),
            (ResourceType.GROUP, AclOperation.DESCRIBE),
            (ResourceType.GROUP, AclOperation.READ),
        ]
        bindings = [
            AclBinding(
                kind,
                "*",
                ResourcePatternType.LITERAL,
                f"User:{USER}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for kind, operation in rights
        ]
        for done in admin.create_acls(bindings).values():
            done.result()
        yield server
    finally:
        server.stop()


def secured(access: KafkaAccess, mechanism: str, password: str = PASSWORD) -> Security:
    (access.folder / "password").write_text(f"{password}\n")
    return read_security(
        tls=True,
        ca_file=str(access.folder / "ca.pem"),
        mechanism=mechanism,
        user=USER,
        password_file=str(access.folder / "password"),
    )


class Stored:
    cluster_id = CLUSTER_ID


class Site:
    """The parts of gateway mode that ask the upstream, on a coordinator without ports."""

    def __init__(self, port: int, security: Security) -> None:
        settings = GatewaySettings(
            bootstrap=(Endpoint("127.0.0.1", port),),
            ports=range(9100, 9110),
            listen_host="127.0.0.1",
            security=security,
            connect_timeout_ms=30_000,
        )
        self.topics = GatewayTopics()
        self.coordinator = GroupCoordinator(MemoryOffsetStorage(), None, self.topics)
        self.observed = ObservedTopics(self.topics)
        self.brokers = UpstreamBrokers(settings, self.observed, Stored())
        self.groups = UpstreamGroups(self.brokers)
        self.adoption = Adoption(
            self.coordinator,
            self.groups,
            self.observed,
            lambda: self.topics.image,
            lambda events: bool(events),
            self.coordinator.config.max_group_bytes,
        )

    async def offsets(self, group_id: str) -> dict[tuple[str, int], int]:
        answer = Awaited()
        self.coordinator.submit(OffsetFetch(group_id, None, False, False), answer)
        result = await answer.future
        return {(name, row[0]): row[1] for name, _, rows in result.topics for row in rows}


@asynccontextmanager
async def a_site(port: int, security: Security) -> AsyncIterator[Site]:
    site = Site(port, security)
    await site.coordinator.start()
    try:
        yield site
    finally:
        await site.brokers.stop()
        await site.coordinator.stop()


def a_mirror(site: Site) -> UpstreamMirror:
    coordinator, brokers = site.coordinator, site.brokers
    is_ours = lambda: brokers.is_ours  # noqa: E731
    return UpstreamMirror(site.groups, coordinator.live_groups, is_ours, coordinator.is_loading)


def consumer(server: RealKafka, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def commit_there(server: RealKafka, group: str, **offsets: int) -> None:
    client = consumer(server, group)
    places = [TopicPartition(topic, 0, offset) for topic, offset in offsets.items()]
    client.commit(offsets=places, asynchronous=False)
    client.close()


def committed_there(server: RealKafka, group: str, topic: str = "orders") -> int:
    client = consumer(server, group)
    (found,) = client.committed([TopicPartition(topic, 0)], timeout=30)
    client.close()
    return int(found.offset)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_poll_over_tls_and_sasl_sees_brokers_and_topics(
    guarded: RealKafka, access: KafkaAccess, mechanism: str
) -> None:
    async with a_site(access.sasl_port, secured(access, mechanism)) as site:
        await site.brokers.poll()
        cluster = site.brokers.cluster
        assert cluster is not None
        assert cluster.cluster_id == CLUSTER_ID
        assert cluster.brokers == {1: Endpoint("127.0.0.1", access.sasl_port)}
        assert cluster.features["transaction.version"] == 2
        assert site.topics.image.by_name["orders"].partitions == 3


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_told(
    guarded: RealKafka, access: KafkaAccess, mechanism: str
) -> None:
    async with a_site(access.sasl_port, secured(access, mechanism, "wrong")) as site:
        with pytest.raises(BrokerError, match="refuses the login of 'store'"):
            await site.brokers.poll()


async def test_a_port_that_expects_more_is_told(guarded: RealKafka, access: KafkaAccess) -> None:
    async with a_site(access.sasl_port, Security()) as site:
        with pytest.raises(BrokerError):
            await site.brokers.poll()
    async with a_site(guarded.port, secured(access, "PLAIN")) as site:
        with pytest.raises(BrokerError):
            await site.brokers.poll()


async def test_groups_come_over_and_go_back_with_the_rights_of_the_docs(
    guarded: RealKafka, access: KafkaAccess
) -> None:
    await asyncio.to_thread(commit_there, guarded, "billing", orders=41, other=7)
    async with a_site(access.sasl_port, secured(access, "SCRAM-SHA-512")) as site:
        await site.brokers.poll()
        assert await site.adoption.settle("billing") is ErrorCode.NONE
        assert await site.offsets("billing") == {("orders", 0): 41, ("other", 0): 7}

        groups = site.coordinator.live_groups
        ends = UpstreamEnds(site.brokers, site.topics, groups, lambda: site.brokers.is_ours)
        await ends.refresh()
        topic_id = site.topics.image.by_name["orders"].topic_id
        assert [site.topics.end_offset(topic_id, each) for each in (0, 1)] == [0, -1]

        mirror = a_mirror(site)
        site.topics.gateway_ends.when_committed = mirror.committed
        answer = Awaited()
        site.coordinator.submit(a_commit("billing", 50), answer)
        await answer.future
        await mirror.round()
        assert mirror.refused == 0
    assert await asyncio.to_thread(committed_there, guarded, "billing") == 50


async def test_a_group_with_a_member_there_waits(guarded: RealKafka, access: KafkaAccess) -> None:
    member = consumer(guarded, "busy")
    member.subscribe(["orders"])

    def join() -> None:
        while not member.assignment():
            member.poll(0.2)

    await asyncio.to_thread(join)
    async with a_site(guarded.port, Security()) as site:
        await site.brokers.poll()
        assert await site.adoption.settle("busy") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await site.adoption.settle("nowhere") is ErrorCode.NONE
        mirror = a_mirror(site)
        answer = Awaited()
        site.topics.gateway_ends.when_committed = mirror.committed
        site.coordinator.submit(a_commit("busy", 50), answer)
        await answer.future
        await mirror.round()
        assert mirror.refused == 1
        await asyncio.to_thread(member.close)


async def test_a_topic_deleted_there_is_deleted_here(guarded: RealKafka) -> None:
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap})

    def change(call: object, name: str) -> None:
        call()[name].result()  # type: ignore[operator]

    async with a_site(guarded.port, Security()) as site:
        await asyncio.to_thread(
            change, lambda: admin.create_topics([NewTopic("fleeting", 2)]), "fleeting"
        )
        await site.observed.look_up([("fleeting", "")])
        for _ in range(50):
            await site.brokers.poll()
            if "fleeting" in site.topics.image.by_name:
                break
            await asyncio.sleep(0.1)
        await asyncio.to_thread(change, lambda: admin.delete_topics(["fleeting"]), "fleeting")
        for _ in range(50):
            await site.brokers.poll()
            if "fleeting" not in site.topics.image.by_name:
                break
            await asyncio.sleep(0.1)
        assert "fleeting" not in site.topics.image.by_name
        assert "orders" in site.topics.image.by_name
