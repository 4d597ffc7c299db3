"""The functions that return the contents of the pages of the HTTP port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reports:
    """The functions that return the contents of the pages. A request for a page calls the function
    of this page on the event loop, so it must not block.
    """

    metrics: Callable[[], Awaitable[bytes]]
    not_ready: Callable[[], str | None]
    """Returns why groups are not served, in one line; None if they are served."""
    state: Callable[[], str] = str
    """Returns a second line for /readyz if groups are served; "" for none."""
    upstream: Callable[[], Awaitable[bytes]] | None = None
    """Returns /upstream as JSON. None without a gateway: then there is no such page."""
