"""Fixtures: one ZooKeeper a test process, and a chroot of its own for each test."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from groupkeeper.clients.zookeeper.registry import Registry
from tests.helpers.clients.real_zookeeper import RealZooKeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealZooKeeper]:
    """For tests that leave the process alone."""
    server = RealZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[RealZooKeeper]:
    """For tests that stop or restart it."""
    server = RealZooKeeper(tmp_path / "zookeeper")
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
def chroot(request: pytest.FixtureRequest) -> str:
    """A place of the test's own."""
    assert isinstance(request.node, pytest.Function)
    name = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.lower())
    return f"/tests/{name}/{uuid.uuid4().hex}"


@pytest.fixture
def servers(zookeeper: RealZooKeeper, chroot: str) -> str:
    """The connection string of the test's own place."""
    return f"{zookeeper.servers}{chroot}"


@pytest.fixture
async def registry(servers: str) -> AsyncIterator[Registry]:
    """A registry in the test's own place."""
    async with Registry(servers) as registry:
        yield registry


@pytest.fixture
async def other(servers: str) -> AsyncIterator[Registry]:
    """Another session in the same place."""
    async with Registry(servers) as registry:
        yield registry
