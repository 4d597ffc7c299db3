"""Apache Kafka's own command line on consumer groups (KIP-848)."""

from __future__ import annotations

import re

import pytest

from tests.helpers.clients.kafka_tool import Tool, mine, rows
from tests.helpers.core.group_view import commit
from tests.helpers.wire.raw_client import RawClient

pytestmark = [pytest.mark.clients, pytest.mark.java]

NEW = {"group.protocol": "consumer"}
CONFIGS = ("--entity-type", "groups", "--entity-name")


def test_consumer_group_list(tool: Tool) -> None:
    tool.join(**NEW)
    found = {"GROUP": tool.group, "TYPE": "Consumer"}
    assert found in rows(tool("--list", "--type"))
    assert found in rows(tool("--list", "--type", "consumer"))
    assert found not in rows(tool("--list", "--type", "classic"))
    assert {**found, "STATE": "Stable"} in rows(tool("--list", "--type", "--state"))
    stable = {"GROUP": tool.group, "STATE": "Stable"}
    assert stable in rows(tool("--list", "--state", "Stable,Reconciling"))
    groups = tool("--list", "--consumer", main="org.apache.kafka.tools.GroupsCommand")
    assert [tool.group, "Consumer", "consumer"] in [line.split() for line in groups.splitlines()]


def test_consumer_group_describe_offsets(tool: Tool, raw: RawClient) -> None:
    commit(raw, tool.group, tool.topic, {0: 5, 1: 60})
    tool.join(**NEW, **{"client.id": "me"})
    columns = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CLIENT-ID")
    described = rows(tool.of_group("--describe", "--offsets"))
    assert [tuple(row[column] for column in columns) for row in described] == [
        ("0", "5", "50", "45", "me"),
        ("1", "60", "60", "0", "me"),
        ("2", "-", "70", "-", "me"),
    ]
    assert rows(tool.of_group("--describe")) == described


def test_consumer_group_describe_members(tool: Tool) -> None:
    tool.join(**NEW, **{"client.id": "me", "group.instance.id": "one"})
    (member,) = rows(tool.of_group("--describe", "--members"))
    told = (member["GROUP-INSTANCE-ID"], member["CLIENT-ID"], member["#PARTITIONS"])
    assert told == ("one", "me", "3")
    (member,) = rows(tool.of_group("--describe", "--members", "--verbose"))
    assert member["CURRENT-ASSIGNMENT"] == f"{tool.topic}:0,1,2"
    assert member["TARGET-ASSIGNMENT"] == f"{tool.topic}:0,1,2"
    assert member["CURRENT-EPOCH"] == member["TARGET-EPOCH"]


def test_consumer_group_describe_state(tool: Tool) -> None:
    def shown(*more: str) -> list[str]:
        out = tool.of_group("--describe", "--state", *more)
        _, line = (line for line in out.splitlines() if line)
        return re.sub(r"\S+:\d+\s+\(\d+\)", "COORDINATOR", line).split()

    tool.join(**NEW)
    assert shown() == [tool.group, "COORDINATOR", "uniform", "Stable", "1"]
    *names, epoch, target_epoch, members = shown("--verbose")
    assert names == [tool.group, "COORDINATOR", "uniform", "Stable"]
    assert int(epoch) == int(target_epoch) > 0
    assert members == "1"
    tool.leave()
    assert shown() == [tool.group, "COORDINATOR", "uniform", "Empty", "0"]


def test_consumer_group_reset(tool: Tool, raw: RawClient) -> None:
    commit(raw, tool.group, tool.topic, {0: 5})
    tool.join(**NEW)
    reset = ("--topic", tool.topic, "--to-earliest")
    assert "the current state is Stable" in tool.of_group("--reset-offsets", *reset, "--execute")
    assert mine(raw, tool) == {0: 5}
    tool.leave()
    assert tool.new_offsets(*reset, "--dry-run") == {0: 0, 1: 0, 2: 0}
    assert mine(raw, tool) == {0: 5}
    assert tool.new_offsets(*reset, "--execute") == {0: 0, 1: 0, 2: 0}
    assert mine(raw, tool) == {0: 0, 1: 0, 2: 0}


def test_consumer_group_delete(tool: Tool, raw: RawClient) -> None:
    commit(raw, tool.group, tool.topic, {0: 5, 1: 6})
    tool.join(**NEW)
    refused = tool.of_group("--delete-offsets", "--topic", f"{tool.topic}:0")
    assert "GroupSubscribedToTopicException" in refused
    assert "GroupNotEmptyException" in tool.of_group("--delete")
    tool.leave()
    done = tool.of_group("--delete-offsets", "--topic", f"{tool.topic}:0")
    assert "Request succeeded" in done
    assert mine(raw, tool) == {1: 6}
    assert "was successful" in tool.of_group("--delete")
    assert tool.group not in tool("--list").split()
    assert mine(raw, tool) == {}


def test_consumer_group_configs(tool: Tool) -> None:
    """A value beyond the bounds of the server is refused."""

    def configs(*arguments: str) -> str:
        return tool(*arguments, *CONFIGS, tool.group, main="kafka.admin.ConfigCommand")

    tool.join(**NEW)
    configs("--alter", "--add-config", "consumer.heartbeat.interval.ms=6000")
    assert "consumer.heartbeat.interval.ms=6000 " in configs("--describe")
    with pytest.raises(AssertionError, match=r"InvalidConfigurationException.*interval\.ms"):
        configs("--alter", "--add-config", "consumer.heartbeat.interval.ms=1")
    assert "consumer.heartbeat.interval.ms=6000 " in configs("--describe")
    configs("--alter", "--delete-config", "consumer.heartbeat.interval.ms")
    assert "consumer.heartbeat.interval.ms=5000 " in configs("--describe", "--all")
