"""The routes of our own node in gateway mode: who answers a request, we or a broker.

The upstream is the Kafka cluster behind the gateway. Our own node is the coordinator, which clients
see as one more broker. We answer requests about groups. ``own_node`` sends the other requests to a
broker. A request for both is divided (``splitting``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from groupkeeper.coordinator.gateway.addresses import Addresses
from groupkeeper.coordinator.gateway.apis import PRODUCE, TABLE, Treatment, treatments
from groupkeeper.coordinator.gateway.awaited_versions import AwaitedVersions
from groupkeeper.coordinator.gateway.client_login import ClientLogin, no_login
from groupkeeper.coordinator.gateway.front import WITHOUT_BROKER, Divide, Front, Versions, offer
from groupkeeper.coordinator.gateway.link import BrokerLink, LinkOwner
from groupkeeper.coordinator.gateway.own_node import Asking, OwnNode
from groupkeeper.coordinator.gateway.own_part import serve_part
from groupkeeper.coordinator.gateway.request_stream import acks_of
from groupkeeper.coordinator.handlers import find_coordinator
from groupkeeper.coordinator.handlers.offer import OURS
from groupkeeper.coordinator.handlers.routes import Handle, Route, Routes, not_served
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.handlers.table import APIS_SERVED
from groupkeeper.protocol.versions import ApiKey

if TYPE_CHECKING:
    from groupkeeper.coordinator.gateway.brokers import UpstreamBrokers, UpstreamCluster
    from groupkeeper.coordinator.handlers.exchange import Exchange

CHANGES_TOPICS: Final = frozenset(
    {ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS}
)
"""When a broker has answered one of these APIs, we ask the upstream for its topics at once."""

WAIT_FOR_VERSIONS_S: Final = 1.0
"""How long ApiVersions on our own node waits after a start for the first answer of the upstream.
Without it, the APIs of brokers would be missing in the answer. kafka-python waits two seconds.
"""


class OwnRoutes:
    """The routes of our own node's listener, and the versions that it offers."""

    def __init__(  # noqa: PLR0913 - the parts that it connects
        self,
        brokers: UpstreamBrokers,
        fronts: Mapping[int, Front],
        addresses: Addresses,
        served: Mapping[ApiKey, Route],
        divide: Divide,
        max_reply_bytes: int,
        *,
        follows_logins: bool,
    ) -> None:
        """``fronts`` are the present listeners of brokers, by broker. ``served`` are the APIs that
        we answer. If ``follows_logins``, a broker authenticates each client.
        """
        self._brokers = brokers
        self._fronts = fronts
        self._addresses = addresses
        self._served = served
        self._divide = divide
        self._follows_logins = follows_logins
        self._treatments: Mapping[tuple[int, int], Treatment] = {}
        self._node = OwnNode(
            Asking(
                link=self._link,
                addresses=addresses,
                offline=self._offline,
                answered=self.passed,
                max_reply_bytes=max_reply_bytes,
                login=self._login if follows_logins else no_login,
            )
        )
        self._parts = Routes(APIS_SERVED)
        self._versions = AwaitedVersions(WAIT_FOR_VERSIONS_S, answers_late=True)
        self.offer = OURS
        """The answer to ApiVersions."""
        self.routes = self._make_routes()

    def learn(self, cluster: UpstreamCluster) -> None:
        """Offer the versions and features that every broker has."""
        common = common_versions(cluster.versions.values())
        follows = self._follows_logins
        self.offer = offer(common, cluster.features, follows_logins=follows)
        self._treatments = treatments(common, follows_logins=follows)
        if common:
            self._versions.known()

    def passed(self, key: int) -> None:
        """Called with the API key of each request that a broker has answered."""
        if key in CHANGES_TOPICS:
            self._brokers.ask_now()

    def _make_routes(self) -> Routes:
        own = {
            key: route
            for key, route in self._served.items()
            if TABLE[key].treatment is Treatment.OURS
        }
        own[ApiKey.API_VERSIONS] = Route(self._versions.handle)
        if not self._follows_logins:
            return Routes(own, None, self._other)
        node = self._node
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

    def _link(self, owner: LinkOwner, failed: frozenset[int]) -> BrokerLink | None:
        """Begin to connect to a broker that is not in ``failed``. Return the link, or None if there
        is no other broker.
        """
        first = self._brokers.pick()
        ids = [first] if first is not None else []
        ids += [broker_id for broker_id in self._fronts if broker_id != first]
        for broker_id in ids:
            if broker_id not in failed and broker_id in self._fronts:
                return BrokerLink(self._fronts[broker_id].target, owner)
        return None

    def _offline(self, key: int, version: int) -> Handle | None:
        if key == ApiKey.FIND_COORDINATOR:
            return find_coordinator.handle
        if self._follows_logins:
            return None  # only the brokers know which topics this client may see
        return WITHOUT_BROKER.get((key, version))

    def _other(self, exchange: Exchange, services: Services) -> None:
        """Handle a request that our own node does not answer alone."""
        key, version = exchange.key, exchange.version
        treatment = self._treatments.get((key, version))
        if not self._fronts and self._offline(key, version) is not None:
            self._offline(key, version)(exchange, services)  # type: ignore[misc]
        elif treatment is None:
            not_served(exchange, services)
        elif key == PRODUCE and acks_of(exchange.frame, version) == 0:
            exchange.channel.refused(exchange, "produce_without_acks")
        elif treatment in (Treatment.SPLIT, Treatment.TRANSLATED):
            self._divided(exchange, services)
        else:
            self._node.forward(exchange, services)

    def _divided(self, exchange: Exchange, services: Services) -> None:
        view = self._addresses.view(exchange.channel.local_address()[0])
        ours, theirs, merge = self._divide(exchange.key, exchange.version, exchange.frame, view)
        if theirs is None:
            assert ours is not None, "a request without a part"
            exchange.frame = ours
            self._parts[exchange.key, exchange.version](exchange, services)
        elif merge is None:
            self._node.forward(exchange, services, theirs)
        elif ours is None:
            self._node.ask(exchange, services, theirs, lambda reply: merge(None, reply))
        else:

            def then(mine: bytes) -> None:
                self._node.ask(exchange, services, theirs, lambda reply: merge(mine, reply))

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
