"""Who speaks on a connection, as far as that is known."""

from __future__ import annotations

import ipaddress
from typing import Final

from groupkeeper.coordinator.core.requests import Client

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of everyone who has not said who they are."""

MAX_SOFTWARE_CHARS: Final = 249
"""Of what a client says of itself: its software may have a name of 32,767."""


class Session:
    """One connection's: where it came in, from which address, as whom, with which software."""

    __slots__ = ("address", "client", "client_host", "listener", "principal", "software")

    def __init__(self, listener: str, address: str, principal: str = ANONYMOUS) -> None:
        """Nothing was asked yet."""
        self.listener = listener
        """The name of the listener that it came in by."""
        self.address = address
        """The peer's, without the port."""
        self.principal = principal
        self.client_host = "/" + java_address(address)
        """The address as Kafka shows it to others."""
        self.client = Client("", self.client_host, principal)
        """Who sent the last request."""
        self.software = ""
        """Name and version of the client's library, where it has told them (ApiVersions, 3 on)."""

    def named(self, client_id: str | None) -> Client:
        """Return who sends a request with this client id, and keep it: the next has the same."""
        self.client = Client(client_id or "", self.client_host, self.principal)
        return self.client

    def runs(self, name: str, version: str) -> None:
        """Take note of the client's software."""
        self.software = f"{name} {version}"[:MAX_SOFTWARE_CHARS]


def java_address(address: str) -> str:
    """Print an address as Java does, which Kafka's client host shows: IPv6 without "::"."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
