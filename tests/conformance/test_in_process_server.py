"""Real clients against a server in the process of a test: what people's tests do with it."""

from __future__ import annotations

import asyncio

import aiokafka
import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer

from groupkeeper.coordinator.testkit.server import GroupkeeperServer, SyncGroupkeeperServer

pytestmark = [pytest.mark.conformance, pytest.mark.groupkeeper(topics={"orders": 4})]

HEARTBEAT = 12
SESSION_MS = 45_000
"""Of members of consumer groups, by default."""
GIVE_UP_S = 30
"""When a test fails instead of waiting on; never an expectation of how long something takes."""


def librdkafka(bootstrap: str, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
        }
    )


def of_consumer_group(bootstrap: str, name: str) -> confluent_kafka.Consumer:
    """A member of the new protocol (KIP-848)."""
    settings = {"group.id": "new", "group.protocol": "consumer", "client.id": name}
    return confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "enable.auto.commit": False, **settings}
    )


def kinds(server: SyncGroupkeeperServer) -> list[str]:
    return [event["kind"] for event in server.events("new")]


def wait_assigned(consumers: list[confluent_kafka.Consumer], count: int) -> None:
    for _ in range(GIVE_UP_S * 50):
        for consumer in consumers:
            consumer.poll(0.02 / len(consumers))
        if [len(consumer.assignment()) for consumer in consumers] == [count] * len(consumers):
            return
    raise AssertionError([consumer.assignment() for consumer in consumers])


def test_a_consumer_resumes_at_what_another_committed(groupkeeper):
    for offset in (None, 17):
        consumer = librdkafka(groupkeeper.bootstrap, "billing")
        consumer.subscribe(["orders"])
        wait_assigned([consumer], 4)
        (found,) = consumer.committed([confluent_kafka.TopicPartition("orders", 2)])
        assert found.offset == (confluent_kafka.OFFSET_INVALID if offset is None else offset)
        mark = confluent_kafka.TopicPartition("orders", 2, 17)
        consumer.commit(offsets=[mark], asynchronous=False)
        consumer.close()
    assert groupkeeper.committed("billing") == {("orders", 2): 17}


def test_two_members_share_and_the_last_one_gets_everything(groupkeeper):
    consumers = [librdkafka(groupkeeper.bootstrap, "shared") for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe(["orders"])
    wait_assigned(consumers, 2)
    consumers.pop().close()
    wait_assigned(consumers, 4)
    consumers.pop().close()


def test_a_client_goes_on_over_a_restart(groupkeeper):
    consumer = librdkafka(groupkeeper.bootstrap, "restarted")
    consumer.subscribe(["orders"])
    wait_assigned([consumer], 4)
    member_id = consumer.memberid()
    groupkeeper.restart()
    mark = confluent_kafka.TopicPartition("orders", 0, 5)
    for _ in range(GIVE_UP_S * 10):
        try:
            consumer.commit(offsets=[mark], asynchronous=False)
            break
        except confluent_kafka.KafkaException:
            consumer.poll(0.1)
    assert groupkeeper.committed("restarted") == {("orders", 0): 5}
    assert consumer.memberid() == member_id
    consumer.close()


def test_members_of_a_consumer_group_share_and_one_is_evicted(groupkeeper):
    consumers = [of_consumer_group(groupkeeper.bootstrap, name) for name in ("one", "two")]
    for consumer in consumers:
        consumer.subscribe(["orders"])
    wait_assigned(consumers, 2)
    groupkeeper.evict("new", "two")
    reasons = [e["reason"] for e in groupkeeper.events("new") if e["kind"] == "member_evicted"]
    assert len(reasons) == 1
    wait_assigned(consumers, 2)  # it joins again
    for consumer in consumers:
        consumer.close()


def test_members_of_a_consumer_group_live_through_moved_time_and_die_without_heartbeats(
    groupkeeper,
):
    consumer = of_consumer_group(groupkeeper.bootstrap, "one")
    consumer.subscribe(["orders"])
    wait_assigned([consumer], 4)
    groupkeeper.advance(10 * SESSION_MS, heartbeats=True)
    assert "member_evicted" not in kinds(groupkeeper)
    groupkeeper.advance(SESSION_MS + 1)
    assert "member_evicted" in kinds(groupkeeper)
    consumer.close()


def test_a_consumer_group_resumes_after_its_storage_failed(groupkeeper):
    consumer = of_consumer_group(groupkeeper.bootstrap, "one")
    consumer.subscribe(["orders"])
    wait_assigned([consumer], 4)
    mark = confluent_kafka.TopicPartition("orders", 0, 5)
    with (
        groupkeeper.fail_storage(),
        pytest.raises(confluent_kafka.KafkaException, match="COORDINATOR_LOAD_IN_PROGRESS"),
    ):
        consumer.commit(offsets=[mark], asynchronous=False)
    groupkeeper.committed("new")  # waits until every shard is loaded
    consumer.commit(offsets=[mark], asynchronous=False)
    assert groupkeeper.committed("new") == {("orders", 0): 5}
    assert len(consumer.assignment()) == 4
    assert "member_evicted" not in kinds(groupkeeper)
    consumer.close()


async def test_aiokafka_in_the_same_loop_as_its_coordinator():
    async with GroupkeeperServer(topics={"orders": 4}) as server:
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=server.bootstrap,
            group_id="billing",
            enable_auto_commit=False,
        )
        async with asyncio.timeout(GIVE_UP_S):
            await consumer.start()
            try:
                assert len(consumer.assignment()) == 4
                partition = aiokafka.TopicPartition("orders", 3)
                await consumer.commit({partition: 9})
                assert await consumer.committed(partition) == 9
            finally:
                await consumer.stop()
        assert await server.committed("billing") == {("orders", 3): 9}


