"""Apache Kafka's own command line, kafka-consumer-groups above all, by its mains in one JVM."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.clients.kafka_tool import Tool, mine, plan_of, rows
from tests.helpers.core.group_view import commit
from tests.helpers.wire.raw_client import RawClient

pytestmark = [pytest.mark.clients, pytest.mark.java]


def test_list(tool: Tool, raw: RawClient) -> None:
    assert tool.group not in tool("--list").split()
    commit(raw, tool.group, tool.topic, {0: 1})
    assert tool.group in tool("--list").split()


def test_list_state(tool: Tool, raw: RawClient) -> None:
    commit(raw, tool.group, tool.topic, {0: 1})
    empty = {"GROUP": tool.group, "STATE": "Empty"}
    assert empty in rows(tool("--list", "--state"))
    assert empty in rows(tool("--list", "--state", "Empty"))
    assert empty not in rows(tool("--list", "--state", "Stable,PreparingRebalance"))
    tool.join()
    stable = {"GROUP": tool.group, "STATE": "Stable"}
    assert stable in rows(tool("--list", "--state"))
    assert stable in rows(tool("--list", "--state", "stable"))


def test_list_type(tool: Tool, raw: RawClient) -> None:
    commit(raw, tool.group, tool.topic, {0: 1})
    classic = {"GROUP": tool.group, "TYPE": "Classic"}
    assert classic in rows(tool("--list", "--type"))
    assert classic in rows(tool("--list", "--type", "classic"))
    assert classic not in rows(tool("--list", "--type", "consumer"))
    assert {**classic, "STATE": "Empty"} in rows(tool("--list", "--type", "--state"))


def test_describe_offsets(tool: Tool, raw: RawClient) -> None:
    commit(raw, tool.group, tool.topic, {0: 5, 1: 60})
    columns = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "CLIENT-ID")

    def shown() -> list[tuple[str, ...]]:
        described = rows(tool.of_group("--describe", "--offsets"))
        assert {row["TOPIC"] for row in described} == {tool.topic}
        return [tuple(row[column] for column in columns) for row in described]

    assert shown() == [("0", "5", "50", "45", "-", "-"), ("1", "60", "60", "0", "-", "-")]
    verbose = rows(tool.of_group("--describe", "--offsets", "--verbose"))
    assert [row["LEADER-EPOCH"] for row in verbose] == ["-", "-"]
    tool.join(**{"client.id": "me", "group.instance.id": "one"})
    with_member = shown()
    assert [row[:4] for row in with_member] == [
        ("0", "5", "50", "45"),
        ("1", "60", "60", "0"),
        ("2", "-", "70", "-"),
    ]
    assert all(row[4].startswith("one-") and row[5] == "me" for row in with_member)


def test_describe_members(tool: Tool) -> None:
    tool.join(**{"client.id": "me", "group.instance.id": "one"})
    (member,) = rows(tool.of_group("--describe", "--members"))
    assert member["CONSUMER-ID"].startswith("one-")
    told = (member["GROUP-INSTANCE-ID"], member["CLIENT-ID"], member["#PARTITIONS"])
    assert told == ("one", "me", "3")
    assert member["HOST"].startswith("/127.")
    (member,) = rows(tool.of_group("--describe", "--members", "--verbose"))
    assert member["CURRENT-ASSIGNMENT"] == f"{tool.topic}:0,1,2"


def test_describe_state(tool: Tool, raw: RawClient) -> None:
    def shown(*more: str) -> list[str]:
        out = tool.of_group("--describe", "--state", *more)
        _, line = (line for line in out.splitlines() if line)
        return re.sub(r"\S+:\d+\s+\(\d+\)", "COORDINATOR", line).split()

    commit(raw, tool.group, tool.topic, {0: 1})
    assert shown() == [tool.group, "COORDINATOR", "-", "Empty", "0"]
    tool.join()
    assert shown() == [tool.group, "COORDINATOR", "range", "Stable", "1"]
    epochs = ["-", "-"]  # the epochs of the consumer protocol
    assert shown("--verbose") == [tool.group, "COORDINATOR", "range", "Stable", *epochs, "1"]


def test_describe_absent(tool: Tool) -> None:
    assert "GroupIdNotFoundException" in tool.of_group("--describe")


def test_reset_to_offset(tool: Tool, raw: RawClient) -> None:
    commit(raw, tool.group, tool.topic, {0: 5, 1: 6})
    reset = ("--topic", f"{tool.topic}:0,1", "--to-offset")
    assert tool.new_offsets(*reset, "9", "--dry-run") == {0: 9, 1: 9}
    assert mine(raw, tool) == {0: 5, 1: 6}, "a dry run changes nothing"
    exported = tool.of_group("--reset-offsets", *reset, "9", "--export", "--dry-run")
    assert plan_of(exported) == [(tool.topic, "0", "9"), (tool.topic, "1", "9")]
    assert mine(raw, tool) == {0: 5, 1: 6}, "nor does an export"
    # an offset above the end becomes the end
    assert tool.new_offsets(*reset, "55", "--execute") == {0: 50, 1: 55}
    assert mine(raw, tool) == {0: 50, 1: 55}


def test_reset_to_earliest(tool: Tool, raw: RawClient) -> None:
    commit(raw, tool.group, tool.topic, {0: 5})
    reset = ("--topic", tool.topic, "--to-earliest")
    assert tool.new_offsets(*reset, "--dry-run") == {0: 0, 1: 0, 2: 0}
    assert mine(raw, tool) == {0: 5}
    assert tool.new_offsets(*reset, "--execute") == {0: 0, 1: 0, 2: 0}
    assert mine(raw, tool) == {0: 0, 1: 0, 2: 0}


def test_reset_to_latest(tool: Tool, raw: RawClient) -> None:
    commit(raw, tool.group, tool.topic, {0: 5})
    reset = ("--topic", tool.topic, "--to-latest")
    assert tool.new_offsets(*reset, "--dry-run") == {0: 50, 1: 60, 2: 70}
    assert mine(raw, tool) == {0: 5}
    assert tool.new_offsets(*reset, "--execute") == {0: 50, 1: 60, 2: 70}
    assert mine(raw, tool) == {0: 50, 1: 60, 2: 70}


def test_reset_to_current(tool: Tool, raw: RawClient) -> None:
    commit(raw, tool.group, tool.topic, {0: 5, 2: 7})
    # a partition without a commit gets the end
    reset = ("--topic", tool.topic, "--to-current")
    assert tool.new_offsets(*reset, "--dry-run") == {0: 5, 1: 60, 2: 7}
    assert mine(raw, tool) == {0: 5, 2: 7}
    assert tool.new_offsets(*reset, "--execute") == {0: 5, 1: 60, 2: 7}
    assert mine(raw, tool) == {0: 5, 1: 60, 2: 7}


def test_reset_shift_by(tool: Tool, raw: RawClient) -> None:
    commit(raw, tool.group, tool.topic, {0: 45, 1: 3})
    assert tool.new_offsets("--all-topics", "--shift-by", "2", "--dry-run") == {0: 47, 1: 5}
    # never beyond the end, never before the beginning
    assert tool.new_offsets("--all-topics", "--shift-by", "10", "--execute") == {0: 50, 1: 13}
    assert tool.new_offsets("--all-topics", "--shift-by", "-20", "--execute") == {0: 30, 1: 0}
    assert mine(raw, tool) == {0: 30, 1: 0}


def test_reset_from_file(tool: Tool, raw: RawClient, tmp_path: Path) -> None:
    commit(raw, tool.group, tool.topic, {0: 5, 1: 6, 2: 7})
    whole = ("--reset-offsets", "--topic", tool.topic, "--to-current", "--export", "--dry-run")
    plan = tmp_path / "plan.csv"
    plan.write_text(tool.of_group(*whole).strip() + "\n")
    assert plan_of(plan.read_text()) == [(tool.topic, str(p), str(p + 5)) for p in range(3)]
    commit(raw, tool.group, tool.topic, {0: 40, 1: 41, 2: 42})
    from_file = ("--from-file", str(plan))
    assert tool.new_offsets(*from_file, "--dry-run") == {0: 5, 1: 6, 2: 7}
    assert mine(raw, tool) == {0: 40, 1: 41, 2: 42}
    assert tool.new_offsets(*from_file, "--execute") == {0: 5, 1: 6, 2: 7}
    assert mine(raw, tool) == {0: 5, 1: 6, 2: 7}


def test_reset_active(tool: Tool, raw: RawClient) -> None:
    commit(raw, tool.group, tool.topic, {0: 5})
    tool.join()
    reset = ("--reset-offsets", "--topic", tool.topic, "--to-earliest", "--execute")
    assert "the current state is Stable" in tool.of_group(*reset)
    assert mine(raw, tool) == {0: 5}
    tool.leave()
    assert tool.new_offsets(*reset[1:]) == {0: 0, 1: 0, 2: 0}


def test_delete_offsets(tool: Tool, raw: RawClient) -> None:
    commit(raw, tool.group, tool.topic, {0: 5, 1: 6})
    tool.join()
    refused = tool.of_group("--delete-offsets", "--topic", f"{tool.topic}:0")
    assert "GroupSubscribedToTopicException" in refused
    assert mine(raw, tool) == {0: 5, 1: 6}
    tool.leave()
    done = tool.of_group("--delete-offsets", "--topic", f"{tool.topic}:0")
    assert "Request succeeded" in done
    assert mine(raw, tool) == {1: 6}


def test_delete(tool: Tool, raw: RawClient) -> None:
    commit(raw, tool.group, tool.topic, {0: 5})
    tool.join()
    assert "GroupNotEmptyException" in tool.of_group("--delete")
    tool.leave()
    assert "was successful" in tool.of_group("--delete")
    assert tool.group not in tool("--list").split()
    assert mine(raw, tool) == {}
    assert "GroupIdNotFoundException" in tool.of_group("--delete")


def test_groups(tool: Tool, raw: RawClient) -> None:
    commit(raw, tool.group, tool.topic, {0: 1})

    def shown(*filters: str) -> list[list[str]]:
        lines = tool("--list", *filters, main="org.apache.kafka.tools.GroupsCommand").splitlines()
        return [line.split() for line in lines if line.split()[:1] == [tool.group]]

    assert shown() == [[tool.group, "Classic"]]
    tool.join()
    assert shown() == [[tool.group, "Classic", "consumer"]]
    assert shown("--consumer") == [[tool.group, "Classic", "consumer"]]
    assert shown("--group-type", "share") == []


def test_get_offsets(tool: Tool) -> None:
    def shown(time: str) -> list[str]:
        return tool(
            "--topic", tool.topic, "--time", time, main="org.apache.kafka.tools.GetOffsetShell"
        ).split()

    assert shown("latest") == [f"{tool.topic}:{p}:{50 + 10 * p}" for p in range(3)]
    assert shown("earliest") == [f"{tool.topic}:{p}:0" for p in range(3)]


def test_topics(tool: Tool) -> None:
    made = f"{tool.topic}-made"

    def topics(*arguments: str) -> str:
        return tool(*arguments, main="org.apache.kafka.tools.TopicCommand")

    assert f"Created topic {made}." in topics("--create", "--topic", made, "--partitions", "2")
    assert "PartitionCount: 2" in topics("--describe", "--topic", made)
    topics("--alter", "--topic", made, "--partitions", "4")
    assert "PartitionCount: 4" in topics("--describe", "--topic", made)
    assert made in topics("--list").split()
    topics("--delete", "--topic", made)
    assert made not in topics("--list").split()


def test_configs(tool: Tool) -> None:
    def configs(*arguments: str) -> str:
        entity = ("--entity-type", "groups", "--entity-name", tool.group)
        return tool(*arguments, *entity, main="kafka.admin.ConfigCommand")

    configs("--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000 " in configs("--describe")
    assert "consumer.heartbeat.interval.ms=5000 " in configs("--describe", "--all")
    configs("--alter", "--delete-config", "consumer.session.timeout.ms")
    assert "consumer.session.timeout.ms" not in configs("--describe")
