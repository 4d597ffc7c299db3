"""A way in to the Kafka port."""

from __future__ import annotations

from typing import Final, NamedTuple

from groupkeeper.coordinator.handlers.routes import Routes
from groupkeeper.coordinator.handlers.table import ROUTES


class Listener(NamedTuple):
    """What holds for everyone who comes in by one address."""

    name: str
    """Kafka's term: ``PLAINTEXT``, ``INTERNAL``... One for each address."""
    routes: Routes = ROUTES
    """What may be asked there, and by whom."""


PLAINTEXT: Final = Listener("PLAINTEXT")
"""Everyone may do everything, and nothing is encrypted."""
