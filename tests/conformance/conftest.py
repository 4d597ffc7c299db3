"""Fixtures: one server a test process for what needs no restart, and hosts of real clients."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.members import Hosts, hosts_for
from tests.helpers.raw_client import RawClient
from tests.helpers.servers import Server, a_server

TOPIC = "orders"
PARTITIONS = 12


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """For tests that leave the process alone."""
    server = a_server(tmp_path_factory.mktemp("server"), {TOPIC: PARTITIONS})
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """For tests that stop, kill or restart it."""
    server = a_server(tmp_path / "server", {TOPIC: PARTITIONS})
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def shared_hosts(shared_server: Server) -> Iterator[Hosts]:
    """Hosts against the shared server; importing a client library once a run is enough."""
    yield from hosts_for(f"127.0.0.1:{shared_server.port}")


@pytest.fixture
def own_hosts(own_server: Server) -> Iterator[Hosts]:
    """Hosts against the test's own server."""
    yield from hosts_for(f"127.0.0.1:{own_server.port}")


@pytest.fixture
def raw(shared_server: Server) -> Iterator[RawClient]:
    """A raw connection to the shared server."""
    with RawClient(shared_server.port) as client:
        yield client


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group of the test's own."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
