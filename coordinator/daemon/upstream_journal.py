"""The journal of transactions in the daemon: when it opens, and which requests it gets. The journal
is a topic of the upstream cluster. It has the offsets of transactions until these end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from groupkeeper.coordinator.gateway import add_offsets, txn_offset_commit
from groupkeeper.coordinator.gateway.apis import has_transactions
from groupkeeper.coordinator.gateway.client import BrokerClient
from groupkeeper.coordinator.gateway.journal.journal import Journal, JournalSettings
from groupkeeper.coordinator.gateway.journal.links import JournalLinks
from groupkeeper.coordinator.gateway.splitting import Division, divide
from groupkeeper.coordinator.handlers.routes import Operation, Resource, Route
from groupkeeper.protocol.versions import ApiKey

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.cluster.image import TopicImage
    from groupkeeper.coordinator.gateway.brokers import UpstreamBrokers
    from groupkeeper.coordinator.gateway.journal.shard import JournalCoordinator
    from groupkeeper.coordinator.gateway.rewriting import View
    from groupkeeper.coordinator.gateway.settings import GatewaySettings
    from groupkeeper.coordinator.handlers.services import Endpoint

LOOK_S: Final = 0.2
"""The time between two checks whether the journal can be opened."""
TIMEOUT_S: Final = 30.0
"""How long the journal waits for an answer of a broker. A Produce may take 10 s in the broker."""


class UpstreamJournal:
    """Opens and stops the journal of a gateway, and routes requests to it."""

    def __init__(
        self,
        config: GatewaySettings,
        gate: JournalCoordinator,
        shards: int,
        brokers: UpstreamBrokers,
        image: Callable[[], TopicImage],
    ) -> None:
        """The journal submits its requests to ``gate``, as the handlers submit the requests of
        clients. ``image`` returns the topics of the upstream.
        """
        self._brokers = brokers
        self._as_client = config.identity == "client"
        self._image = image
        self.journal = Journal(
            JournalSettings(config.journal_topic, shards),
            gate,
            JournalLinks(self._endpoints, partial(_client, config)),
        )
        handle = txn_offset_commit.handler(lambda: self.journal)
        self.routes = {
            ApiKey.TXN_OFFSET_COMMIT: Route(handle, Operation.READ, Resource.GROUP),
        }
        self._opening: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to wait for the upstream, and return at once. The journal opens when the upstream
        is known to be the cluster of this store and to have transactions.
        """
        self._opening = asyncio.get_running_loop().create_task(self._open())

    async def stop(self) -> None:
        """Stop the journal. Pending transactions are decided after the next start."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        await self.journal.stop()

    def state(self) -> str:
        """Return a warning about the journal for operators; "" if there is none."""
        if self.journal.is_started and self.journal.problem:
            return f"offsets in transactions have to wait: {self.journal.problem}"
        return _shown(self.journal.lost())

    def divide(self, key: int, version: int, frame: bytes, view: View) -> Division:
        """Divide a request into our part and the broker's part, as ``splitting.divide`` does.
        AddOffsetsToTxn becomes an AddPartitionsToTxn for the topic of the journal.
        """
        if key != ApiKey.ADD_OFFSETS_TO_TXN:
            return divide(key, version, frame, view._replace(hidden_topic_ids=self._ids()))
        added = add_offsets.to_add_partitions(frame, self.journal.topic)

        def merge(_: bytes | None, reply: bytes) -> bytes:
            return add_offsets.from_add_partitions(reply, version, as_client=self._as_client)

        return Division(None, added, merge)

    def _ids(self) -> frozenset[str]:
        """Return a set with the id of the journal's topic. It is empty if the topic has not been
        seen.
        """
        topic = self._image().by_name.get(self.journal.topic.name)
        return frozenset() if topic is None else frozenset({topic.topic_id})

    async def _open(self) -> None:
        while not self._has_transactions():  # noqa: ASYNC110 - it depends on three parts
            await asyncio.sleep(LOOK_S)
        self.journal.start()

    def _has_transactions(self) -> bool:
        cluster = self._brokers.cluster
        if cluster is None or not self._brokers.is_ours:
            return False
        known = [cluster.versions.get(broker_id, {}) for broker_id in cluster.brokers]
        return bool(known) and all(map(has_transactions, known))

    def _endpoints(self) -> Mapping[int, Endpoint]:
        """Return the addresses of the brokers. Return none while they belong to another cluster,
        because the journal would seem to be deleted there.
        """
        cluster = self._brokers.cluster
        return {} if cluster is None or not self._brokers.is_ours else cluster.brokers


def _shown(lost: Mapping[int, str]) -> str:
    """Return a line that says for how many shards the journal is lost, and the reason for the first
    of them. Empty if ``lost`` is empty.
    """
    if not lost:
        return ""
    reason, shards = lost[min(lost)], "shard" if len(lost) == 1 else "shards"
    return (
        f"offsets in transactions are refused in {len(lost)} {shards} (journal_lost), until "
        f"somebody decides about those that are pending (groupkeeper upstream resolve): {reason}"
    )


def _client(config: GatewaySettings, endpoint: Endpoint) -> BrokerClient:
    return BrokerClient(
        endpoint,
        config.security,
        connect_timeout_s=config.connect_timeout_ms / 1000,
        request_timeout_s=TIMEOUT_S,
    )
