"""Real clients of consumer groups (KIP-848) for minutes: many members, many kills, whole rolls.

Every member commits all the time, and goes on in each partition from what the group has committed.
At the end of each test no partition had two owners at once, and no acknowledged commit is lost.
``KILLS`` says how often the daemon is killed (24 for each library), ``KILL_SEED`` repeats the
moments.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.test_consumer_protocol import ALL, SETTINGS, leave, offsets_of
from tests.conformance.test_kill9 import FailpointDaemon
from tests.helpers.clients.histories import check_offsets, check_owners, check_undisturbed
from tests.helpers.clients.members import Hosts, Member, hosts_for, wait_shared, wait_until
from tests.helpers.wire.raw_client import RawClient

TOPIC, PARTITIONS = "orders", 40
GROUP = "g"
RATE = 4
KILLS = int(os.environ.get("KILLS", "24"))
SEED = int(os.environ.get("KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1_000_000)
SESSION_MS = 60_000
"""So long that a member that reconnects late is not evicted: after a restart that takes 15 s on a
busy machine, librdkafka waits for up to 10 s more."""
HEARTBEAT_MS = 2_000
"""librdkafka waits no longer than this for an answer. It then repeats the same heartbeat, which
does not ask for the assignment, and the member never learns what to give up. On a busy machine an
answer may take longer than 500 ms."""
LATEST_MS = 5_000
"""When a reconciliation of three members is over, mostly."""
APPENDS = 25
"""About the appends of a reconciliation, with the commits beside it."""
POINTS = ("before", "inside", "after")

pytestmark = pytest.mark.clients_long


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FailpointDaemon]:
    settings = {
        **SETTINGS,
        "group.consumer_session_timeout_ms": SESSION_MS,
        "group.consumer_min_session_timeout_ms": SESSION_MS,
        "group.consumer_heartbeat_interval_ms": HEARTBEAT_MS,
        "group.consumer_min_heartbeat_interval_ms": HEARTBEAT_MS,
    }
    server = FailpointDaemon(tmp_path / "server", topics={TOPIC: PARTITIONS}, settings=settings)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def hosts(server: FailpointDaemon) -> Iterator[Hosts]:
    for hosts in hosts_for(server.bootstrap):
        yield hosts
        check_owners(hosts.all())


def join(hosts: Hosts, library: str, name: str, **options: object) -> Member:
    """A member that commits from its first assignment on."""
    options = {"protocol": "consumer", **options}
    member = hosts.shared(library).join(name, GROUP, [TOPIC], **options)
    member.load(RATE, resume=True)
    return member


def wait_even(members: list[Member], hosts: Hosts) -> None:
    """Wait until they share the topic, and none has two partitions more than another."""
    wait_shared(members, TOPIC, PARTITIONS)

    def even() -> bool:
        sizes = [len(member.held) for member in members]
        return sum(sizes) == PARTITIONS and max(sizes) - min(sizes) <= 1

    wait_until(even, hosts.all(), f"{len(members)} members have equal shares")


def end(server: FailpointDaemon, staying: list[Member], gone: list[Member]) -> None:
    """Everybody leaves. Nothing that was acknowledged is lost."""
    for member in staying:
        member.load(0)
        # answered after its last commit, because a member does one thing at a time
        member.identity()
    count = check_offsets([*staying, *gone], offsets_of(server, GROUP))
    sys.stdout.write(f"{count} commits acknowledged\n")
    leave(*staying)


@pytest.mark.parametrize("library", ALL)
def test_from_one_member_to_twenty_and_back(server, hosts, library) -> None:
    members = [join(hosts, library, "0")]
    wait_even(members, hosts)
    members += [join(hosts, library, str(number)) for number in range(1, 20)]
    wait_even(members, hosts)
    wait_until(lambda: all(m.ledger.count >= 20 for m in members), hosts.all(), "all commit")
    gone = []
    while len(members) > 1:
        gone.append(members.pop())
        leave(gone[-1])
        if len(members) in (15, 10, 5, 1):
            wait_even(members, hosts)
    check_undisturbed([*members, *gone])
    end(server, members, gone)


@pytest.mark.parametrize("library", ALL)
def test_killed_at_any_moment_of_a_reconciliation_nobody_notices(server, hosts, library) -> None:
    sys.stdout.write(f"KILL_SEED={SEED} KILLS={KILLS}\n")
    draw = random.Random(SEED)
    stay, gone = [join(hosts, library, name) for name in "ab"], []
    wait_even(stay, hosts)
    identities = [member.identity()["member_id"] for member in stay]
    before = [_revoked(member) for member in stay]
    for kill in range(0, KILLS, 2):
        newcomer = join(hosts, library, f"c{kill}")
        _kill(server, hosts, draw)
        wait_even([*stay, newcomer], hosts)
        newcomer.host.order(op="leave", name=newcomer.name)
        _kill(server, hosts, draw)
        _wait_gone(newcomer)
        wait_even(stay, hosts)
        gone.append(newcomer)
    assert [member.identity()["member_id"] for member in stay] == identities
    for member, earlier in zip(stay, before, strict=True):
        # a member has 20 partitions, and 13 or 14 if there is one more member
        assert _revoked(member) - earlier <= 7 * len(gone)
    check_undisturbed([*stay, *gone])
    end(server, stay, gone)


def _wait_gone(member: Member) -> None:
    wait_until(lambda: bool(member.events("ended")), [member.host], f"{member.name} is gone")


def _revoked(member: Member) -> int:
    """How many partitions it has given up."""
    return sum(len(event["revoked"]) for event in member.events("revoked"))


def _kill(server: FailpointDaemon, hosts: Hosts, draw: random.Random) -> None:
    """Kill it at some moment, or at some append, and start it again."""
    point = draw.choice(("moment", "moment", *POINTS))
    if point == "moment":
        time.sleep(draw.randrange(LATEST_MS) / 1000)
        server.kill()
    else:
        server.arm(point, draw.randrange(1, APPENDS))
        wait_until(server.is_dead, hosts.all(), point)
        assert server.wait() == -signal.SIGKILL
    server.start()


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("library", ["librdkafka", "java"])
def test_ten_members_roll_to_the_new_protocol_and_back(server, hosts, library, assignor) -> None:
    members, gone = _roll(server, hosts, library, assignor, is_patient=True)
    check_undisturbed([*members, *gone])
    end(server, members, gone)


@pytest.mark.parametrize("library", ["librdkafka", "java"])
def test_a_roll_that_waits_for_nobody_loses_no_offset(server, hosts, library) -> None:
    """A member that is behind when the group becomes classic loses its partitions, as with Kafka:
    its epoch is no generation of the classic group."""
    members, gone = _roll(server, hosts, library, "range", is_patient=False)
    failures = [member.events("failed") for member in (*members, *gone)]
    assert not any(failures), failures
    end(server, members, gone)


def _roll(
    server: FailpointDaemon, hosts: Hosts, library: str, assignor: str, *, is_patient: bool
) -> tuple[list[Member], list[Member]]:
    """Replace ten classic members one by one, and back. Patient: each waits for a stable group."""
    protocols = {
        "classic": {"protocol": "classic", "assignor": assignor},
        "consumer": {"protocol": "consumer"},
    }
    members = [join(hosts, library, f"{n}", **protocols["classic"]) for n in range(10)]
    wait_even(members, hosts)
    gone: list[Member] = []
    for protocol in ("consumer", "classic"):
        for number in range(10):
            if is_patient:
                wait_until(lambda: _is_stable(server), hosts.all(), "the group is stable")
            gone.append(members[number])
            leave(gone[-1])
            name = f"{number}-{protocol}"
            members[number] = join(hosts, library, name, **protocols[protocol])
            if is_patient:
                wait_shared(members, TOPIC, PARTITIONS)
        wait_even(members, hosts)
        assert _listed(server)["group_type"].lower() == protocol
    return members, gone


def _is_stable(server: FailpointDaemon) -> bool:
    return _listed(server)["group_state"] == "Stable"


def _listed(server: FailpointDaemon) -> dict[str, str]:
    """The group, as it is listed."""
    with RawClient(server.port) as raw:
        (group,) = raw.call("list_groups", 5, states_filter=[], types_filter=[])["groups"]
    return dict(group)
