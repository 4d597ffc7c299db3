"""Commits in transactions of a gateway, as the daemon puts the parts together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.admin import ReadGroup
from groupkeeper.coordinator.daemon import upstream_journal
from groupkeeper.coordinator.daemon.upstream_journal import UpstreamJournal
from groupkeeper.coordinator.gateway.gate import GroupGate
from groupkeeper.coordinator.gateway.observed_topics import ObservedTopics
from groupkeeper.coordinator.gateway.security import Security
from groupkeeper.coordinator.gateway.settings import GatewaySettings
from groupkeeper.coordinator.handlers.services import Endpoint
from tests.helpers.gateway.journal_broker import TOPIC
from tests.helpers.gateway.journals import SHARDS, a_journal
from tests.helpers.runtime.virtual_loop import virtual_time

P = 9


class Adopting:
    """An admission that refuses each group until the test says otherwise."""

    error = ErrorCode.COORDINATOR_NOT_AVAILABLE

    def is_settled(self, group_id: str) -> bool:
        return False

    async def settle(self, group_id: str) -> ErrorCode:
        return self.error


@virtual_time
async def test_commit_in_a_transaction_waits_for_the_adoption_of_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the commit would make the group, and its offsets upstream would never come over."""
    async with a_journal() as site:
        await site.journal.stop()
        topics = site.coordinator.topics
        assert topics is not None
        admission = Adopting()
        gate = GroupGate(site.coordinator, lambda: topics.image, ObservedTopics(topics), admission)
        monkeypatch.setattr(upstream_journal, "BrokerClient", lambda *_, **__: site.broker)
        upstream = UpstreamJournal(_settings(), gate, SHARDS, _brokers(), lambda: topics.image)
        upstream.start()
        site.journal = upstream.journal
        await site.journal.opened.wait()
        site.broker.add_producer(P)
        assert await site.commit(P, 10) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await site.ask(ReadGroup("g"))).group is None
        admission.error = ErrorCode.NONE
        assert await site.commit(P, 10) is ErrorCode.NONE
        await upstream.stop()


def _settings() -> GatewaySettings:
    return GatewaySettings(
        bootstrap=(Endpoint("broker", 1),),
        ports=range(1, 2),
        listen_host="127.0.0.1",
        security=Security(),
        journal_topic=TOPIC,
    )


def _brokers() -> Any:
    """Return an upstream of one broker that has transactions."""
    versions = dict.fromkeys((0, 22, 24, 26, 61), (0, 20))
    cluster = SimpleNamespace(brokers={1: Endpoint("broker", 1)}, versions={1: versions})
    return SimpleNamespace(cluster=cluster, is_ours=True)
