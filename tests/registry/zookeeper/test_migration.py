"""Offsets of a registry's groups go to a coordinator and back: the daemon, and a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.cli.zookeeper.registry_target import RegistryTarget
from groupkeeper.pipeline.restore.cluster import ClusterEndpoint
from groupkeeper.pipeline.restore.plan import Committed, Partition
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.daemon.servers import Groupkeeper

pytestmark = pytest.mark.registry

TOPICS = {"orders": 4, "clicks": 2, "orders-eu": 4}


@pytest.fixture(scope="module", params=["daemon", "kafka"])
def coordinator(request, tmp_path_factory) -> Iterator[str]:
    """HOST:PORT of a coordinator with the topics."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    kind: Any = RealKafka if request.param == "kafka" else Groupkeeper
    server = kind(folder, topics=TOPICS)
    server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        server.stop()


@pytest.fixture
def group(request) -> str:
    """A group of the test's own."""
    return request.node.originalname.replace("_", "-")


@pytest.fixture
def registry(servers) -> Iterator[RegistryTarget]:
    """The registry, as a plan sees it."""
    with RegistryTarget(servers, None, 20.0) as registry:
        yield registry


def stored(registry: RegistryTarget, group: str) -> dict[tuple[str, int], int]:
    return {tuple(at): each.offset for at, each in registry.offsets([group])[group].items()}


def committed(coordinator: str, group: str) -> dict[Partition, Committed]:
    with ClusterEndpoint(coordinator).open("test") as cluster:
        return cluster.offsets([group])[group]


def commit(coordinator: str, group: str, offsets: dict[tuple[str, int], Committed]) -> None:
    with ClusterEndpoint(coordinator).open("test") as cluster:
        cluster.commit(group, {Partition(*at): value for at, value in offsets.items()})


def store(registry: RegistryTarget, group: str, offsets: dict[tuple[str, int], int]) -> None:
    registry.commit(group, {Partition(*at): Committed(n) for at, n in offsets.items()})


