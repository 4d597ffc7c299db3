"""What ``groupkeeper upstream resolve`` says if it cannot finish."""

from __future__ import annotations

import asyncio

import pytest

from groupkeeper.coordinator.daemon import journal_repair
from groupkeeper.coordinator.daemon.config import Settings
from groupkeeper.coordinator.daemon.journal_repair import RepairFailed, _late, opened_journal
from groupkeeper.coordinator.daemon.upstream_journal import UpstreamJournal
from groupkeeper.coordinator.gateway.journal.journal import Journal
from tests.helpers.gateway.journals import JournalSite, a_journal
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage, busy, fail


def a_gateway() -> Settings:
    return Settings.model_validate({"upstream": {"bootstrap": "127.0.0.1:1"}})


class OpenedJournal(UpstreamJournal):
    """Of a journal that a test has opened."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal


def late(site: JournalSite) -> str:
    return _late(60, site.coordinator, OpenedJournal(site.journal))


@virtual_time
async def test_a_store_that_fails_is_named_and_not_the_journal() -> None:
    async with a_journal() as site:
        assert "not all partitions of the journal can be read" in late(site)
        site.broker.add_producer(1)
        site.storage.script("append", *[fail("disk full")] * 3)
        site.storage.script("load", fail("disk full"))
        sent = site.send(1, 10, epoch=0)
        await sent
        assert "disk full" in late(site), "the store is loaded again, and fails"
        await asyncio.sleep(60)
        assert "writes to the store failed. Decisions that were written stay" in late(site)


def test_a_store_or_an_upstream_that_does_not_open_is_told() -> None:
    assert _late(60, None, None) == "not done within 60 s: the store did not open"


@virtual_time
async def test_a_full_disk_is_told_at_once_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command was silent until its time limit."""
    storage = FaultyStorage()
    storage.script("open", *[busy("the disk is full")] * 1_000)
    monkeypatch.setattr(journal_repair, "open_store", lambda _: storage)
    told: list[tuple[float, str]] = []
    loop = asyncio.get_running_loop()
    began_s = loop.time()

    def tell(problem: str) -> None:
        told.append((loop.time() - began_s, problem))

    with pytest.raises(RepairFailed, match="not done within 60 s: the store cannot be opened yet"):
        async with opened_journal(a_gateway(), 60, tell):
            raise AssertionError("opened on a full disk")
    ((after_s, problem),) = told
    assert after_s < 1
    assert problem == "the store cannot be opened yet, which is tried again: the disk is full"
