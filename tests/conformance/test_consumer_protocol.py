"""Real clients of the new protocol (KIP-848), to which the coordinator assigns.

What takes minutes is in ``test_consumer_protocol_long.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.clients.histories import check_offsets, check_owners, check_undisturbed
from tests.helpers.clients.members import Hosts, Member, hosts_for, wait_shared, wait_until
from tests.helpers.core.group_view import committed
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.wire.raw_client import RawClient
from tests.soak.faults import foreign_writer

TOPIC, PARTITIONS = "orders", 12
SESSION_MS = 6_000
SETTINGS = {
    "group.consumer_session_timeout_ms": SESSION_MS,
    "group.consumer_min_session_timeout_ms": SESSION_MS,
    "group.consumer_heartbeat_interval_ms": 500,
    "group.consumer_min_heartbeat_interval_ms": 500,
}
LIBRARIES = (
    "librdkafka",
    pytest.param("java", marks=[pytest.mark.clients, pytest.mark.java]),
    pytest.param("franz-go", marks=[pytest.mark.clients, pytest.mark.go]),
)
ALL = ("librdkafka", "java", "franz-go")

pytestmark = pytest.mark.conformance


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Groupkeeper]:
    server = Groupkeeper(tmp_path / "server", topics={TOPIC: PARTITIONS}, settings=SETTINGS)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def hosts(server: Groupkeeper) -> Iterator[Hosts]:
    """Hosts of real clients. In no test may a partition have two owners at once."""
    for hosts in hosts_for(server.bootstrap):
        yield hosts
        check_owners(hosts.all())


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def join(hosts: Hosts, library: str, name: str, **options: object) -> Member:
    host = hosts.shared(library)
    return host.join(name, "g", [TOPIC], protocol="consumer", **options)


def leave(*members: Member) -> None:
    for member in members:
        member.leave()


def changes(member: Member) -> int:
    """How often it gained or gave up anything; franz-go also tells of nothing."""
    told = member.events("assigned", "revoked", "lost")
    return sum(bool(each.get("gained") or each.get("revoked") or each.get("lost")) for each in told)


def offsets_of(server: Groupkeeper, group: str) -> dict[tuple[str, int], int]:
    with RawClient(server.port) as raw:
        return committed(raw, group)


def test_members_come_and_go_and_every_partition_has_one_of_them(hosts, library):
    first = join(hosts, library, "a")
    wait_shared([first], TOPIC, PARTITIONS)
    others = [join(hosts, library, name) for name in "bcd"]
    wait_shared([first, *others], TOPIC, PARTITIONS)
    wait_until(
        lambda: [len(member.held) for member in (first, *others)] == [3, 3, 3, 3],
        hosts.all(),
        "three partitions for each",
    )
    leave(*others)
    wait_shared([first], TOPIC, PARTITIONS)
    leave(first)


def test_a_killed_members_partitions_go_to_the_others(hosts, library):
    survivor = join(hosts, library, "a")
    doomed = hosts.fresh(library)
    victim = doomed.join("victim", "g", [TOPIC], protocol="consumer")
    wait_shared([survivor, victim], TOPIC, PARTITIONS)
    doomed.kill9()
    wait_shared([survivor], TOPIC, PARTITIONS)
    leave(survivor)


@pytest.mark.parametrize("library", LIBRARIES[:2], indirect=True)
def test_a_static_member_that_comes_back_in_time_has_what_it_had(hosts, library):
    """The other one keeps its partitions, and notices nothing.

    Not with franz-go 1.22.2: it leaves without its instance id, which Kafka refuses (``leave848``).
    """
    stays, static = join(hosts, library, "a"), join(hosts, library, "b", instance="one")
    wait_shared([stays, static], TOPIC, PARTITIONS)
    wait_until(lambda: len(stays.held) == 6, hosts.all(), "one half for each")
    had, moved = static.held, changes(stays)
    leave(static)
    again = join(hosts, library, "b2", instance="one")
    wait_shared([stays, again], TOPIC, PARTITIONS)
    assert again.held == had
    assert changes(stays) == moved
    leave(stays, again)


def test_what_a_member_commits_the_next_one_resumes_from(hosts, library):
    first = join(hosts, library, "a")
    wait_shared([first], TOPIC, PARTITIONS)
    assert first.commit({f"{TOPIC}:{number}": 100 + number for number in range(PARTITIONS)})["ok"]
    leave(first)
    second = join(hosts, library, "b")
    wait_shared([second], TOPIC, PARTITIONS)
    assert second.committed() == {f"{TOPIC}:{n}": 100 + n for n in range(PARTITIONS)}
    leave(second)


def test_a_pattern_finds_topics_that_appear(server, hosts, library):
    member = hosts.shared(library).join("a", "g", ["^orders.*"], protocol="consumer")
    wait_shared([member], TOPIC, PARTITIONS)
    with RawClient(server.port) as raw:
        topics = [{"name": "orders.eu", "num_partitions": 2, "replication_factor": 1}]
        reply = raw.call("create_topics", 5, topics=topics, timeout=30_000)
    assert {topic["error_code"] for topic in reply["topics"]} == {0}
    new = {("orders.eu", 0), ("orders.eu", 1)}
    wait_until(lambda: new <= member.held, [member.host], "the new topic is assigned")
    leave(member)


def test_members_go_on_after_kill_9_in_the_midst_of_a_reconciliation(server, hosts, library):
    first = join(hosts, library, "a")
    wait_shared([first], TOPIC, PARTITIONS)
    second = join(hosts, library, "b")
    wait_until(lambda: len(first.held) == 6, [first.host], "the first gives up one half")
    server.kill()
    server.start()
    wait_shared([first, second], TOPIC, PARTITIONS)
    assert first.identity()["member_id"] != second.identity()["member_id"]
    check_undisturbed([first, second])
    leave(first, second)


@pytest.mark.clients
@pytest.mark.java
@pytest.mark.go
def test_a_store_held_for_longer_than_a_session_evicts_nobody(server, hosts):
    """One member of each library. They commit all the time, and go on where they were."""
    members = [join(hosts, library, library) for library in ALL]
    wait_shared(members, TOPIC, PARTITIONS)
    wait_until(lambda: all(len(m.held) == 4 for m in members), hosts.all(), "four for each")
    held, identities = [m.held for m in members], [m.identity() for m in members]
    for member in members:
        member.load(5, resume=True)
    wait_until(lambda: all(m.ledger.count for m in members), hosts.all(), "every one commits")
    with foreign_writer(server.directory / "groupkeeper.db"):
        time.sleep(1.5 * SESSION_MS / 1000)
    counts = [m.ledger.count for m in members]
    wait_until(
        lambda: all(m.ledger.count > n for m, n in zip(members, counts, strict=True)),
        hosts.all(),
        "every one commits again",
    )
    for member in members:
        member.load(0)
    assert [m.held for m in members] == held
    assert [m.identity() for m in members] == identities
    check_undisturbed(members)
    assert check_offsets(members, offsets_of(server, "g")) > 0
    leave(*members)
