"""``groupkeeper upstream status``: what it prints, and a daemon whose upstream does not answer."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.gateway.status import (
    BrokerStatus,
    JournalStatus,
    MirrorStatus,
    UpstreamStatus,
    WaitingTransaction,
)
from tests.helpers.daemon.daemon import free_port
from tests.helpers.daemon.gateways import a_gateway

STATUS = UpstreamStatus(
    problem="",
    cluster_id="c1",
    answered_s=3.2,
    brokers=[
        BrokerStatus(1, "b1:9092", 9100, "", True, 7, 10, 20, 3.2),
        BrokerStatus(2, "b2:9092", 9101, "port 9101 is taken", False, 0, 0, 0, 3.2),
        BrokerStatus(3, "", 9102, "it is not in the upstream's metadata", True, 0, 0, 0, None),
    ],
    journal=JournalStatus(
        topic="transactions",
        topic_id="t1",
        problem="",
        lag_records=4,
        lost={5: "the topic was\ndeleted"},
        ended_transactions=6,
        open=[WaitingTransaction("billing\x1b[2J", 9, 1, 2, 1_700_000_000_000)],
        not_shown=3,
        silent_shards=1,
    ),
    adopted_groups=8,
    mirror=MirrorStatus(lag_s=1.5, waiting_groups=2, refused=0),
)

Answers = Callable[[int, bytes], None]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """Let an HTTP port answer with this status and page."""
    answer: list[Any] = [404, b""]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answer[0] if self.path == "/upstream" else 404)
            self.end_headers()
            self.wfile.write(answer[1])

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("GROUPKEEPER_HTTP__LISTEN", f"127.0.0.1:{server.server_port}")
        monkeypatch.setenv("GROUPKEEPER_UPSTREAM__BOOTSTRAP", "127.0.0.1:1")
        yield lambda status, page: answer.__setitem__(slice(None), (status, page))
        server.shutdown()
        thread.join()


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["upstream", "status", *arguments], prog_name="groupkeeper")
    assert result.exit_code == code, result.output
    return result.output


def test_brokers_and_open_transactions_are_printed_as_tables(answers: Answers) -> None:
    answers(200, msgspec.json.encode(STATUS))
    told = run()
    assert "cluster c1, answered 3 s ago\n" in told
    rows = [line.split() for line in told.splitlines()]
    assert ["1", "9100", "up", "3", "s", "ago", "7", "10", "20", "b1:9092", "-"] in rows
    assert "down" in told
    assert "port 9101 is taken" in told
    assert "gone" in told
    assert "not since the start" in told
    assert r"shard 5 is lost (groupkeeper upstream resolve): the topic was\ndeleted" in told
    assert "records to read: 4\n" in told
    assert "open transactions: 4\n" in told
    assert "and 3 more\n" in told
    assert "\x1b" not in told
    assert "2 groups wait for at most 1.5 s, 0 offsets were refused" in told
    assert json.loads(run("-o", "json")) == json.loads(msgspec.json.encode(STATUS))


def test_a_port_that_is_no_gateway_is_told(answers: Answers) -> None:
    answers(404, b"Not Found")
    assert "/upstream: 404 Not Found" in run(code=1)
    answers(200, b"{}")
    assert "another version" in run(code=1)


def test_settings_without_an_upstream_are_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROUPKEEPER_UPSTREAM__BOOTSTRAP", raising=False)
    assert "this is not a gateway" in run(code=2)


@pytest.mark.slow
def test_a_gateway_says_that_no_broker_has_answered(tmp_path: Path) -> None:
    gateway = a_gateway(tmp_path / "gateway", f"127.0.0.1:{free_port()}")
    try:
        gateway.launch()
        for _ in range(600):
            if "no broker" in gateway.get("/readyz")[1]:
                break
            time.sleep(0.05)
        told = run("--config", str(gateway.config_file))
        assert "not served: no broker of the upstream has answered yet" in told
        assert "open transactions: 0" in told
    finally:
        gateway.stop()
