"""The listener in front of one upstream broker: the APIs that it lists, answers and passes on.

The upstream is the Kafka cluster behind the gateway. Our own node is the coordinator, which clients
see as one more broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from groupkeeper.coordinator.gateway.addresses import Addresses
from groupkeeper.coordinator.gateway.apis import Treatment, features, offered, treatments
from groupkeeper.coordinator.gateway.awaited_versions import AwaitedVersions
from groupkeeper.coordinator.gateway.client_login import ClientLogin, no_login
from groupkeeper.coordinator.gateway.link import BrokerLink, LinkTarget
from groupkeeper.coordinator.gateway.relay import RelayConnection
from groupkeeper.coordinator.gateway.relay_rules import RelayRules
from groupkeeper.coordinator.gateway.reply_stream import Change
from groupkeeper.coordinator.gateway.request_stream import WholeRequest
from groupkeeper.coordinator.gateway.rewriting import View, rewrite
from groupkeeper.coordinator.gateway.settings import GatewaySettings
from groupkeeper.coordinator.gateway.splitting import Division
from groupkeeper.coordinator.handlers import metadata
from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.coordinator.handlers.offer import Offer, OfferedApi, OfferedFeature
from groupkeeper.coordinator.handlers.routes import Route, Routes
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.handlers.table import APIS_SERVED
from groupkeeper.coordinator.server.listener import Listener
from groupkeeper.coordinator.server.shared import Shared
from groupkeeper.protocol.versions import ApiKey, Feature

Versions: TypeAlias = Mapping[int, tuple[int, int]]
"""API key -> the lowest and the highest version."""
Divide: TypeAlias = Callable[[int, int, bytes, View], Division]

WITHOUT_BROKER: Final = Routes({ApiKey.METADATA: Route(metadata.handle)})
"""The requests that we answer from our own list of topics if the broker cannot be reached."""


def offer(
    versions: Versions, upstream: Mapping[str, int], epoch: int = 1, *, follows_logins: bool = False
) -> Offer:
    """Return what ApiVersions lists on a listener, for a broker with these versions
    and features.
    """
    finalized = [Feature(name, 0, level, level) for name, level in upstream.items()]
    listed = offered(versions, follows_logins=follows_logins)
    return Offer(
        (OfferedApi(key, low, high) for key, (low, high) in sorted(listed.items())),
        (
            OfferedFeature(f.name, f.min_version, f.max_version, f.finalized)
            for f in features(finalized)
        ),
        epoch,
    )


def list_no_groups(exchange: Exchange, services: Services) -> None:
    """Answer ListGroups with no groups. Only our own node lists groups, so that a client that asks
    every broker sees each group once.
    """
    exchange.read(services)
    exchange.send(exchange.write(error_code=0, groups=()))


class Front:
    """Our listener in front of one broker of the upstream."""

    def __init__(  # noqa: PLR0913 - the parts that it connects
        self,
        target: LinkTarget,
        services: Services,
        addresses: Addresses,
        settings: GatewaySettings,
        divide: Divide,
        passed: Callable[[int], None],
        served: Mapping[ApiKey, Route] = APIS_SERVED,
    ) -> None:
        """``services`` are those of our own node. ``divide`` splits a request between us and the
        broker (``splitting``). ``passed`` is called with the API key of each passed request that
        was answered. ``served`` are the APIs that we answer ourselves.
        """
        self.target = target
        self._addresses = addresses
        self._divide = divide
        self._follows_logins = settings.identity == "client"
        self._treatments: Mapping[tuple[int, int], Treatment] = {}
        self._offer: Offer
        self._versions = AwaitedVersions(target.connect_timeout_s)
        self.learn({}, {})
        self._services = replace(
            services,
            offer=lambda: self._offer,
            leads=False,
            other_brokers=addresses.brokers,
            auto_create_topics=False,
        )
        self._rules = RelayRules(
            open_link=partial(BrokerLink, target),
            treatments=lambda: self._treatments,
            own=addresses.own,
            change=self._change,
            divide=self._divided,
            passed=passed,
            offline=WITHOUT_BROKER,
            max_passed_bytes=settings.max_frame_bytes,
            window_bytes=settings.window_bytes,
            login=self._login if self._follows_logins else no_login,
        )
        routes = {
            **served,
            ApiKey.LIST_GROUPS: Route(list_no_groups),
            ApiKey.API_VERSIONS: Route(self._versions.handle),
        }
        self.listener = Listener(f"BROKER-{target.broker_id}", Routes(routes), self._services)

    def learn(self, versions: Versions, upstream: Mapping[str, int]) -> None:
        """Use the versions and features that the broker has now. Empty ``versions`` mean that the
        broker has not answered yet. Then its clients wait.
        """
        follows = self._follows_logins
        self._treatments = treatments(versions, follows_logins=follows)
        self._offer = offer(versions, upstream, follows_logins=follows)
        if versions:
            self._versions.known()

    def connection(self, shared: Shared, listener: Listener) -> RelayConnection:
        """Return a new connection of the listener."""
        return RelayConnection(shared, listener, self._rules)

    def _login(self) -> ClientLogin:
        return ClientLogin(self._treatments, asyncio.get_running_loop().time)

    def _change(self, host: str, key: int, version: int) -> Change | None:
        if self._treatments.get((key, version)) not in (Treatment.REWRITTEN, Treatment.SPLIT):
            return None
        view = self._addresses.view(host)
        return lambda reply: rewrite(key, version, reply, view)

    def _divided(self, host: str, piece: WholeRequest) -> Division:
        return self._divide(piece.key, piece.version, piece.frame, self._addresses.view(host))
