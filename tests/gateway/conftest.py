"""A real Apache Kafka, and the daemon in front of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.daemon.gateways import a_gateway
from tests.helpers.daemon.recorded_gateway import UPSTREAM_HOST, RecordedGateway
from tests.helpers.daemon.servers import Groupkeeper

SETTINGS = {"message.max.bytes": 30_000_000, "replica.fetch.max.bytes": 30_000_000}


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """An Apache Kafka with one broker."""
    server = RealKafka(tmp_path_factory.mktemp("kafka"), {}, SETTINGS)
    server.settings["advertised.listeners"] = f"PLAINTEXT://{UPSTREAM_HOST}:{server.port}"
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(scope="module")
def gateway(kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groupkeeper]:
    """The daemon in front of it."""
    daemon = a_gateway(tmp_path_factory.mktemp("gateway"), kafka.bootstrap)
    try:
        yield daemon.start()
    finally:
        daemon.stop()


@pytest.fixture(scope="module")
def recorded(
    kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RecordedGateway]:
    """The daemon in front of it, with a record of every reply."""
    gateway = RecordedGateway(tmp_path_factory.mktemp("recorded"), kafka)
    try:
        yield gateway.start()
    finally:
        gateway.stop()
