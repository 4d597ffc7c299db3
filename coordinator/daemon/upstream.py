"""Puts the parts of gateway mode together, for ``app``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupkeeper.coordinator.daemon.address import parse_address
from groupkeeper.coordinator.daemon.process import StartFailed
from groupkeeper.coordinator.daemon.upstream_settings import parse_ports
from groupkeeper.coordinator.gateway.brokers import UpstreamBrokers
from groupkeeper.coordinator.gateway.gateway import Gateway
from groupkeeper.coordinator.gateway.observed_topics import ObservedTopics
from groupkeeper.coordinator.gateway.security import SecurityError, read_security
from groupkeeper.coordinator.gateway.settings import GatewaySettings
from groupkeeper.coordinator.gateway.splitting import divide
from groupkeeper.coordinator.handlers.services import Endpoint, Services

MAX_REQUEST_ELEMENTS = 20_000

if TYPE_CHECKING:
    import socket

    from groupkeeper.coordinator.cluster.topics import Topics
    from groupkeeper.coordinator.daemon.config import Settings
    from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
    from groupkeeper.coordinator.server.server import KafkaServer


def gateway_settings(settings: Settings) -> GatewaySettings:
    """Return the settings of the gateway's parts. Raises StartFailed if a file cannot be used."""
    upstream = settings.upstream
    try:
        security = read_security(
            tls=upstream.tls,
            ca_file=upstream.ca_file,
            cert_file=upstream.cert_file,
            key_file=upstream.key_file,
            mechanism=upstream.sasl,
            user=upstream.user,
            password_file=upstream.password_file,
        )
    except SecurityError as error:
        raise StartFailed(str(error)) from error
    return GatewaySettings(
        bootstrap=tuple(Endpoint(*address) for address in upstream.addresses),
        ports=parse_ports(upstream.ports),
        listen_host=parse_address(settings.kafka.listen).host,
        advertised_host=upstream.advertised_host,
        security=security,
        connect_timeout_ms=upstream.connect_timeout_ms,
        metadata_refresh_ms=upstream.metadata_refresh_ms,
        window_bytes=upstream.window_bytes,
        max_frame_bytes=upstream.max_frame_bytes,
    )


class Upstream:
    """The upstream cluster and the gateway in front of it."""

    def __init__(
        self,
        settings: Settings,
        services: Services,
        coordinator: GroupCoordinator,
        topics: Topics,
    ) -> None:
        """Read the files of the settings. Raises StartFailed."""
        config = gateway_settings(settings)
        self.brokers = UpstreamBrokers(config, ObservedTopics(topics), coordinator.upstream_record)
        self.gateway = Gateway(config, services, coordinator.upstream_record, self.brokers, divide)

    def start(self, server: KafkaServer, own_sock: socket.socket) -> None:
        """Look at the upstream, and open the listeners: our own node's is the bound socket."""
        self.brokers.start()
        self.gateway.start(server, own_sock)

    async def stop(self) -> None:
        """Stop looking at the upstream."""
        await self.gateway.stop()
        await self.brokers.stop()
