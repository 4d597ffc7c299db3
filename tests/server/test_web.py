"""The HTTP port on a loopback socket: pages, and that uvicorn leaves the signals alone."""

from __future__ import annotations

import asyncio
import signal

import pytest

from coordinator.config import Address
from coordinator.process import bind, bound_address
from coordinator.web.pages import Reports, make_pages
from coordinator.web.server import WebServer


class State:
    """What the pages report; a test changes it."""

    def __init__(self) -> None:
        self.not_ready: str | None = None


@pytest.fixture
def state():
    return State()


@pytest.fixture
async def port(state):
    listener = bind(Address("127.0.0.1", 0), "http.listen")
    port = bound_address(listener).port

    async def metrics() -> bytes:
        return b"up 1\n"

    reports = Reports(metrics=metrics, not_ready=lambda: state.not_ready)
    server = WebServer(make_pages(reports), listener)
    server.start()
    yield port
    await server.stop()


async def get(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, body


async def test_health_is_ok_while_the_loop_turns(port):
    assert (await get(port, "/healthz"))[::2] == (200, "ok\n")


async def test_readiness_says_why_not(port, state):
    assert (await get(port, "/readyz"))[::2] == (200, "ready\n")
    state.not_ready = "loading"
    assert (await get(port, "/readyz"))[::2] == (503, "not ready: loading\n")


async def test_metrics_are_served_in_prometheus_text_format(port):
    status, headers, body = await get(port, "/metrics")
    assert (status, body) == (200, "up 1\n")
    assert headers["content-type"].startswith("text/plain; version=")


async def test_other_pages_and_methods_are_refused(port):
    assert (await get(port, "/nothing"))[0] == 404
    assert (await get(port, "/metrics", "POST"))[0] == 405


async def test_signals_stay_with_whoever_had_them(port):
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    await get(port, "/healthz")
    assert {number: signal.getsignal(number) for number in before} == before


async def test_a_stopped_server_lets_go_of_its_port():
    listener = bind(Address("127.0.0.1", 0), "http.listen")
    address = bound_address(listener)
    server = WebServer(make_pages(Reports(lambda: b"", lambda: None)), listener)
    server.start()
    assert (await get(address.port, "/healthz"))[0] == 200
    await server.stop()
    bind(address, "http.listen").close()


async def test_a_server_that_never_started_lets_go_of_its_port():
    listener = bind(Address("127.0.0.1", 0), "http.listen")
    address = bound_address(listener)
    await WebServer(make_pages(Reports(lambda: b"", lambda: None)), listener).stop()
    bind(address, "http.listen").close()
