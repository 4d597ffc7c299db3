"""Raw members of a group during an outage of its store, and the answers that they get."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.helpers.core.group_view import commit, heartbeat
from tests.helpers.wire.raw_client import RawClient


def a_member(client: RawClient, group: str = "g", session_ms: int = 2_000) -> str:
    """Make a Stable group with one member, in generation 1. Return its member id."""
    fields = {
        "group_id": group,
        "session_timeout": session_ms,
        "rebalance_timeout": 5_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    member_id = client.call("join_group", 5, **fields)["member_id"]
    joined = client.call("join_group", 5, **{**fields, "member_id": member_id})
    assert joined["generation_id"] == 1
    synced = client.call(
        "sync_group",
        3,
        group_id=group,
        generation_id=1,
        member_id=member_id,
        assignments=[{"member_id": member_id, "assignment": b"all"}],
    )
    assert synced["assignment"] == b"all"
    return str(member_id)


class Answered(NamedTuple):
    """One answer: when the request was sent, how long it took, its error, and its offset."""

    sent_s: float
    took_s: float
    error: int
    offset: int


class BusyMember:
    """Commits all the time on one connection, and sends heartbeats on another."""

    def __init__(self, port: int, group: str, member_id: str, topic: str) -> None:
        self.commits: list[Answered] = []
        self.beats: list[Answered] = []
        self._port, self._group, self._member_id, self._topic = port, group, member_id, topic
        self._failures: list[BaseException] = []
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[BusyMember]:
        """Run until the end of the block. Raises if a connection was closed."""
        threads = [
            threading.Thread(target=self._run, args=(work,), daemon=True)
            for work in (self._commit, self._beat)
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        if self._failures:
            raise AssertionError("a connection failed") from self._failures[0]

    def _run(self, work: object) -> None:
        assert callable(work)
        try:
            with RawClient(self._port) as client:
                number = 0
                while not self._stop.is_set():
                    number += 1
                    work(client, number)
                    time.sleep(0.05)
        except BaseException as error:  # noqa: BLE001 - ``running`` raises it
            self._failures.append(error)

    def _commit(self, client: RawClient, number: int) -> None:
        mine = {"generation": 1, "member_id": self._member_id}
        began_s = time.monotonic()
        codes = commit(client, self._group, self._topic, {0: number}, **mine)
        self.commits.append(Answered(began_s, time.monotonic() - began_s, codes[0], number))

    def _beat(self, client: RawClient, number: int) -> None:
        began_s = time.monotonic()
        code = heartbeat(client, self._group, self._member_id, 1)
        self.beats.append(Answered(began_s, time.monotonic() - began_s, code, number))
