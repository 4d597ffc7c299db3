"""``kill -9`` under load: nothing acknowledged is lost, no Stable group rebalances.

``KILLS`` says how often (3; 20 and more by hand), ``KILL_SEED`` repeats the choice of moments.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.clients.members import (
    ALL_CLIENTS,
    Hosts,
    Member,
    hosts_for,
    wait_shared,
    wait_until,
)
from tests.helpers.core.group_view import (
    NONE,
    REBALANCE_IN_PROGRESS,
    GroupView,
    committed,
    describe,
    heartbeat,
    view,
)
from tests.helpers.daemon.commit_loader import CommitLoader
from tests.helpers.daemon.failpoint_daemon import POINTS
from tests.helpers.daemon.servers import ArmedDaemon
from tests.helpers.storage.stored_offsets import stored_offsets
from tests.helpers.wire.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TOPIC, PARTITIONS = "orders", 12
KILLS = int(os.environ.get("KILLS", "3"))
SEED = int(os.environ.get("KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1_000_000)
MEMBERS_A_CLIENT = 4
MEMBER_RATE = 6
LOADERS, LOADER_RATE = 4, 200
"""With the members 870 commits a second are aimed at, so that a machine that is busy otherwise
still reaches 500. What it reached is printed and nobody's assertion."""
SESSION_MS = 45_000
"""Longer than the test is away: an evicted member would be the test's fault."""

pytestmark = [pytest.mark.conformance, pytest.mark.slow]


class FailpointDaemon(ArmedDaemon):
    """The daemon with a connection that can kill it at a chosen point."""

    entry = ("-m", "tests.helpers.daemon.failpoint_daemon")

    def __init__(
        self,
        directory: Path,
        topics: Mapping[str, int] = MappingProxyType({TOPIC: PARTITIONS}),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(directory, topics=topics, settings=settings)
        self.database = directory / "groupkeeper.db"
        self.environment["FOLD_AFTER"] = "200"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FailpointDaemon]:
    daemon = FailpointDaemon(tmp_path / "daemon")
    try:
        yield daemon
    finally:
        daemon.stop()


@pytest.fixture
def hosts(daemon: FailpointDaemon) -> Iterator[Hosts]:
    yield from hosts_for(daemon.bootstrap)


class World:
    """What is under load: for each client a group of four members, and simple groups."""

    def __init__(self, daemon: FailpointDaemon, hosts: Hosts) -> None:
        self.daemon = daemon
        self.hosts = {client: hosts.shared(client) for client in ALL_CLIENTS}
        self.groups: dict[str, list[Member]] = {}
        for client, host in self.hosts.items():
            group = f"stable-{client}"
            self.groups[group] = [
                host.join(f"{group}-{n}", group, [TOPIC], session_ms=SESSION_MS, heartbeat_ms=1000)
                for n in range(MEMBERS_A_CLIENT)
            ]
        for members in self.groups.values():
            wait_shared(members, TOPIC, PARTITIONS)
        self.loaders = [
            CommitLoader(
                daemon.port, [f"simple-{n}-{g}" for g in range(5)], TOPIC, PARTITIONS, LOADER_RATE
            )
            for n in range(LOADERS)
        ]

    @property
    def members(self) -> list[Member]:
        return [member for members in self.groups.values() for member in members]

    def acknowledged(self) -> int:
        """Commit requests that were answered, of loaders and real members."""
        return sum(x.count for x in self.loaders) + sum(m.ledger.count for m in self.members)

    def views(self, hints: dict[str, GroupView] | None = None) -> dict[str, GroupView]:
        """The Stable groups as they are described, with their generations."""
        with RawClient(self.daemon.port) as raw:
            return {
                group: view(
                    raw, group, generation_hint=(hints[group].generation or 1) if hints else 1
                )
                for group in self.groups
            }

    def offsets(self) -> dict[tuple[str, str, int], int]:
        """Every offset of every group, through OffsetFetch."""
        with RawClient(self.daemon.port) as raw:
            listed = raw.call("list_groups", 4)
            assert listed["error_code"] == NONE
            return {
                (group["group_id"], topic, partition): offset
                for group in listed["groups"]
                for (topic, partition), offset in committed(raw, group["group_id"]).items()
            }

    def check_acknowledged(self, found: dict[tuple[str, str, int], int]) -> None:
        """Compare one by one. Each committer is sequential: the last answered, or the one after."""
        for loader in self.loaders:
            loader.check(found)
        for member in self.members:
            for key, sent in member.ledger.sent.items():
                offset = found.get((member.group, *key))
                least = member.ledger.acknowledged.get(key)
                assert offset in sent or (offset is None and least is None), (member.name, key)
                assert least is None or (offset is not None and offset >= least), (member.name, key)

    def describe_all(self) -> dict[str, Any]:
        """Every group that is listed, described."""
        with RawClient(self.daemon.port) as raw:
            ids = sorted(g["group_id"] for g in raw.call("list_groups", 4)["groups"])
            return {group: _sorted_members(describe(raw, group)) for group in ids}


