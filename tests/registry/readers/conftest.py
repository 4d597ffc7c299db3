"""One Kafka with 100,000 messages and one Consul for all tests here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.helpers.clients.real_consul import RealConsul
from tests.registry.readers.log_of_messages import COUNTS, TOPIC, Watched, fill


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    watched = Watched(tmp_path_factory.mktemp("kafka") / "broker")
    try:
        asyncio.run(fill(watched.bootstrap, TOPIC, COUNTS))
        asyncio.run(fill(watched.bootstrap, "short", [3_000, 500]))
        yield watched
    finally:
        watched.stop()


@pytest.fixture(scope="session")
def consul(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealConsul]:
    server = RealConsul(tmp_path_factory.mktemp("consul") / "server").start()
    yield server
    server.stop()
