"""A store in an ensemble of three servers, of which one is killed at a time.

By hand: ``make test-storage-long``. How long an election takes depends on the machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.base import StoreBusy
from tests.helpers.clients.zookeeper_ensemble import ZooKeeperEnsemble
from tests.helpers.core.records import commit
from tests.helpers.storage.late_appends import offset_after_load
from tests.helpers.storage.storage_owner import Owner

APPEND_TIMEOUT_MS = 5_000
ELECTION_LIMIT_S = 60
PAUSE_S = 0.01
APPENDS = 300
KILLED_AT = 100

pytestmark = pytest.mark.storage_long


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    pytest.importorskip("kazoo")
    ensemble = ZooKeeperEnsemble(tmp_path)
    try:
        yield ensemble.start()
    finally:
        ensemble.stop()


def a_storage(ensemble: ZooKeeperEnsemble) -> JournalStorage:
    from groupkeeper.storage.backends.zookeeper.driver import ZooKeeperDriver
    from groupkeeper.storage.backends.zookeeper.url import parse_url

    url = parse_url(f"zookeeper://{ensemble.servers}/kafka", {})
    driver = ZooKeeperDriver(url, append_timeout_ms=APPEND_TIMEOUT_MS, lease_ttl_ms=2_000)
    return JournalStorage(driver, node_id=1, name="test:1", lease_ttl_ms=2_000)


@pytest.mark.parametrize("killed", ["leader", "follower"])
async def test_a_killed_server_loses_nothing_that_was_acknowledged(
    ensemble: ZooKeeperEnsemble, killed: str
) -> None:
    """If the election takes longer than an append may, the append fails, and the next load reads it
    completely or not at all.
    """
    owner = await Owner(a_storage(ensemble)).start()
    victim = ensemble.the(killed)
    acknowledged = failed = 0
    slowest_s = 0.0
    while acknowledged < APPENDS:
        if acknowledged == KILLED_AT:
            await asyncio.to_thread(victim.stop)
        began_s = time.monotonic()
        try:
            await owner.append(0, [commit("g", acknowledged + 1)])
            acknowledged += 1
            slowest_s = max(slowest_s, time.monotonic() - began_s)
        except StoreBusy:
            failed += 1
            found = await loaded(owner)
            assert acknowledged <= found <= acknowledged + 1
            acknowledged = found
        await asyncio.sleep(PAUSE_S)
    print(  # noqa: T201 - the figures of a run by hand
        f"\na killed {killed}: slowest append {slowest_s:.2f} s, {failed} failed"
    )
    assert len([peer for peer in ensemble.peers if peer.mode()]) == 2
    seqs = [event["seq"] async for event in owner.storage.history("g")]
    assert seqs == sorted(set(seqs))
    assert len(seqs) == APPENDS
    assert await offset_after_load(owner) == APPENDS
    await asyncio.to_thread(victim.start)
    await owner.append(0, [commit("g", APPENDS + 1)])
    await owner.storage.close()
    again = await Owner(a_storage(ensemble)).start()
    assert again.model.keys == owner.model.keys
    await again.storage.close()


async def loaded(owner: Owner) -> int:
    """Load again and again until a server answers. Return the offset."""
    until = time.monotonic() + ELECTION_LIMIT_S
    while True:
        try:
            return await offset_after_load(owner) or 0
        except StoreBusy:
            assert time.monotonic() < until, "no server answers"
            await asyncio.sleep(0.1)
