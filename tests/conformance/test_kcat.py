"""kcat, the command line of librdkafka, against the real process."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

from tests.conformance.conftest import PARTITIONS, TOPIC, Found
from tests.helpers.clients import ecosystem
from tests.helpers.core.group_view import commit, describe
from tests.helpers.daemon.servers import Server
from tests.helpers.wire.raw_client import RawClient

pytestmark = pytest.mark.clients


class Kcat:
    """The program, against one server."""

    def __init__(self, port: int) -> None:
        self._command, environment = ecosystem.kcat()
        self._environment = {**os.environ, **environment}
        self._bootstrap = f"127.0.0.1:{port}"

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self._command, *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done
        return done

    def of_broker(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self("-b", self._bootstrap, *arguments)

    def version(self) -> str:
        said = re.search(r"Version (\S+) .*librdkafka (\S+) ", self("-V").stdout)
        assert said
        return f"{said[1]} (librdkafka {said[2]})"


@pytest.fixture
def kcat(shared_server: Server, found: Found, request: pytest.FixtureRequest) -> Kcat:
    try:
        program = Kcat(shared_server.port)
    except ecosystem.Unavailable as lack:
        pytest.skip(str(lack))
    found(f"kcat/{request.node.name.removeprefix('test_')}", program.version())
    return program


def test_metadata(kcat: Kcat, shared_server: Server) -> None:
    told = json.loads(kcat.of_broker("-L", "-J").stdout)
    assert [broker["name"] for broker in told["brokers"]] == [f"127.0.0.1:{shared_server.port}"]
    partitions = {topic["topic"]: len(topic["partitions"]) for topic in told["topics"]}
    assert partitions[TOPIC] == PARTITIONS


def test_group(kcat: Kcat, raw: RawClient, group: str) -> None:
    said = kcat.of_broker("-X", "heartbeat.interval.ms=300", "-e", "-G", group, TOPIC).stderr
    assigned = re.search(r"rebalanced \(memberid \S+\): assigned: (.*)", said)
    assert assigned, said
    assert set(re.findall(r"\[(\d+)\]", assigned[1])) == {str(n) for n in range(PARTITIONS)}
    assert said.count("Reached end of topic") == PARTITIONS
    assert describe(raw, group)["group_state"] == "Empty", "it said goodbye"


def test_offsets(kcat: Kcat, raw: RawClient, group: str) -> None:
    topic = f"{group}-topic"
    wanted = [{"name": topic, "num_partitions": 1, "replication_factor": 1}]
    raw.call("create_topics", 5, topics=wanted, timeout=30_000)
    if not os.environ.get("CONFORMANCE_KAFKA"):
        commit(raw, group, topic, {0: 7})
    end = 0 if os.environ.get("CONFORMANCE_KAFKA") else 7
    told = kcat.of_broker("-Q", "-t", f"{topic}:0:-2", "-t", f"{topic}:0:-1").stdout.split("\n")
    assert f"{topic} [0] offset {end}" in told, told