class Command:
    """``groupkeeper zookeeper migrate`` in one folder."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._servers = servers
        self._plan = folder / "plan.json"

    def __call__(self, *arguments: str, code: int = 0) -> str:
        given = ["zookeeper", "migrate", "-z", self._servers, *arguments]
        result = CliRunner().invoke(app, given, prog_name="groupkeeper")
        assert result.exit_code == code, result.output
        return result.output

    def plans(self, *arguments: str, code: int = 0) -> str:
        self._plan.unlink(missing_ok=True)
        return self(*arguments, "--out", str(self._plan), code=code)

    def with_plan(self, *arguments: str, code: int = 0) -> str:
        return self("--plan", str(self._plan), *arguments, code=code)


@pytest.fixture
def migrate(servers, tmp_path) -> Command:
    return Command(servers, tmp_path)


def test_offsets_go_to_the_coordinator_and_an_undo_takes_them_back(
    coordinator, registry, migrate, group
):
    store(registry, group, {("orders", 0): 41, ("orders", 3): 0, ("clicks", 1): 7})
    commit(coordinator, group, {("orders", 0): Committed(5, metadata="by hand")})
    before = committed(coordinator, group)
    shown = migrate.plans("--group", group, "--to", coordinator, "--data", "none")
    assert "3 of 3 partitions change" in shown
    assert "Nothing was changed. To apply it: groupkeeper zookeeper migrate --plan" in shown
    assert committed(coordinator, group) == before
    assert "NOT as planned" in migrate.with_plan("--verify", code=1)
    assert "1 group changed, and read back as planned" in migrate.with_plan("--apply")
    after = {tuple(at): each.offset for at, each in committed(coordinator, group).items()}
    assert after == stored(registry, group)
    assert "1 group already as planned" in migrate.with_plan("--apply")  # twice is once
    verified = migrate.with_plan("--verify", "--to", coordinator)
    assert "unchanged since the plan was made" in verified
    assert "changed, and read back" in migrate.with_plan("--undo", "--apply")
    assert committed(coordinator, group) == before


def test_what_moved_on_at_the_source_is_found(coordinator, registry, migrate, group):
    store(registry, group, {("orders", 0): 41})
    migrate.plans("--group", group, "--to", coordinator, "--data", "none", "--apply")
    store(registry, group, {("orders", 0): 42})
    told = migrate.with_plan("--verify", "--to", coordinator, code=1)
    assert "orders-0 was 41, is 42" in told


def test_a_library_that_stored_the_last_message_is_shifted(coordinator, registry, migrate, group):
    store(registry, group, {("orders", 0): 41, ("orders", 1): -1})
    told = migrate.plans(
        *("--group", group, "--to", coordinator, "--data", "none", "--shift", "1", "--apply")
    )
    assert f"1 offset left out ({group}: orders-1: -1 is no position)" in told
    assert committed(coordinator, group) == {Partition("orders", 0): Committed(42)}
    verified = migrate.with_plan("--verify", "--to", coordinator, "--shift", "1")
    assert "unchanged since the plan was made" in verified
    # the way back gives the library what it understands
    migrate.plans("--group", group, "--from", coordinator, "--shift", "1", "--apply")
    assert stored(registry, group) == {("orders", 0): 41, ("orders", 1): -1}


def test_offsets_come_back_to_the_registry(coordinator, registry, migrate, group, servers):
    values = {("orders", 0): Committed(41, metadata="x"), ("clicks", 1): Committed(2**40)}
    commit(coordinator, group, values)
    store(registry, group, {("orders", 0): 5, ("orders", 2): 9})
    shown = migrate.plans("--group", group, "--from", coordinator)
    assert f"zookeeper://{servers}" in shown
    assert stored(registry, group) == {("orders", 0): 5, ("orders", 2): 9}
    migrate.with_plan("--apply")
    wanted = {("clicks", 1): 2**40, ("orders", 0): 41, ("orders", 2): 9}
    assert stored(registry, group) == wanted  # what only the target has stays
    assert "as planned" in migrate.with_plan("--verify", "--from", coordinator)
    migrate.with_plan("--undo", "--apply")
    assert stored(registry, group) == {("orders", 0): 5, ("orders", 2): 9}


def test_there_and_back_nothing_has_changed(coordinator, registry, migrate, group):
    store(registry, group, {("orders", 0): 41, ("clicks", 0): 0})
    before = stored(registry, group)
    migrate.plans("--group", group, "--to", coordinator, "--data", "none", "--apply")
    shown = migrate.plans("--group", group, "--from", coordinator, "--apply")
    assert "there was nothing to do" in shown
    assert stored(registry, group) == before


def test_a_topic_gets_the_targets_name(coordinator, registry, migrate, group):
    store(registry, group, {("orders", 0): 41})
    route = ("--group", group, "--to", coordinator, "--data", "none")
    migrate.plans(*route, "--map", "orders=orders-eu", "--apply")
    assert committed(coordinator, group) == {Partition("orders-eu", 0): Committed(41)}
    assert "unchanged since" in migrate.with_plan("--verify", "--to", coordinator)


def test_a_running_instance_holds_up_the_way_back(coordinator, registry, migrate, group):
    store(registry, group, {("orders", 0): 5})
    commit(coordinator, group, {("orders", 0): Committed(41)})
    migrate.plans("--group", group, "--from", coordinator)
    instance = registry._registry.group(group).instance("a")
    registry._await(instance.register(["orders"]))
    told = migrate.with_plan("--apply", code=1)
    assert "1 group REFUSED" in told
    assert stored(registry, group) == {("orders", 0): 5}
    registry._await(instance.deregister())
    migrate.with_plan("--apply")
    assert stored(registry, group) == {("orders", 0): 41}


def test_members_at_the_source_are_warned_of(coordinator, registry, migrate, group):
    store(registry, group, {("orders", 0): 5})
    registry._await(registry._registry.group(group).instance("a").register(["orders"]))
    told = migrate.plans("--group", group, "--to", coordinator, "--data", "none")
    assert "1 group has members at the source" in told


def test_an_offset_beyond_the_log_is_clamped_to_it(coordinator, registry, migrate, group):
    store(registry, group, {("orders", 0): 41})
    content = json.loads(migrate.plans("--group", group, "--to", coordinator, "-o", "json"))
    (change,) = content["plan"]["groups"][0]["changes"]
    keeps_records = content["plan"]["data"] == coordinator
    assert change["target"]["offset"] == (0 if keeps_records else 41)


def test_an_unknown_topic_is_left_unchanged_at_the_coordinator(
    coordinator, registry, migrate, group
):
    store(registry, group, {("nowhere", 0): 41, ("orders", 0): 1})
    told = migrate.plans("--group", group, "--to", coordinator, "--data", "none", "--apply")
    assert "no such partition, unchanged" in told
    assert committed(coordinator, group) == {Partition("orders", 0): Committed(1)}


def test_without_an_offset_to_move_it_exits_4(coordinator, registry, migrate, group):
    told = migrate.plans("--group", group, "--to", coordinator, code=4)
    assert f"no group like {group} has an offset to move" in told
