"""What ``groupkeeper upstream resolve`` says if it cannot finish."""

from __future__ import annotations

import asyncio

from groupkeeper.coordinator.daemon.journal_repair import _late
from groupkeeper.coordinator.daemon.upstream_journal import UpstreamJournal
from groupkeeper.coordinator.gateway.journal import Journal
from tests.helpers.gateway.journals import JournalSite, a_journal
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.faulty_storage import fail


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
