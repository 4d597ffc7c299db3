"""The client of a connection: its address, its principal and its software."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

from groupkeeper.coordinator.core.requests.client import Client

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal (the name of the user) of a client that has not authenticated itself."""

MAX_KEPT_CHARS: Final = 249
"""The longest client id, and the longest name of a client's software, that a connection keeps. A
client may send 32,767 bytes of each, and the memory of an idle connection is not part of any
budget."""


class Session:
    """The client of one connection: its listener, address, principal and software."""

    __slots__ = ("address", "client", "client_host", "listener", "on_end", "principal", "software")

    def __init__(self, listener: str, address: str, principal: str = ANONYMOUS) -> None:
        self.listener = listener
        """The name of the listener that the client connected to."""
        self.address = address
        """The client's address, without the port."""
        self.principal = principal
        self.client_host = "/" + java_address(address)
        """The address in the form in which Kafka shows it."""
        self.client = Client("", self.client_host, principal)
        """The sender of the last request: its client id, address and principal. A long client id is
        cut."""
        self.software = ""
        """Name and version of the client's library, if the client sent them (ApiVersions 3 and
        later).
        """
        self.on_end: Callable[[], None] | None = None
        """Called when the connection has ended."""

    def named(self, client_id: str | None) -> Client:
        """Return the sender of a request with this client id. The sender is also kept in
        ``client``, because the next request usually has the same client id.
        """
        client = self.client = Client(client_id or "", self.client_host, self.principal)
        if len(client.client_id) > MAX_KEPT_CHARS:
            self.client = client._replace(client_id=client.client_id[:MAX_KEPT_CHARS])
        return client

    def runs(self, name: str, version: str) -> None:
        """Remember the name and version of the client's software."""
        self.software = f"{name} {version}"[:MAX_KEPT_CHARS]


def java_address(address: str) -> str:
    """Return an address as Java prints it, for Kafka's client host: IPv6 without "::"."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
