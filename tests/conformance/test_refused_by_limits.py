"""Real clients whose requests a limit refuses with COORDINATOR_NOT_AVAILABLE.

They look the coordinator up again and repeat the request. That must stay a few requests a second,
and each client must be served once there is room.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.clients.ecosystem import Host, Unavailable
from tests.helpers.clients.members import ALL_CLIENTS, Hosts, hosts_for, wait_shared
from tests.helpers.daemon.faulty_server import wait_until
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.wire.raw_client import RawClient

NOT_AVAILABLE = "COORDINATOR_NOT_AVAILABLE"
WATCHED_S = 2.0
MOST_REQUESTS_A_SECOND = 60
"""Of one client, all its requests counted. Seen: librdkafka 2, aiokafka 20 to 30, kafka-python 20
to 40. An answer takes a millisecond, so a client that did not wait would send a thousand.
"""

PARTITIONS = 400
"""Their assignment is larger than what no limit refuses (1 KiB)."""
LEAST_BUDGET_BYTES = 33_554_432
"""The least ``kafka.max_buffered_bytes``, which is also the limit of all assignments."""
SMALL_BYTES = 1_024
"""What no limit refuses."""
LONG_MS = 1_800_000


def take_every_place(raw: RawClient) -> list[str]:
    part = {"partition_index": 0, "committed_offset": 1}
    values = {"topics": [{"name": "orders", "partitions": [part]}]}
    groups = [f"other-{number}" for number in range(len(ALL_CLIENTS))]
    for group_id in groups:
        raw.call("offset_commit", 8, group_id=group_id, generation_id_or_member_epoch=-1, **values)
    return groups


def fill_with_assignments(raw: RawClient) -> list[str]:
    """Store assignments until only what is never refused has room."""
    groups: list[str] = []
    size = 4_000_000
    while size > SMALL_BYTES:
        groups.append(f"other-{len(groups)}")
        if assign(raw, groups[-1], size):
            size = size * 3 // 4
    return groups


def assign(raw: RawClient, group_id: str, size: int) -> int:
    """Become the only member of a group, and store its assignment. Returns the error."""
    joined = raw.call(
        "join_group",
        3,
        group_id=group_id,
        session_timeout=LONG_MS,
        rebalance_timeout=LONG_MS,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    about = {name: joined[name] for name in ("generation_id", "member_id")}
    rows = [{"member_id": joined["member_id"], "assignment": bytes(size)}]
    reply = raw.call("sync_group", 2, group_id=group_id, **about, assignments=rows)
    return int(reply["error_code"])


class Limit(NamedTuple):
    """A limit, how others reach it, and the request that it refuses."""

    settings: dict[str, int]
    fill: Callable[[RawClient], list[str]]
    refuses: str


LIMITS = {
    "groups": Limit({"group.max_groups": len(ALL_CLIENTS)}, take_every_place, "JoinGroup"),
    "assignments": Limit({}, fill_with_assignments, "SyncGroup"),
}


class FullServer:
    """The daemon at one of its limits."""

    def __init__(self, directory: Path, limit: Limit) -> None:
        self.limit = limit
        settings = {
            "kafka.max_buffered_bytes": LEAST_BUDGET_BYTES,
            "group.max_session_timeout_ms": LONG_MS,
            **limit.settings,
        }
        self.daemon = Groupkeeper(
            directory,
            storage_url="memory:",
            topics={"orders": PARTITIONS},
            settings=settings,
        )
        self.daemon.start()
        with RawClient(self.daemon.port) as raw:
            self._others = limit.fill(raw)

    def requests(self) -> float:
        """Every request so far."""
        page = self.daemon.get("/metrics")[1]
        return sum(map(float, re.findall(r"^groupkeeper_requests_total\{.*\} (\S+)$", page, re.M)))

    def refused(self) -> float:
        """The refusals so far."""
        page = self.daemon.get("/metrics")[1]
        name = f'api="{self.limit.refuses}",error="{NOT_AVAILABLE}"'
        found = re.findall(rf"^groupkeeper_requests_total\{{{name}.*\}} (\S+)$", page, re.M)
        return sum(map(float, found))

    def requests_a_second(self) -> float:
        """Count them over a while in which they are refused."""
        before = self.refused()
        wait_until(lambda: self.refused() > before + 2, self.daemon)
        counted, since = self.requests(), time.monotonic()
        time.sleep(WATCHED_S)
        rate = (self.requests() - counted) / (time.monotonic() - since)
        wait_until(lambda: self.refused() > before + 3, self.daemon)
        return rate

    def make_room(self) -> None:
        """Remove the groups that are in the way."""
        with RawClient(self.daemon.port) as raw:
            for group_id in self._others:
                members = raw.call("describe_groups", 5, groups=[group_id])["groups"][0]["members"]
                leaving = [{"member_id": member["member_id"]} for member in members]
                if leaving:
                    raw.call("leave_group", 3, group_id=group_id, members=leaving)
            raw.call("delete_groups", 1, groups_names=self._others)


@pytest.fixture
def full(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FullServer]:
    server = FullServer(tmp_path / "server", LIMITS[request.param])
    try:
        yield server
    finally:
        server.daemon.stop()


@pytest.fixture
def hosts(full: FullServer) -> Iterator[Hosts]:
    yield from hosts_for(full.daemon.bootstrap)


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.parametrize("full", LIMITS, indirect=True)
def test_refused_clients_ask_a_few_times_a_second_and_are_served_once_there_is_room(
    full: FullServer, hosts: Hosts
) -> None:
    members = [hosts.shared(library).join(library, library, ["orders"]) for library in ALL_CLIENTS]
    rate = full.requests_a_second()
    assert rate <= MOST_REQUESTS_A_SECOND * len(members)
    full.make_room()
    for member in members:
        wait_shared([member], "orders", PARTITIONS)
        member.leave()


@pytest.mark.clients
@pytest.mark.parametrize(
    ("kind", "life"),
    [
        pytest.param("go", "franz-go/life-cycle", marks=pytest.mark.go),
        pytest.param("go", "kafka-go/life-cycle", marks=pytest.mark.go),
        pytest.param("go", "sarama-newest/consumer-group", marks=pytest.mark.go),
        pytest.param("java", "java-consumer/range", marks=pytest.mark.java),
        pytest.param("node", "kafkajs/life-cycle", marks=pytest.mark.node),
    ],
)
@pytest.mark.parametrize("full", ["groups"], indirect=True)
def test_so_does_a_client_of_another_language(kind: str, life: str, full: FullServer) -> None:
    host = Host(kind, full.daemon.bootstrap, [(life, "refused")])
    try:
        try:
            host.versions()
        except Unavailable as lack:
            pytest.skip(str(lack))
        rate = full.requests_a_second()
        assert rate <= MOST_REQUESTS_A_SECOND, f"{life}: {rate:.1f} requests a second"
        full.make_room()
        host.live(life, "refused")
    finally:
        host.end()
