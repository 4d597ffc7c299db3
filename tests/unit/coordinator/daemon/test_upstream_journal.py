"""What the daemon says about the journal of a gateway, and what clients may do to it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.daemon import upstream_journal
from groupkeeper.coordinator.daemon.upstream_journal import UpstreamJournal
from groupkeeper.coordinator.gateway.journal.journal import Journal
from groupkeeper.coordinator.gateway.security import Security
from groupkeeper.coordinator.gateway.settings import GatewaySettings
from groupkeeper.coordinator.handlers.services import Endpoint
from groupkeeper.protocol.asking import write_request
from groupkeeper.protocol.writer import Row
from tests.helpers.gateway.journal_broker import TOPIC, JournalBroker
from tests.helpers.gateway.journals import SHARDS, JournalSite, a_journal
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage
from tests.helpers.wire.gateway_frames import VIEW

DELETE_TOPICS = 20, 6
JOURNAL_ID, OTHER_ID = "AAAAAAAAAAAAAAAAAAAABQ", "AAAAAAAAAAAAAAAAAAAABg"


class OpenedJournal(UpstreamJournal):
    """Of a journal that a test has opened."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal


@virtual_time
async def test_state_says_that_a_journal_is_lost_and_why() -> None:
    async with a_journal() as site:
        opened = OpenedJournal(site.journal)
        assert opened.state() == ""
        site.broker.add_producer(9)
        await site.commit(9, 10)
        site.broker.delete_topic()
        await asyncio.sleep(60)
        assert opened.state() == (
            "offsets in transactions are refused in 1 shard (journal_lost), until somebody decides "
            "about those that are pending (groupkeeper upstream resolve): "
            f"the topic {site.journal.topic.name} was deleted"
        )


@virtual_time
async def test_state_says_why_a_journal_cannot_be_opened() -> None:
    site = JournalSite(JournalBroker(SHARDS), FaultyStorage())
    site.broker.policy = "compact"
    await site.begin(waits=False)
    await asyncio.sleep(5)
    assert "offsets in transactions have to wait: the topic" in OpenedJournal(site.journal).state()
    await site.die()


@virtual_time
async def test_another_cluster_does_not_say_that_the_journal_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_journal() as site:
        await site.journal.stop()
        monkeypatch.setattr(upstream_journal, "BrokerClient", lambda *_, **__: site.broker)
        versions = dict.fromkeys((0, 22, 24, 26, 61), (0, 20))
        cluster = SimpleNamespace(brokers={1: Endpoint("broker", 1)}, versions={1: versions})
        brokers: Any = SimpleNamespace(cluster=cluster, is_ours=True)
        upstream = UpstreamJournal(
            settings(), site.coordinator, SHARDS, brokers, lambda: TopicImage.of()
        )
        upstream.start()
        site.journal = upstream.journal
        await site.journal.opened.wait()
        site.broker.add_producer(9)
        await site.commit(9, 10)
        brokers.is_ours = False
        site.broker.delete_topic()
        await asyncio.sleep(60)
        assert upstream.state() == ""
        assert not site.journal.lost()
        await upstream.stop()


def settings() -> GatewaySettings:
    return GatewaySettings(
        bootstrap=(Endpoint("broker", 1),),
        ports=range(1, 2),
        listen_host="127.0.0.1",
        security=Security(),
        journal_topic=TOPIC,
    )


def deletion(*topic_ids: str) -> bytes:
    topics = [Row(name=None, topic_id=each) for each in topic_ids]
    return write_request(*DELETE_TOPICS, 1, "app", topics=topics, timeout=1000)


def test_journal_cannot_be_deleted_by_its_id_once_it_has_been_seen() -> None:
    image = TopicImage.of(TopicInfo("other", OTHER_ID, 1))
    unused: Any = None
    journal = UpstreamJournal(settings(), unused, 3, unused, lambda: image)
    both = deletion(JOURNAL_ID, OTHER_ID)
    assert journal.divide(*DELETE_TOPICS, both, VIEW) == (None, both, None)

    image = TopicImage.of(TopicInfo("other", OTHER_ID, 1), TopicInfo(TOPIC, JOURNAL_ID, 3))
    ours, theirs, merge = journal.divide(*DELETE_TOPICS, both, VIEW)
    assert (ours, theirs) == (None, deletion(OTHER_ID))
    assert merge is not None
