"""A daemon and a real Kafka for the whole run, with the same topics, and the commands."""

from __future__ import annotations

import importlib.util
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from tests.helpers.clients.ecosystem import Unavailable
from tests.helpers.daemon.daemon import free_port
from tests.helpers.daemon.servers import Groupkeeper

if TYPE_CHECKING:
    from groupkeeper.pipeline.restore.cluster import Cluster
    from tests.helpers.clients.real_kafka import RealKafka

if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]

TOPICS = {"orders": 4, "clicks": 2}
SASL_PORT = free_port()
"""Where the same Kafka asks who one is."""
RECORDS = 100
"""What Kafka holds in each partition of its topics."""


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """A broker with records in every partition."""
    from tests.helpers.clients.kafka_life import produce
    from tests.helpers.clients.real_kafka import RealKafka, with_sasl

    try:
        server = RealKafka(tmp_path_factory.mktemp("kafka"), TOPICS)
        server.settings |= with_sasl(server.port, SASL_PORT)
    except Unavailable as lack:
        pytest.skip(str(lack))
    try:
        server.start()
        for topic, partitions in TOPICS.items():
            produce(server.bootstrap, topic, partitions, RECORDS)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groupkeeper]:
    """The daemon with the same topics."""
    server = Groupkeeper(tmp_path_factory.mktemp("daemon"), topics=TOPICS)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group of the test's own."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")


def open_cluster(bootstrap: str) -> Cluster:
    """An administrator's clients."""
    from groupkeeper.pipeline.restore.cluster import ClusterEndpoint

    return ClusterEndpoint(bootstrap).open("tests")


def a_moment() -> int:
    """A time that what was before is before, and what comes is after."""
    time.sleep(0.02)
    at = time.time_ns() // 1_000_000
    time.sleep(0.02)
    return at


@dataclass
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def content(self) -> Any:
        return json.loads(self.out)


def command(*arguments: object, code: int | None = 0, tool: str = "pipeline") -> Answer:
    """Run ``groupkeeper pipeline …`` in this process, which has the one Spark session."""
    from groupkeeper.coordinator.cli.main import app

    result = CliRunner().invoke(app, [tool, *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    answer = Answer(result.exit_code, result.stdout, result.stderr)
    assert code is None or answer.code == code, answer
    return answer


def sqlite_file(daemon: Groupkeeper) -> Path:
    """Where its events are."""
    return daemon.directory / "groupkeeper.db"
