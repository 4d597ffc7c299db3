"""Real clients of consumer groups (KIP-848) for minutes: many members, many kills, whole rolls.

Every member commits all the time, and goes on in each partition from what the group has committed.
At the end of each test no partition had two owners at once, and no acknowledged commit is lost.
``KILLS`` says how often the daemon is killed (24 for each library), ``KILL_SEED`` repeats the
moments. The directory of each test keeps what the daemon and the members did: the daemon's log and
store, its events (``events.jsonl``), what each member told (``librdkafka-0.jsonl``), and all
heartbeats with their answers (``heartbeats.jsonl``).
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupkeeper import read_events
from tests.conformance.test_consumer_protocol import ALL, SETTINGS, leave, offsets_of
from tests.conformance.test_kill9 import FailpointDaemon
from tests.helpers.clients.heartbeat_tape import (
    HEARTBEAT,
    HEARTBEAT_KEY,
    Ownership,
    heartbeats,
    removals,
)
from tests.helpers.clients.histories import check_offsets, check_owners, check_undisturbed
from tests.helpers.clients.members import Hosts, Member, hosts_for, wait_shared, wait_until
from tests.helpers.daemon.daemon import free_port
from tests.helpers.wire.raw_client import RawClient
from tests.helpers.wire.recording_proxy import RecordingProxy

TOPIC, PARTITIONS = "orders", 40
GROUP = "g"
RATE = 4
KILLS = int(os.environ.get("KILLS", "24"))
SEED = int(os.environ.get("KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1_000_000)
SESSION_MS = 60_000
"""So long that a member that reconnects late is not evicted: after a restart that takes 15 s on a
busy machine, librdkafka waits for up to 10 s more."""
HEARTBEAT_MS = 2_000
"""librdkafka waits no longer than this for an answer. Its next heartbeat does not ask for the
assignment, and the member never learns what to give up (``test_librdkafka_troubles.py``). On a busy
machine an answer may take longer than 500 ms."""
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
    server.settings["kafka.advertised"] = f"127.0.0.1:{free_port()}"
    server.start()
    yield server
    server.stop()


@pytest.fixture
def hosts(server: FailpointDaemon, tmp_path: Path) -> Iterator[Hosts]:
    """Hosts whose connections are recorded. No partition may have two owners at once, neither by
    what members and coordinator told each other, nor by the callbacks of the members.
    """
    advertised = str(server.settings["kafka.advertised"])
    with RawClient(server.port) as raw:
        topics = raw.call("metadata", 12, topics=None)["topics"]
    proxy = RecordingProxy(int(advertised.partition(":")[2]), server.port, only={HEARTBEAT_KEY})
    try:
        for hosts in hosts_for(advertised, diaries=tmp_path):
            yield hosts
            ownership = _ownership(server, proxy, {t["topic_id"]: t["name"] for t in topics})
            check_owners(hosts.all(), ownership)
    finally:
        proxy.stop()


def _ownership(server: FailpointDaemon, proxy: RecordingProxy, topics: dict[str, str]) -> Ownership:
    """Write down what was told and what happened, and find out who owned what."""
    told = list(heartbeats(proxy.take(), topics))
    events = list(read_events(server.database))
    for name, lines in ("heartbeats", [each._asdict() for each in told]), ("events", events):
        text = "".join(json.dumps(line, default=sorted) + "\n" for line in lines)
        (server.directory.parent / f"{name}.jsonl").write_text(text)
    return Ownership(told, removals(events))


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
        member_id = newcomer.identity()["member_id"]
        newcomer.host.order(op="leave", name=newcomer.name)
        _kill(server, hosts, draw)
        _wait_gone(newcomer)
        _leave_for(server, member_id)
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


def _leave_for(server: FailpointDaemon, member_id: str) -> None:
    """Leave for a member that is gone. Its own request may have reached a daemon that was killed,
    and franz-go sends it once only. The group would then wait for the end of the session.
    """
    with RawClient(server.port) as raw:
        raw.call(HEARTBEAT, 1, group_id=GROUP, member_id=member_id, member_epoch=-1)


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


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("library", ["librdkafka", "java"])
def test_a_roll_that_waits_for_nobody_loses_no_offset(server, hosts, library, assignor) -> None:
    """A member that is behind when the group becomes classic loses its partitions, as with Kafka:
    its epoch is no generation of the classic group."""
    members, gone = _roll(server, hosts, library, assignor, is_patient=False)
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
