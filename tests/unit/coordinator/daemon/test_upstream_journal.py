"""What the daemon says about the journal of a gateway."""

from __future__ import annotations

import asyncio

from groupkeeper.coordinator.daemon.upstream_journal import UpstreamJournal
from groupkeeper.coordinator.gateway.journal import Journal
from tests.helpers.gateway.journals import SHARDS, a_journal
from tests.helpers.runtime.virtual_loop import virtual_time


class OpenedJournal(UpstreamJournal):
    """Of a journal that a test has opened."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal


@virtual_time
async def test_state_says_that_a_journal_is_lost_and_why() -> None:
    async with a_journal() as site:
        opened = OpenedJournal(site.journal)
        assert opened.state() == ""
        site.broker.logs = None
        await asyncio.sleep(60)
        assert opened.state() == (
            f"offsets in transactions are refused in {SHARDS} shards (journal_lost): "
            f"the topic {site.journal.topic.name} was deleted"
        )
