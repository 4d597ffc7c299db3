"""The HTTP port on a loopback socket: pages, and that uvicorn leaves the signals alone."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import pytest
import uvicorn

from groupkeeper.coordinator.daemon.address import HostPort
from groupkeeper.coordinator.daemon.process import bind, bound_address, listen
from groupkeeper.coordinator.web.gate import MAX_SCRAPES, Gate, Refuse
from groupkeeper.coordinator.web.port import HttpPort
from groupkeeper.coordinator.web.reports import Reports


class State:
    """What the pages report; a test changes it."""

    def __init__(self) -> None:
        self.not_ready: str | None = None
        self.page = b"up 1\n"


PATIENCE_S = 60
"""A test waits at most so long for a time limit of less than a second."""

NOTHING = Reports(lambda: b"", lambda: None)


def http_port(
    reports: Reports = NOTHING, refuse: Refuse = lambda reason, peer: None, **limits: int
) -> tuple[HttpPort, HostPort]:
    """A port that listens, as that of a daemon does from its first moment."""
    listener = bind(HostPort("127.0.0.1", 0), "http.listen")
    listen(listener, "http.listen")
    limits = {"max_connections": 200, "request_timeout_ms": 10_000} | limits
    return HttpPort(listener, reports, refuse=refuse, **limits), bound_address(listener)


@pytest.fixture
def state():
    return State()


@pytest.fixture
async def serve(state):
    """Serve with limits of the test's own; gives the port and what was refused."""
    ports: list[HttpPort] = []

    def start(**limits: int) -> tuple[int, list[str]]:
        async def metrics() -> bytes:
            return state.page

        reports = Reports(metrics=metrics, not_ready=lambda: state.not_ready)
        refused: list[str] = []
        port, address = http_port(reports, lambda reason, _: refused.append(reason), **limits)
        port.serve()
        ports.append(port)
        return address.port, refused

    yield start
    for port in ports:
        await port.stop()


@pytest.fixture
async def port(serve):
    return serve()[0]


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


async def test_a_stopped_port_lets_go_of_its_address():
    port, address = http_port()
    port.serve()
    assert (await get(address.port, "/healthz"))[0] == 200
    await port.stop()
    bind(address, "http.listen").close()


async def test_a_port_that_never_started_lets_go_of_its_address():
    port, address = http_port()
    await port.stop()
    bind(address, "http.listen").close()


async def test_who_connects_before_the_daemon_is_ready_is_answered():
    port, address = http_port()
    port.start()
    assert (await get(address.port, "/healthz"))[0] == 200
    port.serve()  # the daemon is ready
    assert (await get(address.port, "/readyz"))[0] == 200
    await port.stop()
    bind(address, "http.listen").close()


async def test_who_connects_waits_while_the_pages_cannot_be_made(monkeypatch):
    failures = [OSError(24, "Too many open files")]
    make = HttpPort._make_server

    def fail_once(port: HttpPort) -> tuple[Gate, uvicorn.Server]:
        if failures:
            raise failures.pop()
        return make(port)

    monkeypatch.setattr(HttpPort, "_make_server", fail_once)
    monkeypatch.setattr("groupkeeper.coordinator.web.port.RETRY_S", 0.0)
    port, address = http_port()
    port.start()
    assert (await get(address.port, "/healthz"))[0] == 200
    await port.stop()


@pytest.mark.parametrize("begins", [False, True])
async def test_a_port_that_has_not_answered_yet_is_let_go(begins):
    port, address = http_port()
    port.start()
    if begins:
        port.serve()
    await port.stop()
    bind(address, "http.listen").close()


# --- who may be connected -------------------------------------------------------------------------


