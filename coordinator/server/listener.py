"""A listener of the Kafka port: its name, the requests that it serves, and the services that their
handlers get.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from groupkeeper.coordinator.handlers.routes import Routes
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.handlers.table import ROUTES


class Listener(NamedTuple):
    """The rules for every client that connects to one address."""

    name: str
    """The listener name, as in Kafka: ``PLAINTEXT``, ``INTERNAL``... No two listeners have the same
    name."""
    routes: Routes = ROUTES
    """The requests that this listener serves, and the check of permissions."""
    services: Services | None = None
    """The services that the handlers of this listener use. None means the services of the server.
    """


PLAINTEXT: Final = Listener("PLAINTEXT")
"""Every operation is allowed, and nothing is encrypted."""
