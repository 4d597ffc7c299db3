"""The brokers of the upstream: where they are, which versions they have, and which are up.

The upstream is the Kafka cluster behind the gateway. A poll asks one broker for the brokers and the
topics, and each broker for its versions. Topics are read only if the upstream is the cluster whose
groups the store has. With the topics of another cluster, ours would count as deleted, and their
offsets would be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

import structlog

from groupkeeper.coordinator.gateway.client import (
    BrokerApis,
    BrokerClient,
    BrokerError,
    NoAnswer,
    NotSent,
)
from groupkeeper.coordinator.gateway.observed_topics import ObservedTopics
from groupkeeper.coordinator.gateway.settings import GatewaySettings
from groupkeeper.coordinator.gateway.topic_list import METADATA, METADATA_VERSIONS, is_of_cluster
from groupkeeper.coordinator.handlers.services import Endpoint
from groupkeeper.coordinator.runtime.line_limit import LineLimit
from groupkeeper.protocol.errors import ProtocolError

REQUEST_TIMEOUT_S: Final = 10.0
"""The time for one answer. The list of 100,000 partitions takes a broker a second."""
FIRST_RETRY_S: Final = 0.1
"""The pause between polls while the cluster id is not durable. The poll after that reads the
topics.
"""
LOG_EVERY_S: Final = 60.0

_log = structlog.get_logger("groupkeeper.gateway")


class UpstreamCluster(NamedTuple):
    """The upstream, as the last poll found it."""

    cluster_id: str
    brokers: Mapping[int, Endpoint]
    controller: int
    versions: Mapping[int, Mapping[int, tuple[int, int]]]
    """Broker -> API key -> lowest and highest version. A broker that has not answered at its
    present address is absent.
    """
    features: Mapping[str, int]


class StoredCluster(Protocol):
    """The stored facts about the upstream."""

    @property
    def cluster_id(self) -> str:
        """The cluster whose groups are stored; empty before the first one is stored."""
        ...


class UpstreamBrokers:
    """Polls the upstream, and has a client for each of its brokers."""

    def __init__(
        self, settings: GatewaySettings, topics: ObservedTopics, stored: StoredCluster
    ) -> None:
        """``start`` begins to poll."""
        self.cluster: UpstreamCluster | None = None
        """The upstream as the last poll found it. None before the first answer of a broker."""
        self.observers: list[Callable[[UpstreamCluster], None]] = []
        """Called with the new ``cluster`` when it has changed."""
        self.topics = topics
        topics.ask = self.ask_topics
        self.answered_s: float | None = None
        """When the last poll succeeded, by the clock of the loop. None before the first one."""
        self._settings = settings
        self._stored = stored
        self._bootstrap = [self._client(endpoint) for endpoint in settings.bootstrap]
        self._clients: dict[int, BrokerClient] = {}
        self._apis: dict[int, BrokerApis] = {}
        """Broker -> its last answer to ApiVersions."""
        self._up: set[int] = set()
        self._turn = 0
        self._is_silent = False
        """True if the last poll failed."""
        self._polling: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._lines = LineLimit(lambda: asyncio.get_running_loop().time(), LOG_EVERY_S, 1)

    # --- Start and stop ---------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to poll."""
        self._polling = asyncio.get_running_loop().create_task(self._poll_for_ever())

    async def stop(self) -> None:
        """End the poll, and close all connections."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait([self._polling])
        for client in chain(self._bootstrap, self._clients.values()):
            client.close()

    def ask_now(self) -> None:
        """Poll at once, because something in the upstream has probably changed."""
        self._wanted.set()

    # --- For others -------------------------------------------------------------------------------

    def pick(self) -> int | None:
        """Return the id of a broker that is up, in rotation; None if no broker is up."""
        if self.cluster is None:
            return None
        up = [each for each in self.cluster.brokers if each in self._up]
        self._turn += 1
        return up[self._turn % len(up)] if up else None

    def client(self, broker_id: int) -> BrokerClient:
        """Return the client of a broker. Raises NotSent if there is no such broker."""
        if broker_id not in self._clients:
            raise NotSent(f"broker {broker_id} is not in the upstream's metadata")
        return self._clients[broker_id]

    @property
    def is_ours(self) -> bool:
        """True if the upstream is the cluster whose groups the store has."""
        return self.cluster is not None and self.cluster.cluster_id == self._stored.cluster_id

    async def ask(self, api_key: int, versions: range, **values: Any) -> Any:
        """Send a request to one broker after another, until one answers. Return the answer.

        Brokers that are up are asked first. Raises BrokerError if no broker answers.
        """
        return await self._of_any(lambda client: client.ask(api_key, versions, **values))

    async def ask_topics(self, api_key: int, versions: range, **values: Any) -> tuple[int, bytes]:
        """Send a Metadata request to a broker of the cluster whose groups the store has. Return the
        version and the frame of the answer.

        Every answer is checked, because a bootstrap address may be asked. This address may lead to
        another cluster, even if it did not when this poll began. Raises BrokerError if no broker of
        our cluster answers.
        """

        async def ask(client: BrokerClient) -> tuple[int, bytes]:
            answer = await client.ask_frame(api_key, versions, **values)
            if not is_of_cluster(self._stored.cluster_id, *answer):
                where = f"{client.endpoint.host}:{client.endpoint.port}"
                raise NoAnswer(f"{where}: belongs to another cluster")
            return answer

        return await self._of_any(ask)  # type: ignore[no-any-return]

    # --- Polling ----------------------------------------------------------------------------------

    async def _poll_for_ever(self) -> None:
        while True:
            wait_s = self._settings.metadata_refresh_ms / 1000
            self._wanted.clear()
            try:
                await self.poll()
            except (BrokerError, ProtocolError) as error:
                self._is_silent = True
                if self._lines.allow("poll") is not None:
                    _log.warning("upstream_does_not_answer", problem=str(error))
            except Exception:  # noqa: BLE001 - a poll must not be the last one
                _log.exception("upstream_poll_failed")
            else:
                if self._is_silent:
                    self._is_silent = False
                    _log.info("upstream_answers_again")
                if not self._stored.cluster_id:
                    wait_s = min(wait_s, FIRST_RETRY_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wanted.wait()

    async def poll(self) -> None:
        """Read the brokers, their versions and the topics once. Raises BrokerError if no broker
        answers.
        """
        answer = await self.ask(
            METADATA,
            METADATA_VERSIONS,
            topics=[],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        brokers = {each.node_id: Endpoint(each.host, each.port) for each in answer.brokers}
        self._reconcile(brokers)
        await asyncio.gather(*[self._learn(broker_id) for broker_id in brokers])
        self._set(answer.cluster_id or "", brokers, answer.controller_id)
        self.answered_s = asyncio.get_running_loop().time()
        if self.is_ours:
            await self.topics.refresh()

    def _reconcile(self, brokers: Mapping[int, Endpoint]) -> None:
        """Create a client for each new broker or address, and close the clients of all others."""
        for broker_id in [*self._clients]:
            if brokers.get(broker_id) != self._clients[broker_id].endpoint:
                self._clients.pop(broker_id).close()
                self._apis.pop(broker_id, None)
                self._up.discard(broker_id)
        for broker_id, endpoint in brokers.items():
            if broker_id not in self._clients:
                self._clients[broker_id] = self._client(endpoint)

    async def _learn(self, broker_id: int) -> None:
        """Store the versions of a broker, and whether the broker is up. If the connection to the
        broker is open, its versions are known, and the broker is not asked.
        """
        try:
            self._apis[broker_id] = await self._clients[broker_id].apis()
            self._up.add(broker_id)
        except BrokerError as error:
            self._up.discard(broker_id)
            if self._lines.allow(f"broker {broker_id}") is not None:
                _log.warning("broker_does_not_answer", broker=broker_id, problem=str(error))

    def _set(self, cluster_id: str, brokers: Mapping[int, Endpoint], controller: int) -> None:
        known = {each: self._apis[each] for each in brokers if each in self._apis}
        if not known:
            return
        newest = self._apis[min(self._up & known.keys(), default=min(known))]
        cluster = UpstreamCluster(
            cluster_id,
            brokers,
            controller,
            {broker_id: apis.ranges for broker_id, apis in known.items()},
            newest.features,
        )
        if cluster != self.cluster:
            self.cluster = cluster
            for observer in self.observers:
                observer(cluster)

    async def _of_any(self, ask: Callable[[BrokerClient], Any]) -> Any:
        problem: BrokerError = NotSent("no broker of the upstream is known")
        for client in self._candidates():
            try:
                return await ask(client)
            except BrokerError as error:
                problem = error
        raise problem

    def _candidates(self) -> Iterator[BrokerClient]:
        """Yield the clients to ask, first those that are most likely to answer."""
        up: Collection[int] = sorted(self._up & self._clients.keys())
        yield from [self._clients[each] for each in up]
        yield from self._bootstrap
        yield from [client for each, client in self._clients.items() if each not in up]

    def _client(self, endpoint: Endpoint) -> BrokerClient:
        return BrokerClient(
            endpoint,
            self._settings.security,
            connect_timeout_s=self._settings.connect_timeout_ms / 1000,
            request_timeout_s=REQUEST_TIMEOUT_S,
        )
