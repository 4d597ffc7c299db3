"""The client of a connection: its address, its principal and its software."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Callable
from functools import lru_cache
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
        self.address = sys.intern(address)
        """The client's address, without the port."""
        self.principal = principal
        self.client_host = _client_host(address)
        """The address in the form in which Kafka shows it."""
        self.client = _client("", self.client_host, principal)
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
        name = client_id or ""
        if len(name) <= MAX_KEPT_CHARS:
            self.client = _client(name, self.client_host, self.principal)
            return self.client
        self.client = _client(name[:MAX_KEPT_CHARS], self.client_host, self.principal)
        return Client(name, self.client_host, self.principal)

    def runs(self, name: str, version: str) -> None:
        """Remember the name and version of the client's software."""
        self.software = f"{name} {version}"[:MAX_KEPT_CHARS]


_SHARED: Final = 1_000
"""The largest number of clients, and the largest number of addresses, that connections share in
memory."""


@lru_cache(_SHARED)
def _client(client_id: str, client_host: str, principal: str) -> Client:
    return Client(client_id, client_host, principal)


@lru_cache(_SHARED)
def _client_host(address: str) -> str:
    return "/" + java_address(address)


def java_address(address: str) -> str:
    """Return an address as Java prints it, for Kafka's client host: IPv6 without "::"."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
