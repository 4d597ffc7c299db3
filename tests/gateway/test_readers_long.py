"""Groups of four client libraries read the same numbers through the gateway, while the broker, the
daemon and members are killed with ``kill -9``: nothing is skipped, no acknowledged commit is lost,
and nobody rebalances because the broker or the daemon died.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.gateway.test_clients import a_topic
from tests.gateway.test_outage import described
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.daemon.gateways import a_gateway
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.gateway.copiers import Program
from tests.helpers.gateway.readers import KINDS, GroupLog, reader
from tests.helpers.wire.raw_client import RawClient

pytestmark = [pytest.mark.gateway_long, pytest.mark.java, pytest.mark.go]

NUMBERS = int(os.environ.get("NUMBERS", "20000"))
RATE = 1_500
"""Numbers in a second. A producer at full speed would be done before the first kill."""
PARTITIONS, MEMBERS = 8, 2
REJOIN_BY_THEMSELVES = {"franz-go"}
"""If such a client finds no coordinator at an address, it ends its session and joins again, with
the same member id. So the end of the daemon lets its group rebalance, as the end of a broker does.
"""
LIMIT_S = 600
"""No expectation: how long a step may take before the test gives up."""


class Load:
    """Produces the numbers through the gateway, each until it is acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.count = 0
        self._stopped = threading.Event()
        settings = {"enable.idempotence": True, "message.timeout.ms": 1000 * LIMIT_S}
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while self.count < NUMBERS and not self._stopped.wait(0.02):
            for number in range(self.count, min(self.count + RATE // 50, NUMBERS)):
                self._producer.produce(self.topic, str(number), partition=number % PARTITIONS)
                self.count += 1
            self._producer.poll(0)
        self._producer.flush(LIMIT_S)

    @property
    def is_done(self) -> bool:
        return self.count == NUMBERS

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(LIMIT_S)


class Group:
    """Members of one kind. A killed member gets a successor."""

    def __init__(self, kind: str, gateway: Groupkeeper, topic: str, directory: Path) -> None:
        self.name = f"readers-{kind}"
        self.kind = kind
        self._gateway = gateway
        self._arguments = [gateway.bootstrap, topic, self.name, str(PARTITIONS)]
        self._directory = directory
        self._processes: list[Program] = []
        self._replaced: list[str] = []
        self._running = [self._begin() for _ in range(MEMBERS)]

    def _begin(self) -> Program:
        log = self._directory / f"{self.name}-{len(self._processes)}.log"
        process = reader(self.kind, self._arguments, log)
        self._processes.append(process)
        return process.start()

    def replace_one(self) -> None:
        """``kill -9`` of the member that works longest, and a new member."""
        self._replaced = described(self._gateway, self.name)[1]
        self._running.pop(0).kill()
        self._running.append(self._begin())

    def end(self) -> None:
        for each in self._processes:
            each.kill()

    def is_stable(self) -> bool:
        """True if the members are those that run. A killed one stays until its session ends."""
        state, members = described(self._gateway, self.name)
        return state == "Stable" and len(members) == MEMBERS and members != self._replaced

    def assignments(self) -> list[int]:
        """How often each process got partitions."""
        return [
            sum(line.startswith("assigned") for line in list(each.lines))
            for each in self._processes
        ]

    def complaint(self) -> str:
        told = [each.complaint() for each in self._processes[-MEMBERS:]]
        return "\n".join([self.name, *told])

    def log(self) -> GroupLog:
        return GroupLog([list(each.lines) for each in self._processes])


class Site:
    """The broker, the daemon, the load and the groups, and what the test does to them."""

    def __init__(self, kafka: RealKafka, gateway: Groupkeeper, directory: Path) -> None:
        self.kafka, self.gateway = kafka, gateway
        self.topic = a_topic(gateway.bootstrap, PARTITIONS)
        self.load = Load(gateway.bootstrap, self.topic)
        self.groups = [Group(kind, gateway, self.topic, directory) for kind in KINDS]
        self.kills = {"broker": 0, "daemon": 0, "both": 0, "members": 0}

    def wait(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT_S
        while not done():
            assert time.monotonic() < end, "\n".join(each.complaint() for each in self.groups)
            time.sleep(0.2)

    def settle(self) -> None:
        """Wait until every group is stable and has committed what was produced before now."""
        self.wait(lambda: all(each.is_stable() for each in self.groups))
        self.catch_up()

    def catch_up(self) -> None:
        count = self.load.count
        self.wait(lambda: all(self.committed(each) >= count for each in self.groups))

    def committed(self, group: Group) -> int:
        return sum(max(offset, 0) for offset in committed(self.gateway, group.name).values())

    def kill(self, what: str) -> None:
        """Kill servers. The groups must go on with the same members and partitions."""
        before = self._seen(what)
        if what != "daemon":
            self.kafka.kill()
        if what != "broker":
            self.gateway.kill()
            self.gateway.start()
        if what != "daemon":
            self.kafka.start()
        self.catch_up()
        self.wait(lambda: all(each.is_stable() for each in self.groups))
        assert self._seen(what) == before, f"somebody rebalanced after kill -9 of the {what}"
        self.kills[what] += 1

    def _seen(self, what: str) -> list[tuple[list[str], list[int]]]:
        """The members of each group, and how often they got partitions."""
        found = []
        for each in self.groups:
            rejoins = what != "broker" and each.kind in REJOIN_BY_THEMSELVES
            members = described(self.gateway, each.name)[1]
            found.append((members, [] if rejoins else each.assignments()))
        return found

    def replace_members(self) -> None:
        for each in self.groups:
            each.replace_one()
        self.kills["members"] += len(self.groups)

    def end(self) -> None:
        self.load.stop()
        for each in self.groups:
            each.end()


def committed(gateway: Groupkeeper, group: str) -> dict[int, int]:
    with RawClient(gateway.port) as raw:
        groups = [{"group_id": group, "topics": None}]
        reply = raw.call("offset_fetch", 8, groups=groups, require_stable=False)
    rows = [row for topic in reply["groups"][0]["topics"] for row in topic["partitions"]]
    return {row["partition_index"]: row["committed_offset"] for row in rows}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    kafka = RealKafka(tmp_path / "kafka", {})
    gateway = a_gateway(tmp_path / "gateway", kafka.bootstrap)
    try:
        kafka.start()
        gateway.start()
        found = Site(kafka, gateway, tmp_path)
        try:
            yield found
        finally:
            found.end()
    finally:
        gateway.stop()
        kafka.stop()


def test_groups_of_four_libraries_read_each_number_whatever_is_killed(site: Site) -> None:
    begun_s = time.monotonic()
    while not site.load.is_done:
        for what in ("broker", "daemon", "both"):
            site.settle()
            site.kill(what)
        site.settle()
        site.replace_members()
    site.settle()
    site.end()
    ends = {p: len(range(p, NUMBERS, PARTITIONS)) for p in range(PARTITIONS)}
    acknowledged = 0
    for group in site.groups:
        log = group.log()
        assert log.problems(ends) == [], group.name
        assert committed(site.gateway, group.name) == ends, group.name
        acknowledged += log.commits
    took_s = time.monotonic() - begun_s
    sys.stdout.write(
        f"\n{NUMBERS} numbers, read by {len(KINDS)} groups in {took_s:.0f} s, "
        f"{acknowledged} acknowledged commits, kills: {site.kills}\n"
    )
