"""An address to listen on: ``HOST:PORT``, as in a file or on a command line."""

from __future__ import annotations

from typing import NamedTuple


class HostPort(NamedTuple):
    """An address. Its text is ``HOST:PORT``, with brackets around an IPv6 address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> HostPort:
    """Return the address in ``HOST:PORT`` or ``[IPV6]:PORT``. Port 0 lets the system choose one.
    Raises ValueError for any other text.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(f"{text!r} is not HOST:PORT (brackets enclose an IPv6 host)")
    return HostPort(host, int(port))
