"""Opens and closes the listeners of gateway mode, as brokers of the upstream appear and disappear.

The upstream is the Kafka cluster behind the gateway. Our own node is the coordinator, which clients
see as one more broker.

Each upstream broker has a listener of ours. The broker's port is stored durably before the listener
opens. If no port is free, the broker that has been away for longest loses its port. If no broker is
away, or another program uses the port, we log this and try again.

After a restart the listeners of the brokers of earlier runs open first, and then the listener of
our own node. So no returning client is refused. Our answers to Metadata name such a broker only
after the upstream's own metadata has named it.

This file is long because it connects all parts of a gateway.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog

from groupkeeper.coordinator.cluster.topics import OURSELVES
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.topics import ChangeUpstream
from groupkeeper.coordinator.gateway.addresses import Addresses
from groupkeeper.coordinator.gateway.apis import PRODUCE, TABLE, Treatment, treatments
from groupkeeper.coordinator.gateway.client_login import ClientLogin, no_login
from groupkeeper.coordinator.gateway.front import WITHOUT_BROKER, Divide, Front, Versions, offer
from groupkeeper.coordinator.gateway.link import BrokerLink, LinkOwner, LinkTarget
from groupkeeper.coordinator.gateway.own_node import Asking, OwnNode
from groupkeeper.coordinator.gateway.own_part import serve_part
from groupkeeper.coordinator.gateway.request_stream import acks_of
from groupkeeper.coordinator.gateway.settings import GatewaySettings
from groupkeeper.coordinator.handlers import find_coordinator
from groupkeeper.coordinator.handlers.offer import OURS
from groupkeeper.coordinator.handlers.routes import Handle, Route, Routes, not_served
from groupkeeper.coordinator.handlers.services import Endpoint, Services
from groupkeeper.coordinator.handlers.table import APIS_SERVED
from groupkeeper.coordinator.runtime.line_limit import LineLimit
from groupkeeper.coordinator.runtime.tickets import Awaited
from groupkeeper.coordinator.server.listener import Listener
from groupkeeper.protocol.versions import ApiKey

if TYPE_CHECKING:
    from groupkeeper.coordinator.cluster.upstream_record import UpstreamRecord
    from groupkeeper.coordinator.gateway.brokers import UpstreamBrokers, UpstreamCluster
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Coordinator
    from groupkeeper.coordinator.server.server import KafkaServer

RETRY_S: Final = 5.0
"""The time after which we try again to open a listener that could not be opened."""
LOG_EVERY_S: Final = 60.0

NOT_KNOWN: Final = Endpoint("", 0)
"""The address of a broker that has not been in the metadata in this run. Nobody connects to it."""

NO_ROUTES: Final[Mapping[ApiKey, Route]] = {}

CHANGES_TOPICS: Final = frozenset(
    {ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS}
)
"""When a broker has answered one of these APIs, we ask the upstream for its topics at once."""

_log = structlog.get_logger("groupkeeper.gateway")


Bind: TypeAlias = Callable[[str, int], socket.socket | None]
_Found: TypeAlias = tuple[int, socket.socket, int | None]
"""A port, the socket that listens on it, and the broker that loses this port (None: no broker)."""


def bind_port(host: str, port: int) -> socket.socket | None:
    """Return a socket that listens on this address; None if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen()
    except OSError:
        sock.close()
        return None
    sock.setblocking(False)
    return sock


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
        self._bind = bind
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
        self.missing: dict[int, str] = {}
        """Broker -> the reason why it has no listener."""
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
        self._offer = OURS
        self._follows_logins = settings.identity == "client"
        self._treatments: Mapping[tuple[int, int], Treatment] = {}
        self._services = replace(
            services,
            offer=lambda: self._offer,
            leads=False,
            other_brokers=self.addresses.brokers,
            auto_create_topics=False,
        )
        self._own_node = OwnNode(
            Asking(
                link=self._link,
                addresses=self.addresses,
                offline=self._offline,
                answered=self._passed,
                max_reply_bytes=services.max_reply_bytes,
                login=self._login if self._follows_logins else no_login,
            )
        )
        self._served = {**APIS_SERVED, **transactions}
        self._parts = Routes(APIS_SERVED)
        self._own_routes = self._routes_of_own_node()
        self._server: KafkaServer
        self._coordinator: Coordinator = services.coordinator
        self._is_listening = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._lines = LineLimit(asyncio.get_running_loop().time, LOG_EVERY_S, 1)

    # --- Life -------------------------------------------------------------------------------------

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
        listener = Listener(name, self._own_routes, self._known_services())
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
            if self._may_log("problem"):
                _log.error("upstream_refused", problem=self.problem)
            return False
        self._learn(cluster)
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

    def _learn(self, cluster: UpstreamCluster) -> None:
        """Offer on our own node the versions and features that every broker has."""
        common = common_versions(cluster.versions.values())
        follows = self._follows_logins
        self._offer = offer(common, cluster.features, follows_logins=follows)
        self._treatments = treatments(common, follows_logins=follows)

    async def _open(self, broker_id: int, endpoint: Endpoint, cluster: UpstreamCluster) -> bool:
        front = self._remembered.pop(broker_id, None)
        if front is None:
            sock = await self._bound(broker_id, cluster)
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
        for broker_id, port in self._record.ports.items():
            in_range = port in self._settings.ports
            sock = self._bind(self._settings.listen_host, port) if in_range else None
            if sock is None:
                continue
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
            self._passed,
            self._served,
        )

    def _close(self, broker_id: int) -> None:
        front = self.fronts.pop(broker_id)
        self.addresses.ended(broker_id)
        self._server.end(front.listener)
        _log.info("listener_closed", broker=broker_id, reason="not in the upstream's metadata")

    # --- Ports ------------------------------------------------------------------------------------

    async def _bound(self, broker_id: int, cluster: UpstreamCluster) -> socket.socket | None:
        """Return a socket that listens on the port of a broker, after the port is durable.

        Return None if this must be tried again. ``missing`` then has the reason.
        """
        port = self._record.ports.get(broker_id)
        if port is not None and port in self._settings.ports:
            sock = self._bind(self._settings.listen_host, port)
            if sock is None:
                self.missing[broker_id] = f"port {port} is taken"
                if self._may_log(f"taken {port}"):
                    _log.error("listener_port_taken", broker=broker_id, port=port)
            return sock
        found = self._bind_free() or self._bind_of_gone(cluster)
        if found is None:
            shown = _shown(self._settings)
            self.missing[broker_id] = f"no port of upstream.ports ({shown}) is free"
            if self._may_log(f"no port {broker_id}"):
                _log.error("listener_ports_used_up", broker=broker_id, ports=shown)
            return None
        port, sock, gone_id = found
        taken_back = () if gone_id is None else ((gone_id, 0),)
        # This stays the reason if the store turns out to have another port after a load.
        self.missing[broker_id] = f"its port {port} is not in the store yet"
        try:
            await self._store(ChangeUpstream(OURSELVES, (*taken_back, (broker_id, port))))
        except BaseException:
            sock.close()
            raise
        if self._record.ports.get(broker_id) != port:
            sock.close()
            return None
        if gone_id is not None:
            _log.warning("listener_port_reused", broker=broker_id, port=port, gone_broker=gone_id)
        return sock

    def _bind_free(self) -> _Found | None:
        """Listen on the first usable port that no broker has. Return None if there is none."""
        used = set(self._record.ports.values())
        for port in self._settings.ports:
            if (
                port not in used
                and (sock := self._bind(self._settings.listen_host, port)) is not None
            ):
                return port, sock, None
        return None

    def _bind_of_gone(self, cluster: UpstreamCluster) -> _Found | None:
        """Listen on the port of the broker that has been away for longest. Return None if no such
        port can be used. Brokers that were not seen in this run count as away for longest.
        """
        ports = self._record.ports
        gone = [broker_id for broker_id in ports if broker_id not in cluster.brokers]
        for broker_id in sorted(gone, key=lambda each: (self._seen_s.get(each, -1.0), each)):
            port = ports[broker_id]
            if (
                port in self._settings.ports
                and (sock := self._bind(self._settings.listen_host, port)) is not None
            ):
                return port, sock, broker_id
        return None

    async def _store(self, request: ChangeUpstream) -> None:
        """Write this change to the cluster shard. Retry until it is durable."""
        while True:
            answer = Awaited()
            self._coordinator.submit(request, answer)
            result = await answer.future
            if result.error is ErrorCode.NONE:
                return
            await asyncio.sleep(RETRY_S / 10)

    def _may_log(self, what: str) -> bool:
        return self._lines.allow(what) is not None

    # --- Our own node -----------------------------------------------------------------------------

    def _routes_of_own_node(self) -> Routes:
        own = {
            key: route
            for key, route in self._served.items()
            if TABLE[key].treatment is Treatment.OURS
        }
        if not self._follows_logins:
            return Routes(own, None, self._other)
        node = self._own_node
        guarded = {
            key: route
            if key is ApiKey.API_VERSIONS
            else route._replace(handle=node.authenticated(route.handle))
            for key, route in own.items()
        }
        other = node.authenticated(self._other)

        def log_in_or_admit(exchange: Exchange, services: Services) -> None:
            treatment = self._treatments.get((exchange.key, exchange.version))
            admit = node.log_in if treatment is Treatment.LOGIN else other
            admit(exchange, services)

        return Routes(guarded, None, log_in_or_admit)

    def _login(self) -> ClientLogin:
        return ClientLogin(self._treatments, asyncio.get_running_loop().time)

    def _own(self, host: str) -> Endpoint:
        return self._advertised or Endpoint(host, self._own_port)

    def _link(self, owner: LinkOwner, failed: frozenset[int]) -> BrokerLink | None:
        """Begin to connect to a broker that is not in ``failed``. Return the link, or None if there
        is no other broker.
        """
        first = self._brokers.pick()
        ids = [first] if first is not None else []
        ids += [broker_id for broker_id in self.fronts if broker_id != first]
        for broker_id in ids:
            if broker_id not in failed and broker_id in self.fronts:
                return BrokerLink(self.fronts[broker_id].target, owner)
        return None

    def _offline(self, key: int, version: int) -> Handle | None:
        if key == ApiKey.FIND_COORDINATOR:
            return find_coordinator.handle
        if self._follows_logins:
            return None  # only the brokers know which topics this client may see
        return WITHOUT_BROKER.get((key, version))

    def _passed(self, key: int) -> None:
        if key in CHANGES_TOPICS:
            self._brokers.ask_now()

    def _other(self, exchange: Exchange, services: Services) -> None:
        """Handle a request that our own node does not answer alone."""
        key, version = exchange.key, exchange.version
        treatment = self._treatments.get((key, version))
        if not self.fronts and self._offline(key, version) is not None:
            self._offline(key, version)(exchange, services)  # type: ignore[misc]
        elif treatment is None:
            not_served(exchange, services)
        elif key == PRODUCE and acks_of(exchange.frame, version) == 0:
            exchange.channel.refused(exchange, "produce_without_acks")
        elif treatment in (Treatment.SPLIT, Treatment.TRANSLATED):
            self._divided(exchange, services)
        else:
            self._own_node.forward(exchange, services)

    def _divided(self, exchange: Exchange, services: Services) -> None:
        view = self.addresses.view(exchange.channel.local_address()[0])
        ours, theirs, merge = self._divide(exchange.key, exchange.version, exchange.frame, view)
        if theirs is None:
            assert ours is not None, "a request without a part"
            exchange.frame = ours
            self._parts[exchange.key, exchange.version](exchange, services)
        elif merge is None:
            self._own_node.forward(exchange, services, theirs)
        elif ours is None:
            self._own_node.ask(exchange, services, theirs, lambda reply: merge(None, reply))
        else:

            def then(mine: bytes) -> None:
                self._own_node.ask(exchange, services, theirs, lambda reply: merge(mine, reply))

            serve_part(exchange, ours, self._parts, services, then)


def common_versions(brokers: Collection[Versions]) -> Versions:
    """Return the versions that every broker has. An API is left out if the brokers have no version
    in common.
    """
    if not brokers:
        return {}
    common = {}
    for key in set.intersection(*[set(ranges) for ranges in brokers]):
        lowest = max(ranges[key][0] for ranges in brokers)
        highest = min(ranges[key][1] for ranges in brokers)
        if lowest <= highest:
            common[key] = (lowest, highest)
    return common


def _text(endpoint: Endpoint) -> str:
    return f"{endpoint.host}:{endpoint.port}"


def _shown(settings: GatewaySettings) -> str:
    return f"{settings.ports.start}-{settings.ports.stop - 1}"
