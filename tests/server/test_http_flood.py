"""The daemon's HTTP port under silent peers: health answers, and the Kafka port has its
descriptors.
"""

from __future__ import annotations

import json
import resource
import socket
from pathlib import Path

import pytest

from tests.helpers.daemon.daemon import Daemon
from tests.helpers.wire.raw_client import RawClient

pytestmark = pytest.mark.slow

SILENT = 700
AT_ONCE = 50
"""So many connect before the daemon answers the next request. If too many wait, the kernel drops
some, and their peers think that they are connected.
"""


def silent_peers(address: str, count: int) -> list[socket.socket]:
    host, port = address.split(":")
    return [socket.create_connection((host, int(port)), timeout=10) for _ in range(count)]


def test_hundreds_of_silent_http_peers_stop_neither_health_nor_kafka(tmp_path: Path) -> None:
    daemon = Daemon(
        tmp_path,
        storage_url="memory:",
        settings={"kafka.max_connections": 100, "http.max_connections": 100},
    )
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    # what the daemon inherits: too few for the silent ones, as many as it asks for
    daemon.limit_files(456)
    daemon.start()
    peers: list[socket.socket] = []
    try:
        for _ in range(SILENT // AT_ONCE):
            peers += silent_peers(daemon.settings["http.listen"], AT_ONCE)
            assert daemon.get("/healthz") == (200, "ok\n")
        assert daemon.get("/readyz") == (200, "ready\n")
        port = int(daemon.bootstrap.rpartition(":")[2])
        clients = [RawClient(port) for _ in range(90)]
        for client in clients:
            reply = client.call("heartbeat", 4, group_id="g", generation_id=1, member_id="m")
            assert reply["error_code"] == 25
            client.close()
        assert daemon.get("/metrics")[0] == 200
        assert daemon.metric("groupkeeper_descriptor_shortages_total") == 0
        lines = [json.loads(line) for line in daemon.log.splitlines()]
        refused = [line for line in lines if line["event"] == "http_closed_at_limit"]
        assert {line["reason"] for line in refused} == {"too_many_connections"}
        assert len(refused) <= 20, "the log lines are limited"
        page = daemon.get("/metrics")[1]
        (row,) = [r for r in page.splitlines() if r.startswith("groupkeeper_http_refused_total{")]
        assert float(row.split()[1]) >= SILENT - 100
    finally:
        for peer in peers:
            peer.close()
        daemon.stop()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
