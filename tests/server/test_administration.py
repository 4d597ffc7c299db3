"""Administration of the real daemon, request by request (docs/spec/offsets.md,
docs/spec/administration.md), and what stays in its log: the last value of whatever went.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from groupkeeper import read_events
from tests.helpers.daemon.daemon import Daemon
from tests.helpers.wire.raw_client import RawClient

SESSION = "consumer.session.timeout.ms"
TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE = 0, 1
CHECK_MS = 300_000


def a_daemon(tmp_path_factory: pytest.TempPathFactory, check_ms: int) -> Iterator[Daemon]:
    daemon = Daemon(
        tmp_path_factory.mktemp("daemon"),
        topics={"orders": 12, "payments": 4},
        settings={"offsets.retention_check_interval_ms": check_ms},
    )
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all but expiry: a pass takes groups that nothing holds yet."""
    yield from a_daemon(tmp_path_factory, CHECK_MS)


@pytest.fixture
def expiring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that looks for expired offsets ten times a second."""
    yield from a_daemon(tmp_path_factory, 100)


@pytest.fixture
def g(request: pytest.FixtureRequest) -> str:
    """The name of a group of the test's own; others begin with it."""
    return str(request.node.name)


@pytest.fixture
def raw(daemon: Daemon) -> Iterator[RawClient]:
    """A connection that sends what the test says."""
    with connect(daemon) as client:
        yield client


def connect(daemon: Daemon) -> RawClient:
    return RawClient(int(daemon.bootstrap.rpartition(":")[2]))


def commit(
    raw: RawClient,
    group: str,
    offset: int,
    topic: str = "orders",
    partitions: int = 1,
    *,
    version: int = 7,
    **more: Any,
) -> list[int]:
    """Commit as an administrator unless more is said; returns the errors of the partitions."""
    parts = [
        {
            "partition_index": n,
            "committed_offset": offset + n,
            "committed_leader_epoch": 3,
            "committed_metadata": f"note {n}",
        }
        for n in range(partitions)
    ]
    fields = {"group_id": group, "generation_id_or_member_epoch": -1, "generation_id": -1, **more}
    topics = [{"name": topic, "partitions": parts}]
    reply = raw.call("offset_commit", version, topics=topics, **fields)
    return [p["error_code"] for t in reply["topics"] for p in t["partitions"]]


def stored(raw: RawClient, group: str) -> dict[tuple[str, int], int]:
    """Every committed offset of a group."""
    reply = raw.call("offset_fetch", 7, group_id=group, topics=None, require_stable=False)
    assert reply["error_code"] == 0
    return {
        (t["name"], p["partition_index"]): p["committed_offset"]
        for t in reply["topics"]
        for p in t["partitions"]
    }


def a_member(raw: RawClient, group: str, **more: Any) -> str:
    """A Stable group of one member, in generation 1, that subscribes to orders."""
    joined = raw.call(
        "join_group",
        5,
        group_id=group,
        session_timeout=20_000,
        rebalance_timeout=20_000,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b"\0\0\0\0\0\1\0\6orders\0\0\0\0"}],
        **{"member_id": "", "group_instance_id": None, **more},
    )
    if joined["error_code"] == 79:
        return a_member(raw, group, member_id=joined["member_id"])
    assert joined["error_code"] == 0
    member_id = str(joined["member_id"])
    raw.call(
        "sync_group",
        3,
        group_id=group,
        generation_id=joined["generation_id"],
        member_id=member_id,
        group_instance_id=more.get("group_instance_id"),
        assignments=[{"member_id": member_id, "assignment": b"mine"}],
    )
    return member_id


def alter(raw: RawClient, group: str, **configs: str | None) -> int:
    """Change configs of a group; underscores stand for dots, None goes back. Returns the error."""
    changes = [
        {
            "name": name.replace("_", "."),
            "config_operation": DELETE if value is None else SET,
            "value": value,
        }
        for name, value in configs.items()
    ]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": changes}
    reply = raw.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    return int(reply["responses"][0]["error_code"])


