"""The sender of a request: client id, host and principal."""

from __future__ import annotations

from typing import NamedTuple


class Client(NamedTuple):
    """The sender of a request."""

    client_id: str
    client_host: str
    """The peer's address as Kafka prints it, with a leading slash: ``/127.0.0.1``."""
    principal: str = "User:ANONYMOUS"