async def test_a_living_client_heartbeats_through_moved_time_in_steps_below_its_session():
    async with GroupkeeperServer(topics={"orders": 4}) as server:
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=server.bootstrap,
            group_id="billing",
            session_timeout_ms=10_000,
            heartbeat_interval_ms=100,
            enable_auto_commit=False,
        )
        async with asyncio.timeout(GIVE_UP_S):
            await consumer.start()
            for _ in range(5):
                await a_heartbeat(server)
                await server.advance(8_000)
            await a_heartbeat(server)
            assert "member_evicted" not in [event["kind"] for event in server.events("billing")]
            await server.advance(10_001)
            assert "member_evicted" in [event["kind"] for event in server.events("billing")]
            await consumer.stop()


async def test_offsets_expire_under_living_clients_that_would_join_again_meanwhile():
    async with GroupkeeperServer(topics={"orders": 4}) as server, asyncio.timeout(GIVE_UP_S):
        consumers = [
            AIOKafkaConsumer(
                "orders",
                bootstrap_servers=server.bootstrap,
                group_id="billing",
                group_instance_id=instance,
                heartbeat_interval_ms=20,
                retry_backoff_ms=20,
                enable_auto_commit=False,
            )
            for instance in (None, None, "static")
        ]
        for consumer in consumers:
            await consumer.start()
        while sorted(len(consumer.assignment()) for consumer in consumers) != [1, 1, 2]:
            await a_heartbeat(server)
        partition = next(iter(consumers[0].assignment()))
        await consumers[0].commit({partition: 9})
        await a_heartbeat(server)
        await server.advance(8 * 24 * 3_600_000)
        assert await server.committed("billing") == {}
        happened = [event["kind"] for event in server.events("billing")]
        assert happened[-2:] == ["offset_expired", "group_deleted"]
        for consumer in consumers:
            await consumer.stop()


async def a_heartbeat(server: GroupkeeperServer) -> None:
    """Wait for the next one, of whatever version."""
    before = heartbeats(server)
    while True:
        await asyncio.sleep(0.02)
        if heartbeats(server) > before:
            return


def heartbeats(server: GroupkeeperServer) -> int:
    assert server._kafka is not None
    counts = server._kafka.stats.requests
    return sum(count for (key, _, _), count in counts.items() if key == HEARTBEAT)
