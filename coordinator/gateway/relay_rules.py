"""The rules of a broker's listener for its client connections (``relay``).

The listener is a port of ours, through which clients reach the broker. Our own node is the
coordinator, which clients see as one more broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from groupkeeper.coordinator.gateway.apis import Treatment
from groupkeeper.coordinator.gateway.client_login import ClientLogin, no_login
from groupkeeper.coordinator.gateway.link import OpenLink
from groupkeeper.coordinator.gateway.reply_stream import Change
from groupkeeper.coordinator.gateway.request_stream import WholeRequest
from groupkeeper.coordinator.gateway.splitting import Division
from groupkeeper.coordinator.handlers.services import Endpoint

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.routes import Routes


class RelayRules(NamedTuple):
    """How the connections of one broker's listener treat requests and replies."""

    open_link: OpenLink
    """Begins a connection to the broker."""
    treatments: Callable[[], Mapping[tuple[int, int], Treatment]]
    """Returns the present treatment of each (key, version)."""
    own: Callable[[str], Endpoint]
    """Returns the address of our own node for a client that connected to this host of ours."""
    change: Callable[[str, int, int], Change | None]
    """Returns the function that rewrites the reply to a (key, version). Returns None if the reply
    is not rewritten. The first argument is the host of ours that the client connected to.
    """
    divide: Callable[[str, WholeRequest], Division]
    """Divides a request that is split or translated."""
    passed: Callable[[int], None]
    """Called with the API key of each passed request that was answered."""
    offline: Routes
    """The routes of the requests that we answer if the broker cannot be reached."""
    max_passed_bytes: int
    """The longest passed request or reply."""
    window_bytes: int
    """If about this many bytes wait for one peer, we do not read from the other peer."""
    login: Callable[[], ClientLogin | None] = no_login
    """Returns a new ``ClientLogin`` for a client connection. Returns None if clients need not log
    in.
    """
