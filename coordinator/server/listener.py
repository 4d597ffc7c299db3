"""The listeners of the Kafka port."""

from __future__ import annotations

from typing import Final, NamedTuple

from groupkeeper.coordinator.handlers.routes import Routes
from groupkeeper.coordinator.handlers.table import ROUTES


class Listener(NamedTuple):
    """The rules for every client that connects to one address."""

    name: str
    """Kafka's term: ``PLAINTEXT``, ``INTERNAL``... One for each address."""
    routes: Routes = ROUTES
    """Which requests are served there, and for whom."""


PLAINTEXT: Final = Listener("PLAINTEXT")
"""Every operation is allowed, and nothing is encrypted."""
