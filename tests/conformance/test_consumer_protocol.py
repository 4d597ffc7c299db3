"""Real clients of the new protocol (KIP-848), to which the coordinator assigns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.clients.members import Hosts, Member, hosts_for, wait_shared, wait_until
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.wire.raw_client import RawClient

TOPIC, PARTITIONS = "orders", 12
CLIENT = "librdkafka-consumer"
SETTINGS = {
    "group.rebalance_protocols": ["classic", "consumer"],
    "group.consumer_session_timeout_ms": 6_000,
    "group.consumer_min_session_timeout_ms": 6_000,
    "group.consumer_heartbeat_interval_ms": 500,
    "group.consumer_min_heartbeat_interval_ms": 500,
}

pytestmark = pytest.mark.conformance


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Groupkeeper]:
    server = Groupkeeper(tmp_path / "server", topics={TOPIC: PARTITIONS}, settings=SETTINGS)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def hosts(server: Groupkeeper) -> Iterator[Hosts]:
    yield from hosts_for(f"127.0.0.1:{server.port}")


def join(hosts: Hosts, name: str, **options) -> Member:
    return hosts.shared(CLIENT).join(name, "g", [TOPIC], **options)


def test_members_come_and_go_and_every_partition_has_one_of_them(hosts):
    first = join(hosts, "a")
    wait_shared([first], TOPIC, PARTITIONS)
    others = [join(hosts, name) for name in "bcd"]
    wait_shared([first, *others], TOPIC, PARTITIONS)
    assert [len(member.held) for member in (first, *others)] == [3, 3, 3, 3]
    for member in others:
        member.leave()
    wait_shared([first], TOPIC, PARTITIONS)
    first.leave()


def test_a_killed_members_partitions_go_to_the_others(hosts):
    survivor = join(hosts, "a")
    doomed = hosts.fresh(CLIENT)
    victim = doomed.join("victim", "g", [TOPIC])
    wait_shared([survivor, victim], TOPIC, PARTITIONS)
    doomed.kill9()
    wait_shared([survivor], TOPIC, PARTITIONS)
    survivor.leave()


def test_a_static_member_that_comes_back_in_time_has_what_it_had(hosts):
    """The other one keeps its partitions, and notices nothing."""
    stays, static = join(hosts, "a"), join(hosts, "b", instance="one")
    wait_shared([stays, static], TOPIC, PARTITIONS)
    had, told = static.held, stays.rebalances
    static.leave()
    again = join(hosts, "b2", instance="one")
    wait_shared([stays, again], TOPIC, PARTITIONS)
    assert again.held == had
    assert stays.rebalances == told
    for member in (stays, again):
        member.leave()


def test_what_a_member_commits_the_next_one_resumes_from(hosts):
    first = join(hosts, "a")
    wait_shared([first], TOPIC, PARTITIONS)
    assert first.commit({f"{TOPIC}:{number}": 100 + number for number in range(PARTITIONS)})["ok"]
    first.leave()
    second = join(hosts, "b")
    wait_shared([second], TOPIC, PARTITIONS)
    assert second.committed() == {f"{TOPIC}:{n}": 100 + n for n in range(PARTITIONS)}
    second.leave()


def test_a_pattern_finds_topics_that_appear(server, hosts):
    member = hosts.shared(CLIENT).join("a", "g", ["^orders.*"])
    wait_shared([member], TOPIC, PARTITIONS)
    with RawClient(server.port) as raw:
        topics = [{"name": "orders.eu", "num_partitions": 2, "replication_factor": 1}]
        reply = raw.call("create_topics", 5, topics=topics, timeout=30_000)
    assert {topic["error_code"] for topic in reply["topics"]} == {0}
    new = {("orders.eu", 0), ("orders.eu", 1)}
    wait_until(lambda: new <= member.held, [member.host], "the new topic is assigned")
    member.leave()


def test_members_go_on_after_kill_9_in_the_midst_of_a_reconciliation(server, hosts):
    first = join(hosts, "a")
    wait_shared([first], TOPIC, PARTITIONS)
    second = join(hosts, "b")
    wait_until(lambda: len(first.held) == 6, [first.host], "the first gives up one half")
    server.kill()
    server.start()
    wait_shared([first, second], TOPIC, PARTITIONS)
    assert first.identity()["member_id"] != second.identity()["member_id"]
    for member in (first, second):
        member.leave()