def _sorted_members(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "members": sorted(entry["members"], key=lambda m: str(m["member_id"]))}


def test_what_was_acknowledged_and_who_was_stable_survive_kill_9(
    daemon: FailpointDaemon, hosts: Hosts
) -> None:
    sys.stdout.write(f"KILL_SEED={SEED} KILLS={KILLS}\n")
    draw = random.Random(SEED)
    daemon.start()
    world = World(daemon, hosts)
    for member in world.members:
        member.load(MEMBER_RATE)
    for n, point in enumerate(_plan(draw)):
        _one_kill(world, draw, point, n)
    for member in world.members:
        member.load(0)
        # answered after its last commit, because a member does one thing at a time
        member.identity()
    found = world.offsets()
    for member in world.members:
        mine = {key: found[(member.group, *key)] for key in member.ledger.acknowledged}
        assert mine == member.ledger.acknowledged, member.name


def _plan(draw: random.Random) -> list[str]:
    """A random moment first, then failpoints, each kind before any comes again."""
    plan: list[str] = []
    while len(plan) < KILLS:
        plan += ["moment", *draw.sample(POINTS, len(POINTS))]
    return plan[:KILLS]


def _one_kill(world: World, draw: random.Random, point: str, n: int) -> None:
    daemon, hosts = world.daemon, list(world.hosts.values())
    count = draw.randrange(1, 120)
    where = f"kill {n}: {point}, {count}"
    seen = {member.name: member.rebalances for member in world.members}
    before = world.views()
    moving = MovingGroup(daemon.port, f"moving-{n}", reaches_sync=draw.random() < 0.5)

    began, first = time.monotonic(), world.acknowledged()
    for loader in world.loaders:
        loader.start()
    wait_until(lambda: world.acknowledged() > first + 500, hosts, f"{where}: load")
    if point == "moment":
        last = world.acknowledged() + 10 * count
        wait_until(lambda: world.acknowledged() >= last, hosts, where)
        daemon.kill()
    else:
        daemon.arm(point, count)
        wait_until(daemon.is_dead, hosts, where)
    assert daemon.wait() == -signal.SIGKILL, daemon.log[-3000:]
    acknowledged, took = world.acknowledged() - first, time.monotonic() - began
    sys.stdout.write(f"{where}: {acknowledged} commits, {acknowledged / took:.0f} a second\n")

    for loader in world.loaders:
        loader.stop()
    for host in hosts:
        host.pause()  # no member sends anything while the test reads the state
    daemon.start()
    found, described = world.offsets(), world.describe_all()
    world.check_acknowledged(found)
    assert stored_offsets(daemon.database) == found, f"{where}: the file"
    assert world.views(before) == before, where
    daemon.kill()
    daemon.start()
    assert world.offsets() == found, f"{where}: a second start changed an offset"
    assert world.describe_all() == described, f"{where}: a second start changed a group"
    for host in hosts:
        host.resume()

    counts = {member.name: member.ledger.count for member in world.members}
    wait_until(
        lambda: all(m.ledger.count > counts[m.name] for m in world.members),
        hosts,
        f"{where}: every member commits again",
    )
    assert {member.name: member.rebalances for member in world.members} == seen, where
    assert world.views(before) == before, where
    moving.finish(daemon.port)


