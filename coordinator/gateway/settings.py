"""The settings of gateway mode. ``daemon.upstream_settings`` describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from groupkeeper.coordinator.gateway.security import Security
from groupkeeper.coordinator.handlers.services import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """The names are those of ``[upstream]`` in the config."""

    bootstrap: tuple[Endpoint, ...]
    ports: range
    """The ports that listeners of brokers may use."""
    listen_host: str
    """The host of ``kafka.listen``, on which the listeners of brokers listen too."""
    advertised_host: str = ""
    """The host that clients get for every broker. If it is empty, they get the host of
    ``kafka.advertised``, or else the host that they connected to.
    """
    security: Security
    identity: Literal["ours", "client"] = "ours"
    connect_timeout_ms: int = 5_000
    metadata_refresh_ms: int = 5_000
    window_bytes: int = 262_144
    max_frame_bytes: int = 104_857_600
    journal_topic: str = "__groupkeeper_transactions"

    @property
    def client_security(self) -> Security:
        """The security of the links of client connections to brokers. They have no login of ours if
        each client authenticates itself.
        """
        return Security(self.security.tls) if self.identity == "client" else self.security