def described(raw: RawClient, kind: int, name: str) -> dict[str, tuple[str, int]]:
    """Value and source of each config of a resource."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    (result,) = raw.call("describe_configs", 4, resources=[resource])["results"]
    assert result["error_code"] == 0
    return {c["name"]: (c["value"], c["config_source"]) for c in result["configs"]}


def listed(raw: RawClient, prefix: str) -> dict[str, tuple[str, str, str]]:
    """Protocol type, state and type of the groups whose names begin so."""
    reply = raw.call("list_groups", 5)
    assert reply["error_code"] == 0
    return {
        group["group_id"]: (group["protocol_type"], group["group_state"], group["group_type"])
        for group in reply["groups"]
        if group["group_id"].startswith(prefix)
    }


def until(daemon: Daemon, kind: str, group: str) -> dict[str, Any]:
    """Wait for the one event of a kind of a group."""
    for _ in range(200):
        found = [e for e in events(daemon) if e["kind"] == kind and e["group"] == group]
        if found:
            (event,) = found
            return event
        time.sleep(0.05)
    raise AssertionError(f"no {kind} of {group}: {daemon.log}")


def events(daemon: Daemon) -> list[dict[str, Any]]:
    return list(read_events(daemon.directory / "groupkeeper.db"))


def lost(event: dict[str, Any]) -> dict[tuple[str, int], tuple[int, int, str]]:
    """The values that an event of loss keeps."""
    assert all(t["topic_id"] for t in event["topics"])
    assert all(p["commit_time_ms"] > 0 for t in event["topics"] for p in t["partitions"])
    return {
        (t["topic"], p["partition"]): (p["offset"], p["leader_epoch"], p["metadata"])
        for t in event["topics"]
        for p in t["partitions"]
    }


# --- What went stays readable


def test_expired_offsets_stay_in_the_log_and_their_group_goes(expiring: Daemon, g: str) -> None:
    with connect(expiring) as raw:
        assert commit(raw, f"{g}-kept", 7) == [0]
        assert commit(raw, g, 10, partitions=2, version=2, retention_time=1) == [0, 0]
        event = until(expiring, "offset_expired", g)
        values = {("orders", 0): (10, -1, "note 0"), ("orders", 1): (11, -1, "note 1")}
        assert lost(event) == values
        assert until(expiring, "group_deleted", g)["reason"] == "expired"
        assert (stored(raw, g), stored(raw, f"{g}-kept")) == ({}, {("orders", 0): 7})
        assert set(listed(raw, g)) == {f"{g}-kept"}


def test_deleted_offsets_stay_in_the_log(daemon: Daemon, raw: RawClient, g: str) -> None:
    commit(raw, g, 10, partitions=3)
    parts = [{"partition_index": n} for n in (0, 2, 12)]
    topics = [{"name": "orders", "partitions": parts}]
    reply = raw.call("offset_delete", 0, group_id=g, topics=topics)
    assert reply["error_code"] == 0
    (topic,) = reply["topics"]  # what is unknown comes first
    assert [(p["partition_index"], p["error_code"]) for p in topic["partitions"]] == [
        (12, 3),
        (0, 0),
        (2, 0),
    ]
    assert stored(raw, g) == {("orders", 1): 11}
    event = until(daemon, "offset_deleted", g)
    assert (event["reason"], event["client_id"]) == ("deleted", "raw-client")
    assert lost(event) == {("orders", 0): (10, 3, "note 0"), ("orders", 2): (12, 3, "note 2")}


def test_the_offsets_of_a_deleted_group_stay_in_the_log(
    daemon: Daemon, raw: RawClient, g: str
) -> None:
    commit(raw, g, 10, partitions=2)
    commit(raw, g, 20, "payments")
    busy, absent = f"{g}-busy", f"{g}-absent"
    member_id = a_member(raw, busy)
    for version in range(3):
        reply = raw.call("delete_groups", version, groups_names=[busy, absent, busy])
        errors = {r["group_id"]: r["error_code"] for r in reply["results"]}
        assert (errors, len(reply["results"])) == ({busy: 68, absent: 69}, 2)
    reply = raw.call("delete_groups", 2, groups_names=[g])
    assert [r["error_code"] for r in reply["results"]] == [0]
    assert set(listed(raw, g)) == {busy}
    event = until(daemon, "offset_deleted", g)
    assert (event["reason"], event["api"]) == ("group_deleted", "DeleteGroups")
    assert lost(event) == {
        ("orders", 0): (10, 3, "note 0"),
        ("orders", 1): (11, 3, "note 1"),
        ("payments", 0): (20, 3, "note 0"),
    }
    left = raw.call("leave_group", 3, group_id=busy, members=[{"member_id": member_id}])
    assert [m["error_code"] for m in left["members"]] == [0]
    reply = raw.call("delete_groups", 2, groups_names=[busy])
    assert [r["error_code"] for r in reply["results"]] == [0]


def test_the_offsets_of_a_deleted_topic_go_at_once_and_stay_in_the_log(
    daemon: Daemon, raw: RawClient, g: str
) -> None:
    new = {"name": "passing", "num_partitions": 4, "replication_factor": 1}
    assert raw.call("create_topics", 5, topics=[new])["topics"][0]["error_code"] == 0
    groups = (f"{g}-a", f"{g}-b")
    for group in groups:
        commit(raw, group, 10)
        commit(raw, group, 20, "passing")
    reply = raw.call("delete_topics", 5, topic_names=["passing"], timeout=5_000)
    assert [t["error_code"] for t in reply["responses"]] == [0]
    for group in groups:
        event = until(daemon, "offset_deleted", group)
        assert event["reason"] == "topic_deleted"
        assert lost(event) == {("passing", 0): (20, 3, "note 0")}
        assert stored(raw, group) == {("orders", 0): 10}
    assert raw.call("create_topics", 5, topics=[new])["topics"][0]["error_code"] == 0
    commit(raw, groups[0], 1, "passing")
    assert stored(raw, groups[0]) == {("orders", 0): 10, ("passing", 0): 1}


# --- Configs of groups


def test_configs_of_groups_survive_a_kill_and_do_what_they_say(daemon: Daemon, g: str) -> None:
    other, gone = f"{g}-other", f"{g}-gone"
    with connect(daemon) as raw:
        assert alter(raw, g, commit_monotonic="true", offsets_retention_minutes="5") == 0
        assert alter(raw, other, consumer_session_timeout_ms="46000") == 0
        assert alter(raw, other, nowhere="1") == 40
        assert alter(raw, gone, commit_monotonic="true") == 0
        assert alter(raw, gone, commit_monotonic=None) == 0
    daemon.kill()
    daemon.start()
    with connect(daemon) as raw:
        configs = described(raw, GROUP, g)
        assert configs["commit.monotonic"] == ("true", 8)
        assert configs["offsets.retention.minutes"] == ("5", 8)
        assert configs["initial.rebalance.delay.ms"] == ("0", 4)
        assert described(raw, GROUP, other)[SESSION] == ("46000", 8)
        resources = raw.call("list_config_resources", 1, resource_types=[GROUP])
        assert {r["resource_name"] for r in resources["config_resources"]} == {g, other}
        for group, rewound in ((g, [28]), (other, [0])):
            here = {"member_id": a_member(raw, group), "generation_id_or_member_epoch": 1}
            assert commit(raw, group, 10, **here) == [0]
            assert commit(raw, group, 9, **here) == rewound
            assert commit(raw, group, 11, **here) == [0]
    trail = [e for e in events(daemon) if e["kind"] == "admin_action" and e["group"] == gone]
    assert [e["detail"] for e in trail] == ["commit.monotonic=true", "-commit.monotonic"]


def test_the_broker_tells_what_its_settings_file_says(raw: RawClient) -> None:
    configs = described(raw, BROKER, "1")
    assert configs["offsets.retention.check.interval.ms"] == (str(CHECK_MS), 4)
    assert configs["group.initial.rebalance.delay.ms"] == ("0", 4)
    assert configs["offsets.retention.minutes"] == ("10080", 5)
    assert described(raw, TOPIC, "orders")["cleanup.policy"] == ("delete", 5)


# --- Listing and describing


def test_groups_are_listed_by_state_and_type(raw: RawClient, g: str) -> None:
    stable, simple = f"{g}-stable", f"{g}-simple"
    a_member(raw, stable)
    commit(raw, "", 1)
    commit(raw, simple, 1)
    assert listed(raw, g) == {
        stable: ("consumer", "Stable", "classic"),
        simple: ("", "Empty", "classic"),
    }
    assert listed(raw, "")[""] == ("", "Empty", "classic")
    for states, types, found in (
        ([" sTable"], [], {stable}),
        (["Empty", "Stable"], ["CLASSIC"], {stable, simple}),
        (["Empty"], [" classic"], set()),
        ([], ["consumer"], set()),
        (["nonsense"], [], set()),
    ):
        reply = raw.call("list_groups", 5, states_filter=states, types_filter=types)
        assert reply["error_code"] == 0
        mine = {i["group_id"] for i in reply["groups"] if i["group_id"].startswith(g)}
        assert mine == found
    for version in range(5):
        reply = raw.call("list_groups", version)
        assert {"", stable, simple} <= {i["group_id"] for i in reply["groups"]}


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described_in_every_version(raw: RawClient, g: str, version: int) -> None:
    member_id = a_member(raw, g, group_instance_id="i-1")
    reply = raw.call(
        "describe_groups",
        version,
        groups=[g, f"{g}-absent", g],
        include_authorized_operations=True,
    )
    group, absent, again = reply["groups"]
    assert group == again
    assert (group["group_state"], group["protocol_data"]) == ("Stable", "range")
    (member,) = group["members"]
    assert (member["member_id"], member["member_assignment"]) == (member_id, b"mine")
    assert member.get("group_instance_id") == ("i-1" if version >= 4 else None)
    assert (absent["group_state"], absent["error_code"]) == ("Dead", 69 if version >= 6 else 0)
    if version >= 3:
        assert group["authorized_operations"] == 3400


def test_many_coordinators_are_found_at_once(raw: RawClient) -> None:
    keys = ["a", "", "b", "a"]
    reply = raw.call("find_coordinator", 4, key_type=0, coordinator_keys=keys)
    found = [(c["key"], c["error_code"], c["error_message"]) for c in reply["coordinators"]]
    assert found == [(key, 0, "") for key in keys]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_an_administrator_removes_a_static_member_by_its_instance_id(
    daemon: Daemon, raw: RawClient, g: str, version: int
) -> None:
    a_member(raw, g, group_instance_id="i-1")
    members = [
        {"member_id": "", "group_instance_id": name, "reason": "by hand"} for name in ("i-1", "i-2")
    ]
    reply = raw.call("leave_group", version, group_id=g, members=members)
    assert reply["error_code"] == 0
    found = [(m["group_instance_id"], m["error_code"]) for m in reply["members"]]
    assert found == [("i-1", 0), ("i-2", 25)]
    event = until(daemon, "member_leave", g)
    assert event["reason"] == ("by hand" if version >= 5 else None)
    assert listed(raw, g)[g] == ("consumer", "Empty", "classic")