class MovingGroup:
    """A group with one member that a second one joins: in mid-rebalance when the process dies."""

    def __init__(self, port: int, group: str, *, reaches_sync: bool) -> None:
        self.group = group
        self._connect(port)
        joined = self.first.call("join_group", 3, **self._join(""))
        assert joined["error_code"] == NONE
        self.member_id, self.generation = joined["member_id"], joined["generation_id"]
        self._sync_as_leader(self.generation, [self.member_id])
        parked = self._newcomer()
        if reaches_sync:
            _, member_id = self._rejoin(parked)
            # The rebalance is parked as well: the leader does not send its assignment.
            self.second.send("sync_group", 3, **self._sync(self.generation + 1, member_id))

    def finish(self, port: int) -> None:
        """As in Kafka the unfinished rebalance is forgotten; the next one takes both in.

        Were the rebalance timeout waited for, the first member would be out in the end.
        """
        self._close()
        self._connect(port)
        assert heartbeat(self.first, self.group, self.member_id, self.generation) == NONE
        members, newcomer = self._rejoin(self._newcomer())
        assert members == {self.member_id, newcomer}
        generation = self.generation + 1
        parked = self.second.send("sync_group", 3, **self._sync(generation, newcomer))
        self._sync_as_leader(generation, [self.member_id, newcomer])
        answer = self.second.receive("sync_group", 3, parked)
        assert (answer["error_code"], answer["assignment"]) == (NONE, newcomer.encode())
        for client, member_id in ((self.first, self.member_id), (self.second, newcomer)):
            assert heartbeat(client, self.group, member_id, generation) == NONE
        self._close()

    def _connect(self, port: int) -> None:
        self.first, self.second = RawClient(port), RawClient(port)

    def _close(self) -> None:
        self.first.close()
        self.second.close()

    def _newcomer(self) -> int:
        """The second member's join is parked, for the first has not joined again yet."""
        parked = self.second.send("join_group", 3, **self._join(""))
        for _ in range(1000):
            code = heartbeat(self.first, self.group, self.member_id, self.generation)
            if code == REBALANCE_IN_PROGRESS:
                return parked
            assert code == NONE
            time.sleep(0.01)
        raise AssertionError(f"{self.group}: the newcomer starts no rebalance")

    def _rejoin(self, parked: int) -> tuple[set[str], str]:
        """The first member, still the leader, learns all members; the second its own id."""
        again = self.first.call("join_group", 3, **self._join(self.member_id))
        newcomer = self.second.receive("join_group", 3, parked)
        assert again["error_code"] == newcomer["error_code"] == NONE
        assert again["generation_id"] == newcomer["generation_id"] == self.generation + 1
        assert again["leader"] == newcomer["leader"] == self.member_id
        return {member["member_id"] for member in again["members"]}, newcomer["member_id"]

    def _sync_as_leader(self, generation: int, members: list[str]) -> None:
        assignments = [{"member_id": m, "assignment": m.encode()} for m in members]
        answer = self.first.call(
            "sync_group", 3, **self._sync(generation, self.member_id), assignments=assignments
        )
        assert (answer["error_code"], answer["assignment"]) == (NONE, self.member_id.encode())

    def _join(self, member_id: str) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": SESSION_MS,
            "member_id": member_id,
            "protocol_type": "test",
            "protocols": [{"name": "any", "metadata": b""}],
        }

    def _sync(self, generation: int, member_id: str) -> dict[str, Any]:
        return {"group_id": self.group, "generation_id": generation, "member_id": member_id}
