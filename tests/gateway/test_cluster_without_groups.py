"""A cluster without groups gains working ones: franz-go's ``kfake``, with those APIs masked."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.gateway.test_clients import a_topic, committed_here
from tests.gateway.test_transactions import consumed
from tests.helpers.clients.ecosystem import Host, Unavailable
from tests.helpers.daemon.gateways import a_gateway
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.gateway.copiers import Copier, gateway_go
from tests.helpers.wire.raw_client import RawClient

pytestmark = [pytest.mark.gateway, pytest.mark.slow, pytest.mark.go]

LIVES = ("franz-go/life-cycle", "franz-go/cooperative-sticky", "kadm/groups", "kadm/offsets")
RECORDS = 300
LIMIT_S = 120


@pytest.fixture(scope="module")
def groupless() -> Iterator[str]:
    """The address of three brokers without groups."""
    try:
        command = [*gateway_go(), "kfake"]
    except Unavailable as lack:
        pytest.skip(str(lack))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield ",".join(json.loads(process.stdout.readline()))
        finally:
            process.kill()


@pytest.fixture(scope="module")
def front(groupless: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groupkeeper]:
    daemon = a_gateway(tmp_path_factory.mktemp("front"), groupless)
    try:
        yield daemon.start()
    finally:
        daemon.stop()


def test_the_cluster_itself_has_no_groups(groupless: str) -> None:
    with RawClient(int(groupless.split(",")[0].rpartition(":")[2])) as raw:
        keys = {each["api_key"] for each in raw.call("api_versions", 2)["api_keys"]}
    assert keys >= {0, 1, 2, 3, 10, 22, 26}
    assert keys & {8, 9, 11, 12, 13, 14, 28, 68} == set()


def test_groups_live_in_front_of_it(front: Groupkeeper) -> None:
    lives = [(life, life.replace("/", "-")) for life in LIVES]
    host = Host("go", front.bootstrap, lives)
    try:
        for life, group in lives:
            host.live(life, group)
    finally:
        host.end()


def test_offsets_are_exact_in_its_transactions(
    groupless: str, front: Groupkeeper, tmp_path: Path
) -> None:
    source, sink = a_topic(front.bootstrap, 2), a_topic(front.bootstrap, 1)
    producer = Producer({"bootstrap.servers": front.bootstrap})
    for n in range(RECORDS):
        producer.produce(source, value=str(n))
    assert producer.flush(LIMIT_S) == 0
    where = [front.bootstrap, source, sink, "copiers", "copier"]
    copier = Copier("franz-go", where, tmp_path / "copier.log").start()
    try:
        copier.wait(lambda: committed_here(front, "copiers") >= RECORDS, LIMIT_S)
    finally:
        copier.kill()
    assert consumed(front.bootstrap, sink) == Counter(str(n).encode() for n in range(RECORDS))
    assert copier.said("committed") > 0
