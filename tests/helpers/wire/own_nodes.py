"""Our own node in gateway mode, without sockets. The test is the client and the brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from groupkeeper.coordinator.gateway.addresses import Addresses
from groupkeeper.coordinator.gateway.apis import LOGIN_APIS, treatments
from groupkeeper.coordinator.gateway.client_login import ClientLogin, no_login
from groupkeeper.coordinator.gateway.link import BrokerLink, LinkOwner
from groupkeeper.coordinator.gateway.own_node import Asking, OwnNode
from groupkeeper.coordinator.handlers import metadata
from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.coordinator.handlers.routes import Routes
from groupkeeper.coordinator.handlers.services import Endpoint, Services
from groupkeeper.coordinator.handlers.table import APIS_SERVED
from groupkeeper.coordinator.server.listener import Listener
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.protocol.versions import ApiKey
from tests.helpers.wire.connections import Peer, make_server
from tests.helpers.wire.handling import make_services
from tests.helpers.wire.relays import KAFKA_VERSIONS, FakeLink

OURS = (ApiKey.HEARTBEAT, ApiKey.API_VERSIONS, ApiKey.JOIN_GROUP)


class OwnNodePeer(Peer):
    """A client of our own node, and some brokers. Each broker has one link for each client."""

    def __init__(self, *brokers: int, follows_logins: bool = False) -> None:
        self.links: list[FakeLink] = []
        self.brokers = brokers
        self.answered: list[int] = []
        addresses = Addresses(1_000_000, lambda host: Endpoint(host, 9092), "")
        addresses.listens(1, 9100)
        table = treatments(KAFKA_VERSIONS, follows_logins=follows_logins)
        services = make_services(
            lambda _: 0, leads=False, node_id=1_000_000, other_brokers=addresses.brokers
        )
        self.server: KafkaServer = make_server(services=services)
        clock = self.server.loop.time
        self.node = OwnNode(
            Asking(
                self._link,
                addresses,
                self._offline,
                self.answered.append,
                1_000_000,
                (lambda: ClientLogin(table, clock)) if follows_logins else no_login,
            )
        )
        served = {key: APIS_SERVED[key] for key in OURS}
        routes = Routes(served, None, self.node.forward)
        if follows_logins:
            served = {
                key: route._replace(handle=self.node.authenticated(route.handle))
                for key, route in served.items()
            }
            routes = Routes(served, None, self._other)
        super().__init__(self.server, listener=Listener("PLAINTEXT", routes, services))

    def _other(self, exchange: Exchange, services: Services) -> None:
        if exchange.key in LOGIN_APIS:
            self.node.log_in(exchange, services)
        else:
            self.node.authenticated(self.node.forward)(exchange, services)

    def _link(self, owner: LinkOwner, failed: frozenset[int]) -> BrokerLink | None:
        for broker_id in self.brokers:
            if broker_id not in failed:
                link = FakeLink(owner)
                link.target.broker_id = broker_id
                self.links.append(link)
                return cast("BrokerLink", link)
        return None

    def _offline(self, key: int, _version: int) -> Callable[..., Any] | None:
        return metadata.handle if key == ApiKey.METADATA else None

    @property
    def link(self) -> FakeLink:
        """Return the newest link."""
        return self.links[-1]
