"""A process that was stopped for longer than every session timeout evicts nobody who goes on.

As after a suspended virtual machine: what waits in the sockets is read before any deadline counts
(docs/design.md#clocks: the first advances by at most a second between two turns of the loop).
"""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.clients.members import Hosts, hosts_for, wait_shared
from tests.helpers.core.group_view import NONE, UNKNOWN_MEMBER_ID, describe, heartbeat
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.wire.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC, PARTITIONS = "orders", 12
SESSION_MS = 3_000
PATIENT_CLIENTS = ("aiokafka", "kafka-python")
"""librdkafka gives itself up when it heard nothing for a session timeout; nobody evicts it."""
STOPPED_S = 2 * SESSION_MS / 1000

pytestmark = [pytest.mark.conformance, pytest.mark.slow]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Groupkeeper]:
    daemon = Groupkeeper(
        tmp_path / "daemon",
        topics={TOPIC: PARTITIONS},
        settings={"group.min_session_timeout_ms": 1_000, "storage.append_timeout_ms": 900},
    )
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.signal(signal.SIGCONT)
        daemon.stop()


@pytest.fixture
def hosts(daemon: Groupkeeper) -> Iterator[Hosts]:
    yield from hosts_for(daemon.bootstrap)


class Heart:
    """A raw member whose heartbeats go on whatever happens, one after the other."""

    def __init__(self, port: int, group: str) -> None:
        self.group = group
        self.codes: list[int] = []
        self._client = RawClient(port)
        joined = self._client.call(
            "join_group",
            3,
            group_id=group,
            session_timeout=SESSION_MS,
            rebalance_timeout=SESSION_MS,
            protocol_type="test",
            protocols=[{"name": "any", "metadata": b""}],
        )
        self.member_id, self.generation = joined["member_id"], joined["generation_id"]
        self._client.call(
            "sync_group", 3, group_id=group, generation_id=self.generation, member_id=self.member_id
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._client.close()

    def beat(self) -> int:
        return heartbeat(self._client, self.group, self.member_id, self.generation)

    def _beat(self) -> None:
        while not self._stop.wait(0.2):
            self.codes.append(self.beat())


def test_members_that_go_on_heartbeating_outlive_a_stopped_process(
    daemon: Groupkeeper, hosts: Hosts
) -> None:
    members = {
        client: hosts.shared(client).join(
            f"m-{client}", f"g-{client}", [TOPIC], session_ms=SESSION_MS, heartbeat_ms=300
        )
        for client in PATIENT_CLIENTS
    }
    for member in members.values():
        wait_shared([member], TOPIC, PARTITIONS)
    beating, silent = Heart(daemon.port, "beating"), Heart(daemon.port, "silent")
    try:
        beating.start()
        with RawClient(daemon.port) as raw:
            before = describe(raw, "beating")
        assert before["group_state"] == "Stable"

        daemon.signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)  # no event marks this, so the test sleeps
        daemon.signal(signal.SIGCONT)

        with RawClient(daemon.port) as raw:
            assert describe(raw, "beating") == before
        # Time passes as usual: a silent member is evicted, and the others stay.
        for _ in range(200):
            time.sleep(0.1)
            with RawClient(daemon.port) as raw:
                if not describe(raw, "silent")["members"]:
                    break
        assert silent.beat() == UNKNOWN_MEMBER_ID
        beating.stop()
        assert set(beating.codes) == {NONE}
    finally:
        beating.stop()
        silent.stop()
    for client, member in members.items():
        done = member.commit({f"{TOPIC}:0": 1})
        assert done["ok"], done
        assert member.rebalances == 1, (client, member.host.complaint())
