"""Opens and closes the listeners of gateway mode, as brokers of the upstream appear and disappear.

The upstream is the Kafka cluster behind the gateway. Our own node is the coordinator, which clients
see as one more broker.

Each upstream broker has a listener of ours, on a port that ``listener_ports`` opens. If there is no
port for it, we try again later. Our own node answers with ``own_routes``.

After a restart the listeners of the brokers of earlier runs open first, and then the listener of
our own node. So no returning client is refused. Our answers to Metadata name such a broker only
after the upstream's own metadata has named it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from groupkeeper.coordinator.cluster.topics import OURSELVES
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.topics import ChangeUpstream
from groupkeeper.coordinator.gateway.addresses import Addresses
from groupkeeper.coordinator.gateway.front import Divide, Front
from groupkeeper.coordinator.gateway.link import LinkTarget
from groupkeeper.coordinator.gateway.listener_ports import Bind, ListenerPorts, bind_port
from groupkeeper.coordinator.gateway.own_routes import OwnRoutes
from groupkeeper.coordinator.gateway.settings import GatewaySettings
from groupkeeper.coordinator.handlers.routes import Route
from groupkeeper.coordinator.handlers.services import Endpoint, Services
from groupkeeper.coordinator.handlers.table import APIS_SERVED
from groupkeeper.coordinator.runtime.line_limit import LineLimit
from groupkeeper.coordinator.runtime.tickets import Awaited
from groupkeeper.coordinator.server.listener import Listener
from groupkeeper.protocol.versions import ApiKey

if TYPE_CHECKING:
    from groupkeeper.coordinator.cluster.upstream_record import UpstreamRecord
    from groupkeeper.coordinator.gateway.brokers import UpstreamBrokers, UpstreamCluster
    from groupkeeper.coordinator.handlers.services import Coordinator
    from groupkeeper.coordinator.server.server import KafkaServer

RETRY_S: Final = 5.0
"""The time after which we try again to open a listener that could not be opened."""
LOG_EVERY_S: Final = 60.0

NOT_KNOWN: Final = Endpoint("", 0)
"""The address of a broker that has not been in the metadata in this run. Nobody connects to it."""

NO_ROUTES: Final[Mapping[ApiKey, Route]] = {}

_log = structlog.get_logger("groupkeeper.gateway")


class Gateway:
    """The listeners of a gateway: our own node, and one in front of each broker."""

    def __init__(  # noqa: PLR0913 - the parts that it connects
        self,
        settings: GatewaySettings,
        services: Services,
        record: UpstreamRecord,
        brokers: UpstreamBrokers,
        divide: Divide,
        bind: Bind = bind_port,
        transactions: Mapping[ApiKey, Route] = NO_ROUTES,
    ) -> None:
        """``services`` are those of our own node. ``start`` opens the listeners of brokers.

        ``transactions`` are the routes of the APIs that only a gateway serves.
        """
        self._settings = settings
        self._record = record
        self._brokers = brokers
        self._divide = divide
        self.problem = ""
        """The reason why the upstream is not served until a person acts; otherwise empty."""
        self.fronts: dict[int, Front] = {}
        """Broker -> its listener, for each broker of the last metadata that has one."""
        self._remembered: dict[int, Front] = {}
        """Broker of an earlier run -> its listener, which is open again. If the first metadata has
        the broker, the listener moves to ``fronts``. Otherwise the listener closes.
        """
        self._seen_s: dict[int, float] = {}
        """Broker -> the last time, by the loop's clock, at which ``_reconcile`` knew that the
        broker was in the metadata of the upstream. Brokers not seen in this run have no entry.
        """
        self._present: Collection[int] = ()
        """The ids of the brokers in the last metadata."""
        self.targets: dict[int, LinkTarget] = {}
        """Broker -> its address and the counters of connections to it. An entry stays if its broker
        leaves the upstream during this run.
        """
        self._own_port = 0
        self._own_host = services.advertised.host if services.advertised is not None else ""
        self._advertised = services.advertised
        self.addresses = Addresses(
            services.node_id,
            self._own,
            settings.advertised_host or self._own_host,
            hidden_topics=(settings.journal_topic,),
        )
        self._follows_logins = settings.identity == "client"
        self._served = {**APIS_SERVED, **transactions}
        self._own_routes = OwnRoutes(
            brokers,
            self.fronts,
            self.addresses,
            self._served,
            divide,
            services.max_reply_bytes,
            follows_logins=self._follows_logins,
        )
        self._services = replace(
            services,
            offer=lambda: self._own_routes.offer,
            leads=False,
            other_brokers=self.addresses.brokers,
            auto_create_topics=False,
        )
        self._server: KafkaServer
        self._coordinator: Coordinator = services.coordinator
        self._is_listening = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._lines = LineLimit(asyncio.get_running_loop().time, LOG_EVERY_S, 1)
        self._ports = ListenerPorts(settings, record, self._store, self._seen_s, self._lines, bind)
        self.missing = self._ports.missing
        """Broker -> the reason why it has no listener."""

    # --- Start and stop ---------------------------------------------------------------------------

    def start(self, server: KafkaServer, own_sock: socket.socket) -> None:
        """Begin to open a listener for each broker, as brokers become known.

        ``own_sock`` is the bound socket of our own node. Our own node listens at once if the
        cluster is known from an earlier run: groups are served although no broker answers.
        Otherwise it waits for the first metadata.
        """
        self._server = server
        self._own_port = own_sock.getsockname()[1]
        self._brokers.observers.append(lambda _: self._changed.set())
        self._changed.set()
        self._task = asyncio.get_running_loop().create_task(self._run(own_sock))

    async def stop(self) -> None:
        """Open no more listeners. The server closes those that are open."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    @property
    def not_ready(self) -> str | None:
        """Why clients are not served, in one line; None if they are served."""
        if self.problem:
            return self.problem
        if not self._is_listening:
            return "no broker of the upstream has answered yet"
        return None

    @property
    def missing_brokers(self) -> str:
        """The brokers that clients cannot reach, in one line; "" if they can reach all."""
        if not self.missing:
            return ""
        numbers = ", ".join(map(str, sorted(self.missing)))
        return f"brokers without a listener: {numbers} ({self.missing[min(self.missing)]})"

    @property
    def age_s(self) -> float | None:
        """The time since a broker last answered; None if none has answered in this run."""
        answered_s = self._brokers.answered_s
        return None if answered_s is None else asyncio.get_running_loop().time() - answered_s

    def gone_s(self, broker_id: int) -> float | None:
        """Return the time since a broker left the metadata; None if that was before this run."""
        seen_s = self._seen_s.get(broker_id)
        return None if seen_s is None else asyncio.get_running_loop().time() - seen_s

    async def _run(self, own_sock: socket.socket) -> None:
        if self._record.cluster_id:
            await self._open_remembered()
            await self._listen(own_sock)
        retry = False
        while True:
            try:
                async with asyncio.timeout(RETRY_S if retry else None):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            cluster = self._brokers.cluster
            if cluster is None:
                continue
            try:
                retry = not await self._reconcile(cluster)
                if self._record.cluster_id and not self._is_listening:
                    await self._listen(own_sock)
            except Exception:  # noqa: BLE001 - it is tried again
                _log.exception("listeners_not_reconciled")
                retry = True

    async def _listen(self, own_sock: socket.socket) -> None:
        """Let clients connect to our own node."""
        own_sock.listen()
        name = "SASL_PLAINTEXT" if self._follows_logins else "PLAINTEXT"
        listener = Listener(name, self._own_routes.routes, self._known_services())
        await self._server.start(own_sock, listener)
        self._is_listening = True

    def _known_services(self) -> Services:
        """Return the services of a listener, with the cluster id, which is already durable."""
        return replace(self._services, cluster_id=self._record.cluster_id)

    # --- Listeners --------------------------------------------------------------------------------

    async def _reconcile(self, cluster: UpstreamCluster) -> bool:
        """Open and close listeners, so that each broker of the upstream has one. Return False if
        something must be tried again.
        """
        self.problem = await self._check(cluster)
        if self.problem:
            if self._lines.allow("problem") is not None:
                _log.error("upstream_refused", problem=self.problem)
            return False
        self._own_routes.learn(cluster)
        for broker_id in self.fronts.keys() - cluster.brokers.keys():
            self._close(broker_id)
        for broker_id in self._remembered.keys() - cluster.brokers.keys():
            self._server.end(self._remembered.pop(broker_id).listener)
            del self.targets[broker_id]
        for broker_id in self.missing.keys() - cluster.brokers.keys():
            del self.missing[broker_id]
        now_s = asyncio.get_running_loop().time()
        self._seen_s.update(dict.fromkeys([*self._present, *cluster.brokers], now_s))
        self._present = cluster.brokers.keys()
        done = True
        for broker_id, endpoint in sorted(cluster.brokers.items()):
            front = self.fronts.get(broker_id)
            if front is None:
                done &= await self._open(broker_id, endpoint, cluster)
            else:
                front.target.endpoint = endpoint
                front.learn(cluster.versions.get(broker_id, {}), cluster.features)
        return done

    async def _check(self, cluster: UpstreamCluster) -> str:
        """Return the reason why this upstream must not be served; "" if it may be."""
        node_id = self._services.node_id
        if at := cluster.brokers.get(node_id):
            return (
                f"kafka.node_id is {node_id}, which is the id of the upstream broker at "
                f"{_text(at)}: set another one. If that is this daemon itself, correct "
                "upstream.bootstrap instead"
            )
        if not self._record.cluster_id:
            await self._store(ChangeUpstream(OURSELVES, cluster_id=cluster.cluster_id))
        if self._record.cluster_id != cluster.cluster_id:
            return (
                f"upstream.bootstrap leads to the cluster {cluster.cluster_id}, and the store has "
                f"the groups of the cluster {self._record.cluster_id}"
            )
        return ""

    async def _open(self, broker_id: int, endpoint: Endpoint, cluster: UpstreamCluster) -> bool:
        front = self._remembered.pop(broker_id, None)
        if front is None:
            sock = await self._ports.bound(broker_id, cluster)
            if sock is None:
                return False
            front = self._front(broker_id)
            await self._listen_for(sock, front)
        front.target.endpoint = endpoint
        front.learn(cluster.versions.get(broker_id, {}), cluster.features)
        port = self._record.ports[broker_id]
        self.fronts[broker_id] = front
        self.missing.pop(broker_id, None)
        self.addresses.listens(broker_id, port)
        _log.info("listener_opened", broker=broker_id, upstream=_text(endpoint), port=port)
        return True

    async def _open_remembered(self) -> None:
        """Listen on the ports of the brokers of earlier runs. A failure is not logged here: such a
        listener is tried again after the first metadata.
        """
        for broker_id, sock in self._ports.bound_before():
            front = self._front(broker_id)
            with suppress(OSError):
                await self._listen_for(sock, front)
                self._remembered[broker_id] = front

    async def _listen_for(self, sock: socket.socket, front: Front) -> None:
        try:
            await self._server.start(sock, front.listener, front.connection)
        except BaseException:
            sock.close()
            raise

    def _front(self, broker_id: int) -> Front:
        target = self.targets.get(broker_id)
        if target is None:
            target = self.targets[broker_id] = LinkTarget(
                broker_id,
                NOT_KNOWN,
                self._settings.client_security,
                self._settings.connect_timeout_ms / 1000,
            )
        return Front(
            target,
            self._known_services(),
            self.addresses,
            self._settings,
            self._divide,
            self._own_routes.passed,
            self._served,
        )

    def _close(self, broker_id: int) -> None:
        front = self.fronts.pop(broker_id)
        self.addresses.ended(broker_id)
        self._server.end(front.listener)
        _log.info("listener_closed", broker=broker_id, reason="not in the upstream's metadata")

    async def _store(self, request: ChangeUpstream) -> None:
        """Write this change to the cluster shard. Retry until it is durable."""
        while True:
            answer = Awaited()
            self._coordinator.submit(request, answer)
            result = await answer.future
            if result.error is ErrorCode.NONE:
                return
            await asyncio.sleep(RETRY_S / 10)

    def _own(self, host: str) -> Endpoint:
        return self._advertised or Endpoint(host, self._own_port)


def _text(endpoint: Endpoint) -> str:
    return f"{endpoint.host}:{endpoint.port}"
