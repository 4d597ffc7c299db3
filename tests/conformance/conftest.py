"""Fixtures: one server a test process for what needs no restart, and hosts of real clients."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.helpers.clients import compatibility
from tests.helpers.clients.ecosystem import TOOLCHAINS, Host, Unavailable
from tests.helpers.clients.kafka_tool import Tool, topic_with_ends
from tests.helpers.clients.members import Hosts, hosts_for
from tests.helpers.daemon.servers import Server, a_server
from tests.helpers.wire.raw_client import RawClient

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


@pytest.fixture(scope="session")
def programs(
    request: pytest.FixtureRequest, shared_server: Server
) -> Iterator[Callable[[str], Host]]:
    """The clients of other languages by language; all that are wanted start side by side.

    Each begins at once with the lives that were selected; a test waits for its own.
    """
    lives: dict[str, list[tuple[str, str]]] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and "programs" in item.fixturenames:
            for kind in TOOLCHAINS:
                if item.get_closest_marker(kind):
                    lives.setdefault(kind, [])
            scenario = getattr(item, "callspec", None) and item.callspec.params.get("life")
            if scenario:
                kind = next(kind for kind in TOOLCHAINS if item.get_closest_marker(kind))
                lives[kind].append((scenario.name, group_of(scenario)))
    hosts = {kind: Host(kind, f"127.0.0.1:{shared_server.port}", of) for kind, of in lives.items()}

    def program(kind: str) -> Host:
        try:
            hosts[kind].versions()
        except Unavailable as lack:
            pytest.skip(str(lack))
        return hosts[kind]

    try:
        yield program
    finally:
        for host in hosts.values():
            host.end()


def group_of(scenario: compatibility.Scenario) -> str:
    """A group of the scenario's own."""
    return re.sub(r"[^a-z0-9]+", "-", scenario.name)


Found = Callable[[str, str], None]


@pytest.fixture
def found(record_property: Callable[[str, object], None]) -> Found:
    """Tell which scenario a test shows, with which version of its client."""

    def tell(scenario: str, version: str) -> None:
        known = {row.name for row in compatibility.scenarios()}
        assert scenario in known, f"{scenario}: name it in tests/helpers/clients/compatibility.py"
        record_property("scenario", scenario)
        record_property("version", version)

    return tell


@pytest.fixture(autouse=True)
def _found_by_python(request: pytest.FixtureRequest) -> None:
    """The tests of the Python clients tell theirs by their names, and those of consumer groups."""
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    client, library = params.get("client"), params.get("library")
    if client in compatibility.PYTHON_CLIENTS:
        test = request.node.originalname.removeprefix("test_").replace("_", "-")
        tell: Found = request.getfixturevalue("found")
        tell(f"{client}/{test}", version(compatibility.PYTHON_CLIENTS[client]))
    elif library is not None and not request.node.get_closest_marker("clients_long"):
        name = compatibility.new_protocol(library, request.node.originalname.removeprefix("test_"))
        of = compatibility.pinned()[compatibility.package(name)]
        request.getfixturevalue("found")(name, of)


@pytest.fixture
def tool(
    programs: Callable[[str], Host],
    shared_server: Server,
    group: str,
    raw: RawClient,
    found: Found,
    request: pytest.FixtureRequest,
) -> Iterator[Tool]:
    """The tool, and a topic of three partitions of its own that end at 50, 60 and 70."""
    host = programs("java")
    name = request.node.name.removeprefix("test_").replace("_", "-")
    found(f"tool/{name}", host.versions()["kafka-clients"])
    tool = Tool(host, group)
    topic_with_ends(raw, shared_server, tool.topic, {0: 50, 1: 60, 2: 70})
    try:
        yield tool
    finally:
        tool.leave()
