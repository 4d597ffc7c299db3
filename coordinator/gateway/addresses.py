"""The addresses of a gateway for its clients: our own node, and the listener of each broker.

Our own node is the coordinator, which clients see as one more broker. The listener of a broker is a
port of ours, through which clients reach that broker.

The port of a broker's listener is durable (``cluster.upstream_record``). The host is the configured
one. If no host is configured, it is our own address to which the client connected. So clients in
several networks each get an address that they can reach.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from groupkeeper.coordinator.gateway.rewriting import View
from groupkeeper.coordinator.handlers.services import Endpoint

MAX_VIEWS: Final = 64
"""The largest number of addresses of this machine for which a ``View`` is kept. A machine usually
has few."""


class Addresses:
    """The addresses of our own node and of the brokers that have a listener now."""

    def __init__(
        self,
        node_id: int,
        own: Callable[[str], Endpoint],
        broker_host: str,
        hidden_topics: Collection[str] = (),
    ) -> None:
        """``own`` returns the address of our own node, for a client that connected to this host of
        ours. ``broker_host`` is the configured host of the brokers' listeners; empty if there is
        none. ``hidden_topics`` are left out of answers.
        """
        self.node_id = node_id
        self.own = own
        self._broker_host = broker_host
        self._hidden_topics = frozenset(hidden_topics)
        self._ports: dict[int, int] = {}
        self._views: dict[str, View] = {}

    @property
    def ports(self) -> Mapping[int, int]:
        """Broker id -> the port of its listener, for the brokers that have one now."""
        return self._ports

    def listens(self, broker_id: int, port: int) -> None:
        """Add the listener of a broker."""
        self._ports[broker_id] = port
        self._views.clear()

    def ended(self, broker_id: int) -> None:
        """Remove the listener of a broker."""
        self._ports.pop(broker_id, None)
        self._views.clear()

    def view(self, host: str) -> View:
        """Return the cluster as it looks to a client that connected to this host of ours."""
        view = self._views.get(host)
        if view is None:
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            shown = self._broker_host or host
            brokers = {broker_id: Endpoint(shown, port) for broker_id, port in self._ports.items()}
            view = View(self.node_id, self.own(host), brokers, self._hidden_topics)
            self._views[host] = view
        return view

    def brokers(self, host: str) -> Mapping[int, Endpoint]:
        """Return the address of each broker for a client that connected to this host of ours."""
        return self.view(host).brokers
