"""Stores with a journal, by the kind of their server."""

from __future__ import annotations

from typing import Any, Final

import pytest

from groupkeeper.storage.backends.journal.driver import JournalDriver
from tests.helpers.storage.consul_site import ConsulSite
from tests.helpers.storage.fake_driver import FakeDriver, FakeServer
from tests.helpers.storage.postgres_site import PostgresSite
from tests.helpers.storage.zookeeper_site import ZooKeeperSite

SITES: Final[dict[str, Any]] = {
    "zookeeper": ZooKeeperSite,
    "consul": ConsulSite,
    "postgres": PostgresSite,
}
KINDS: Final = ["fake", *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in SITES)]
"""The parameters of a fixture for ``make_site``."""


class FakeSite:
    """One store on a fake server."""

    def __init__(self) -> None:
        self.server = FakeServer()

    def driver(self) -> JournalDriver:
        return FakeDriver(self.server)


def url_of(site: Any) -> str:
    """Return the URL of a store on a real server, as in ``storage.url``."""
    if isinstance(site, ZooKeeperSite):
        return f"zookeeper://{site.server.servers}{site.chroot}"
    if isinstance(site, ConsulSite):
        return f"consul://{site.server.address}/{site.prefix}"
    url = site.server.url
    return f"{url}{'&' if '?' in url else '?'}schema={site.schema}"


def make_site(request: pytest.FixtureRequest) -> Any:
    """Return a new store on a server of the kind that the parameter names."""
    kind = request.param
    return FakeSite() if kind == "fake" else SITES[kind](request.getfixturevalue(kind))
