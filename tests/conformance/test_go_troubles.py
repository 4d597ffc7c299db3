"""Go clients whose coordinator is in trouble, at a limit, or looks often for what is over."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.clients.compatibility import OWN_SERVER, package
from tests.helpers.clients.ecosystem import Host, Unavailable
from tests.helpers.daemon.faulty_server import FaultyDaemon, wait_until
from tests.helpers.daemon.servers import Groupkeeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.conftest import Found

pytestmark = [pytest.mark.clients, pytest.mark.go]

LOADING = 'groupkeeper_requests_total{api="JoinGroup",error="COORDINATOR_LOAD_IN_PROGRESS"'


@contextmanager
def _living(life: str, server: Groupkeeper, found: Found) -> Iterator[Host]:
    """The Go program at this life, against a server of its own."""
    assert life in OWN_SERVER
    host = Host("go", server.bootstrap, [(life, "billing")])
    try:
        try:
            found(life, host.versions()[package(life)])
        except Unavailable as lack:
            pytest.skip(str(lack))
        yield host
    finally:
        host.end()
        server.stop()


@pytest.mark.parametrize("life", ["shopify-1.8/store-away", "kafka-go/store-away"])
def test_a_store_that_fails_and_comes_back(life: str, tmp_path: Path, found: Found) -> None:
    server = FaultyDaemon(tmp_path / "server")
    server.start()
    server.fault("fail")
    with _living(life, server, found) as host:
        wait_until(lambda: LOADING in server.get("/metrics")[1], server)
        server.fault("")
        host.live(life, "billing")


@pytest.mark.parametrize(
    ("life", "setting", "value"),
    [
        ("shopify-1.8/group-limit", "group.max_groups", 1),
        ("kafka-go/group-limit", "group.max_groups", 1),
        ("shopify-1.8/large-group", "storage.max_group_bytes", 1_048_576),
        ("kafka-go/retention-time", "offsets.retention_check_interval_ms", 500),
        ("kafka-go/auto-create", "static.auto_create_topics", True),
        ("kafka-go/first-join", "group.initial_rebalance_delay_ms", 3_000),
        ("shopify-1.8/timestamp", "offsets.retention_check_interval_ms", 500),
    ],
)
def test_a_limit_that_a_client_meets(
    life: str, setting: str, value: object, tmp_path: Path, found: Found
) -> None:
    server = Groupkeeper(tmp_path / "server", topics={"orders": 400}, settings={setting: value})
    server.start()
    with _living(life, server, found) as host:
        host.live(life, "billing")
