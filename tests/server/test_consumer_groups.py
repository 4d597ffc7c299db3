"""Consumer groups on a running server, as commands and administrators see them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from groupkeeper import read_events
from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.testkit.server import SyncGroupkeeperServer
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.wire.raw_client import RawClient

TOPICS = {"orders": 4}
GROUP, SET, INT = 32, 0, 3
"""The type of a resource, and an operation of IncrementalAlterConfigs."""


class Member:
    """A member of the consumer protocol over a socket of its own."""

    def __init__(self, port: int, member_id: str, group: str = "g") -> None:
        self.client = RawClient(port, client_id=f"client-{member_id}")
        self.group = group
        self.id = member_id
        self.epoch = 0
        self.held: list[dict[str, Any]] = []
        self.partitions: set[int] = set()

    def beat(self, **changes: Any) -> dict[str, Any]:
        values = {
            "group_id": self.group,
            "member_id": self.id,
            "member_epoch": self.epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
            **changes,
        }
        answer = self.client.call("consumer_group_heartbeat", 1, **values)
        if answer["error_code"] == 0:
            self.epoch = answer["member_epoch"]
            if answer["assignment"] is not None:
                self.held = answer["assignment"]["topic_partitions"]
                self.partitions = {n for topic in self.held for n in topic["partitions"]}
        return answer

    def join(self, *topics: str) -> dict[str, Any]:
        names = [*topics] or ["orders"]
        joining = {"rebalance_timeout": 60_000, "subscribed_topic_names": names}
        return self.beat(member_epoch=0, topic_partitions=[], **joining)

    def acknowledge(self) -> dict[str, Any]:
        owned = [{**topic, "topic_id": UUID(topic["topic_id"])} for topic in self.held]
        return self.beat(topic_partitions=owned)

    def commit(self, offset: int) -> int:
        rows = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        answer = self.client.call(
            "offset_commit",
            9,
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.id,
            topics=[{"name": "orders", "partitions": rows}],
        )
        ((row,),) = [topic["partitions"] for topic in answer["topics"]]
        return int(row["error_code"])

    def leave(self) -> None:
        assert self.beat(member_epoch=-1)["error_code"] == 0


Joiner = Callable[..., Member]
"""Makes a member of a group: its port, its id and the group."""


@pytest.fixture
def member() -> Iterator[Joiner]:
    with ExitStack() as sockets:

        def made(*arguments: Any) -> Member:
            new = Member(*arguments)
            sockets.callback(new.client.close)
            return new

        yield made


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)], prog_name="groupkeeper")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groupkeeper]:
    server = Groupkeeper(tmp_path_factory.mktemp("server"), topics=TOPICS)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def server() -> Iterator[SyncGroupkeeperServer]:
    with SyncGroupkeeperServer(TOPICS) as server:
        yield server


def store_of(daemon: Groupkeeper) -> Path:
    return daemon.directory / "groupkeeper.db"


# --- with the settings that nobody changed ---


def test_a_member_of_the_new_protocol_is_served_without_any_setting(
    daemon: Groupkeeper, member: Joiner
) -> None:
    a = member(daemon.port, "a", "by-default")
    answer = a.join()
    assert (answer["error_code"], a.epoch, a.partitions) == (0, 2, {0, 1, 2, 3})
    a.leave()


def test_the_command_line_shows_a_consumer_group(daemon: Groupkeeper, member: Joiner) -> None:
    a = member(daemon.port, "a", "shown")
    a.join()
    assert a.commit(5) == 0
    listed = run("group", "list", "--type", "consumer", "--server", daemon.bootstrap).stdout
    assert ["shown", "consumer", "consumer", "Stable"] in [
        line.split() for line in listed.splitlines()
    ]
    output = run("group", "describe", "shown", "--server", daemon.bootstrap, "-o", "json").stdout
    shown = json.loads(output)
    assert (shown["type"], shown["state"], shown["protocol"]) == ("consumer", "Stable", "uniform")
    (who,) = shown["members"]
    assert (who["member_id"], who["partitions"]) == ("a", {"orders": [0, 1, 2, 3]})
    assert shown["offsets"][0]["committed"] == 5
    a.leave()


def described(server: SyncGroupkeeperServer, group: str) -> tuple[list[str], Any]:
    """What the command prints, as lines and as JSON."""
    asked = ["group", "describe", group, "--server", server.bootstrap]
    return run(*asked).stdout.splitlines(), json.loads(run(*asked, "-o", "json").stdout)


def test_the_command_line_names_a_topic_that_a_consumer_group_does_not_find(
    server: SyncGroupkeeperServer, member: Joiner
) -> None:
    a = member(server.port, "a")
    a.join("oders", "orders")
    a.beat(subscribed_topic_regex="bill.*")
    shown, exact = described(server, "g")
    assert "TOPICS       oders orders" in shown
    assert "PATTERNS     bill.*" in shown
    assert "UNKNOWN      no such topic here: oders, nearest: orders" in shown
    assert exact["unknown_topics"] == [{"topic": "oders", "nearest": "orders"}]
    assert (exact["waiting"], exact["patterns"]) == (None, ["bill.*"])


def test_the_command_line_says_whom_a_consumer_group_awaits(
    server: SyncGroupkeeperServer, member: Joiner
) -> None:
    a, b = member(server.port, "a"), member(server.port, "b")
    a.join()
    server.advance(1_000)  # the interval between two assignments
    b.join()
    shown, exact = described(server, "g")
    assert exact["waiting"]["awaited"] == [
        {"member_id": "a", "client_id": "client-a", "client_host": "/127.0.0.1"}
    ]
    assert exact["waiting"]["until_ms"] - exact["waiting"]["since_ms"] > 0
    (line,) = [line for line in shown if line.startswith("AWAITED")]
    assert line.startswith("AWAITED      a (client-a at /127.0.0.1), since 20")
    (told,) = a.client.call("consumer_group_describe", 1, group_ids=["g"])["groups"]
    assert told["error_message"] is None


def test_a_live_consumer_group_cannot_be_deleted_and_an_empty_one_can(
    daemon: Groupkeeper, member: Joiner
) -> None:
    a = member(daemon.port, "a", "deleted")
    a.join()
    with RawClient(daemon.port) as admin:

        def delete() -> int:
            answer = admin.call("delete_groups", 2, groups_names=["deleted"])
            return int(answer["results"][0]["error_code"])

        assert delete() == ErrorCode.NON_EMPTY_GROUP
        a.leave()
        assert delete() == 0
    gone = run("group", "describe", "deleted", "--server", daemon.bootstrap)
    assert gone.exit_code == 4


def test_a_live_consumer_group_is_not_restored_and_an_empty_one_is(
    daemon: Groupkeeper, member: Joiner, tmp_path: Path
) -> None:
    """DescribeGroups calls it Dead, which is also the word for a group without members."""
    a = member(daemon.port, "a", "restored")
    a.join()
    assert a.commit(5) == 0
    time.sleep(0.01)
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    time.sleep(0.01)
    assert a.commit(9) == 0
    plan = tmp_path / "plan.json"
    asked = ["--group", "restored", "--as-of", moment, "--store", store_of(daemon)]
    planned = run("offsets", "restore", *asked, "--server", daemon.bootstrap, "--out", plan)
    apply = ("restore", "--plan", plan, "--apply", "--server", daemon.bootstrap)
    for refused in (planned, run("offsets", *apply), run("pipeline", *apply)):
        assert refused.exit_code == 1, refused.output
        assert "the group has members, it is Stable" in refused.output
        assert "Nothing was changed" in refused.output
    assert a.beat()["error_code"] == 0
    a.leave()
    applied = run("offsets", *apply)
    assert applied.exit_code == 0, applied.output
    described = run("group", "describe", "restored", "--server", daemon.bootstrap, "-o", "json")
    (offset,) = json.loads(described.stdout)["offsets"]
    assert (offset["partition"], offset["committed"]) == (0, 5)


def hand_over(a: Member, b: Member) -> int:
    """Two members share a topic, the first one leaves, then the other. Return a partition of the
    second, which the first had before."""
    a.join()
    b.join()
    for _ in range(200):
        if len(a.partitions) == len(b.partitions) == 2:
            break
        time.sleep(0.02)
        a.acknowledge()
        b.acknowledge()
    (partition, *_) = b.partitions
    a.leave()
    for _ in range(200):
        if len(b.partitions) == 4:
            break
        time.sleep(0.02)
        b.acknowledge()
    b.leave()
    return partition


def test_the_command_line_tells_who_owned_a_partition_and_why_it_moved(
    daemon: Groupkeeper, member: Joiner
) -> None:
    a, b = member(daemon.port, "a", "moved"), member(daemon.port, "b", "moved")
    partition = hand_over(a, b)
    asked = ["--topic", "orders", "--partition", partition, "--store", store_of(daemon)]
    told = json.loads(run("group", "owners", "moved", *asked, "-o", "json").stdout)
    assert [
        (each["member_id"], each["client_id"], each["causes"], each["ended_by"]) for each in told
    ] == [
        ("a", "client-a", [{"reason": "member_join", "member_id": "a"}], "target_assignment"),
        ("b", "client-b", [{"reason": "member_join", "member_id": "b"}], "member_leave"),
    ]
    table = run("group", "owners", "moved", *asked).stdout.splitlines()
    assert table[0].split()[:2] == ["FROM", "UNTIL"]
    assert "member_join" in table[2]
    nobody = run("group", "owners", "moved", *asked[:2], "--partition", 99, *asked[4:])
    assert (nobody.exit_code, nobody.stdout) == (4, "")


class Sealing(Groupkeeper):
    """A daemon that soon deletes what it has sealed from its store."""

    entry = ("-m", "tests.helpers.daemon.failpoint_daemon")


def test_the_command_line_tells_who_owned_a_partition_out_of_sealed_files(
    tmp_path: Path, member: Joiner
) -> None:
    server = Sealing(
        tmp_path / "server",
        topics=TOPICS,
        settings={"log.segment_bytes": 20_000, "log.segment_ms": 1_000},
    )
    unused = tmp_path / "failpoint"
    server.environment = {"FOLD_AFTER": "10", "FAILPOINT_FILE": str(unused)}
    server.start()
    try:
        a, b = member(server.port, "a"), member(server.port, "b")
        partition = hand_over(a, b)
        other = member(server.port, "c", "other")
        other.join()
        for offset in range(1_000):
            live = read_events(store_of(server), live_only=True)
            if all(event["group"] != "g" for event in live):
                break
            assert other.commit(offset) == 0
            time.sleep(0.01)
        else:
            raise AssertionError("the events of the group stay in the store")
        asked = ["--topic", "orders", "--partition", partition, "--store", store_of(server)]
        told = json.loads(run("group", "owners", "g", *asked, "-o", "json").stdout)
        assert [(each["member_id"], each["ended_by"]) for each in told] == [
            ("a", "target_assignment"),
            ("b", "member_leave"),
        ]
    finally:
        server.stop()


def test_a_refused_pattern_is_in_the_log_and_in_a_scrape(
    daemon: Groupkeeper, member: Joiner
) -> None:
    for number in range(20):  # a program that is started again and again
        a = member(daemon.port, f"wrong-{number}", "patterns")
        answer = a.beat(
            rebalance_timeout=60_000, subscribed_topic_regex="orders(", topic_partitions=[]
        )
        assert answer["error_code"] == ErrorCode.INVALID_REGULAR_EXPRESSION
    a.join()  # its append has the event too
    tail = run("log", "tail", "--group", "patterns", "--store", store_of(daemon)).stdout
    line, *others = tail.splitlines()
    assert "pattern_refused" not in "".join(others)
    assert "pattern_refused" in line
    assert "'orders(': missing ): orders(  to client-wrong-0 at /127.0.0.1 as wrong-0" in line
    assert daemon.metric("groupkeeper_consumer_patterns_refused_total") == 20


def test_a_scrape_counts_what_consumer_groups_do(daemon: Groupkeeper, member: Joiner) -> None:
    def counted(name: str, **labels: str) -> float:
        shown = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
        return daemon.metric(f"groupkeeper_{name}{{{shown}}}" if labels else f"groupkeeper_{name}")

    names: tuple[tuple[str, dict[str, str]], ...] = (
        ("rebalances_total", {"reason": "member_join"}),
        ("rebalances_total", {"reason": "member_leave"}),
        ("consumer_targets_total", {"assignor": "uniform"}),
        ("group_conversions_total", {"to": "consumer"}),
        ("groups", {"type": "consumer", "state": "Stable"}),
        ("groups", {"type": "consumer", "state": "Empty"}),
        ("group_rebalance_duration_seconds_count", {}),
    )
    before = [counted(name, **labels) for name, labels in names]
    a = member(daemon.port, "a", "counted")
    with RawClient(daemon.port) as simple:  # a classic group, which the join converts
        rows = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        topics = [{"name": "orders", "partitions": rows}]
        simple.call(
            "offset_commit", 9, group_id="counted", generation_id_or_member_epoch=-1, topics=topics
        )
    a.join()
    live = [counted(name, **labels) for name, labels in names]
    assert [now - was for now, was in zip(live, before, strict=True)] == [1, 0, 1, 1, 1, 0, 1]
    a.leave()
    left = [counted(name, **labels) for name, labels in names]
    assert [now - was for now, was in zip(left, live, strict=True)] == [0, 1, 0, 0, -1, 1, 1]
    for work in ("assignment", "patterns"):
        assert (
            f'groupkeeper_consumer_work_waiting{{work="{work}"}} 0.0' in daemon.get("/metrics")[1]
        )
    assert "groupkeeper_consumer_patterns 0.0" in daemon.get("/metrics")[1]


# --- settings of one group, on a server whose clock the test moves ---


def configure(port: int, **configs: int) -> None:
    """Set configs of the group "g", as ``kafka-configs --alter`` does."""
    rows = [
        {"name": name.replace("_", "."), "config_operation": SET, "value": str(value)}
        for name, value in configs.items()
    ]
    with RawClient(port) as admin:
        resource = {"resource_type": GROUP, "resource_name": "g", "configs": rows}
        answer = admin.call("incremental_alter_configs", 1, resources=[resource])
        assert [each["error_code"] for each in answer["responses"]] == [0]


def test_a_live_member_learns_another_interval_with_its_next_heartbeat(server, member) -> None:
    a = member(server.port, "a")
    assert a.join()["heartbeat_interval"] != 7_000
    configure(server.port, consumer_heartbeat_interval_ms=7_000)
    assert a.beat()["heartbeat_interval"] == 7_000


def test_another_session_timeout_applies_from_the_next_heartbeat_on(server, member) -> None:
    a = member(server.port, "a")
    a.join()
    configure(server.port, consumer_session_timeout_ms=60_000)
    server.advance(40_000)
    assert a.beat()["error_code"] == 0
    server.advance(55_000)
    assert a.beat()["error_code"] == 0, "45 s would have ended it"
    configure(server.port, consumer_session_timeout_ms=45_000)
    assert a.beat()["error_code"] == 0
    server.advance(50_000)
    assert a.beat()["error_code"] != 0, "60 s would have kept it"


def test_another_assignment_interval_applies_to_the_next_epoch(server, member) -> None:
    a, b = member(server.port, "a"), member(server.port, "b")
    configure(server.port, consumer_assignment_interval_ms=15_000)
    a.join()
    b.join()
    server.advance(2_000)
    a.beat()
    assert len(a.partitions) == 4, "the interval has not passed"
    configure(server.port, consumer_assignment_interval_ms=1_000)
    a.beat()
    assert len(a.partitions) == 2
