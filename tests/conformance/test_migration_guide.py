"""What docs/use/consumer-protocol.md says of single clients, tried with these clients.

The settings and the balancers are read from its table, so that the table cannot say another thing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException

from tests.helpers.clients.members import Hosts, hosts_for, wait_shared, wait_until
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.wire.raw_client import RawClient

GUIDE = Path(__file__).parents[2] / "docs" / "use" / "consumer-protocol.md"
TOPIC, PARTITIONS = "orders", 4
VALUES = {
    "partition.assignment.strategy": {
        "librdkafka": "range",
        "java": "org.apache.kafka.clients.consumer.RangeAssignor",
    },
    "session.timeout.ms": {"librdkafka": "10000", "java": "10000"},
    "heartbeat.interval.ms": {"librdkafka": "3000", "java": "3000"},
    "group.protocol.type": {"librdkafka": "consumer"},
}
"""A value that is good in the classic protocol, for each setting that the guide names."""

pytestmark = pytest.mark.conformance


def row(client: str) -> tuple[str, str]:
    """What the guide says of a client: how it moves, and what its settings may not have."""
    (line,) = [each for each in GUIDE.read_text().splitlines() if each.startswith(f"| {client}")]
    _, how, remove = [cell.strip() for cell in line.strip("|").split("|")]
    return how, remove


def named(text: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", text.partition(". ")[0])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Groupkeeper]:
    server = Groupkeeper(tmp_path / "server", topics={TOPIC: PARTITIONS})
    server.start()
    yield server
    server.stop()


@pytest.fixture
def hosts(server: Groupkeeper) -> Iterator[Hosts]:
    yield from hosts_for(server.bootstrap)


def types_of_groups(server: Groupkeeper) -> dict[str, str]:
    with RawClient(server.port) as raw:
        groups = raw.call("list_groups", 5, states_filter=[], types_filter=[])["groups"]
    return {group["group_id"]: group["group_type"].lower() for group in groups}


def test_librdkafka_refuses_the_settings_that_the_guide_removes():
    settings = named(row("librdkafka")[1])
    assert set(settings) == {name for name, values in VALUES.items() if "librdkafka" in values}
    own = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "group.protocol": "consumer"}
    Consumer(own).close()
    for name in settings:
        with pytest.raises(KafkaException, match=f"`{name}` is not supported"):
            Consumer({**own, name: VALUES[name]["librdkafka"]})


@pytest.mark.clients
@pytest.mark.java
def test_java_refuses_the_settings_that_the_guide_removes(hosts):
    settings = named(row("Java `KafkaConsumer`")[1])
    assert set(settings) == {name for name, values in VALUES.items() if "java" in values}
    host = hosts.shared("java")
    for name in settings:
        of_classic = {name: VALUES[name]["java"]}
        refused = host.join(name, "g", [TOPIC], protocol="consumer", settings=of_classic)
        wait_until(lambda one=refused: bool(one.events("ended")), [host], f"{name} is refused")
        (failure,) = refused.events("failed")
        assert failure["error"] == "ConfigException"
        assert failure["message"] == f"{name} cannot be set when group.protocol=CONSUMER"


@pytest.mark.clients
@pytest.mark.go
def test_franz_go_follows_its_first_balancer(server, hosts):
    how, others = row("franz-go 1.22")
    good, bad = re.findall(r"`(\w+Balancer)`", how), re.findall(r"`(\w+Balancer)`", others)
    assert (len(good), bad) == (3, ["RoundRobinBalancer"])
    host = hosts.shared("franz-go")
    members = [host.join(name, name, [TOPIC], balancer=name) for name in (*good, *bad)]
    members += [
        host.join("option", "option", [TOPIC]),
        host.join("key", "key", [TOPIC], optin=True),
    ]
    for member in members:
        wait_shared([member], TOPIC, PARTITIONS)
    expected = {member.group: "consumer" for member in members} | dict.fromkeys(bad, "classic")
    assert types_of_groups(server) == expected
    for member in members:
        member.leave()