async def silent(port: int, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    return [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]


async def closed(reader: asyncio.StreamReader) -> None:
    """Wait for the end of a connection that sends nothing more. Fails if a limit is missing."""
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""


async def gone(peers: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
    for _, writer in peers:
        writer.transport.abort()
    await asyncio.sleep(0)


async def test_health_is_never_behind_the_cap(serve):
    port, refused = serve(max_connections=8)
    peers = await silent(port, 30)
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await get(port, path))[0] == 200
    assert set(refused) == {"too_many_connections"}
    assert len(refused) >= 30 + 1 - 8
    for reader, _ in peers[:20]:  # those that were silent for longest
        await closed(reader)
    assert set(refused) == {"too_many_connections"}, "none of them had to wait for a time limit"
    await gone(peers)


SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE_PAGE = bytes(16 * 1024 * 1024)
"""More than the system takes for a peer that does not read."""


async def slow_scrapes(
    port: int, count: int
) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Peers that asked for a page and take only its beginning."""
    peers = await silent(port, count)
    for reader, writer in peers:
        writer.write(SCRAPE)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    return peers


async def test_who_is_silent_is_closed_before_who_takes_an_answer(serve, state):
    state.page = LARGE_PAGE
    port, _ = serve(max_connections=8)
    ((reader, writer),) = slow = await slow_scrapes(port, 1)
    peers = await silent(port, 30)
    assert (await get(port, "/healthz"))[0] == 200
    await reader.readuntil(b"\r\n\r\n")
    assert len(await reader.readexactly(len(LARGE_PAGE))) == len(LARGE_PAGE)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200")
    await gone(slow + peers)


async def test_health_answers_while_every_place_is_taken_by_slow_scrapes(serve, state):
    state.page = LARGE_PAGE
    port, refused = serve(max_connections=MAX_SCRAPES)
    slow = await slow_scrapes(port, MAX_SCRAPES)
    assert (await get(port, "/healthz"))[0] == 200
    assert refused == ["too_many_connections"]
    await gone(slow)


@pytest.mark.parametrize("path", ["/metrics", "/metrics%0A"])
async def test_scrapes_are_limited_by_themselves(serve, state, path):
    state.page = LARGE_PAGE
    port, refused = serve()
    slow = await slow_scrapes(port, MAX_SCRAPES)
    status, headers, _ = await get(port, path)
    assert (status, headers["retry-after"]) == (503, "1")
    assert (await get(port, "/healthz"))[0] == 200
    assert refused == ["too_many_scrapes"]
    await gone(slow)


async def test_a_scraper_that_has_read_its_page_gives_its_place_back(serve, state):
    state.page = LARGE_PAGE
    port, refused = serve()
    slow = await slow_scrapes(port, MAX_SCRAPES)
    for reader, _ in slow:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(LARGE_PAGE))
    state.page = b"up 1\n"
    assert (await get(port, "/metrics"))[::2] == (200, "up 1\n")
    assert refused == []
    await gone(slow)


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost:"])
async def test_a_request_that_does_not_come_has_a_time_limit(serve, sent):
    port, refused = serve(request_timeout_ms=50)
    ((reader, writer),) = peers = await silent(port, 1)
    writer.write(sent)
    await closed(reader)
    assert refused == ["request_timeout"]
    await gone(peers)


async def test_a_head_that_comes_byte_by_byte_has_no_more_time(serve):
    port, refused = serve(request_timeout_ms=400)
    ((_, writer),) = peers = await silent(port, 1)
    for byte in b"GET /healthz HTTP/1.1\r\nHost: " + b"x" * 500:
        writer.write(bytes([byte]))
        await asyncio.sleep(0.005)
        if refused:
            break
    assert refused == ["request_timeout"]
    await gone(peers)


async def test_a_later_request_that_does_not_come_whole_has_a_time_limit_too(serve):
    port, refused = serve(request_timeout_ms=50)
    ((reader, writer),) = peers = await silent(port, 1)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200")
    assert refused == []
    writer.write(b"GET /healthz HTTP/1.1\r\n")
    await closed(reader)
    assert refused == ["request_timeout"]
    await gone(peers)


async def test_an_answer_that_is_not_taken_has_a_time_limit(serve, state):
    state.page = LARGE_PAGE
    port, refused = serve(request_timeout_ms=100)
    peers = await slow_scrapes(port, 1)
    async with asyncio.timeout(PATIENCE_S):
        while not refused:  # time passes: health is asked for
            assert (await get(port, "/healthz"))[0] == 200
    assert refused == ["response_timeout"]
    await gone(peers)


async def test_requests_behind_each_other_are_all_answered(serve):
    port, refused = serve(request_timeout_ms=5_000)
    ((reader, writer),) = peers = await silent(port, 1)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 5)
    for _ in range(5):
        assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200")
    assert refused == []
    await gone(peers)
