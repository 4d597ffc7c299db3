"""What no client of ours would send: it closes its connection, with a reason, and no other.

docs/spec/wire.md#frames: odd bodies, and what Kafka does with unknown keys and versions.
"""

from __future__ import annotations

import asyncio
import gc
import struct
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.membership import Heartbeat
from groupkeeper.coordinator.core.requests.offsets import OffsetCommitResult
from groupkeeper.coordinator.server.refusals import LINES_PER_WINDOW, WINDOW_S, RefusalLog
from groupkeeper.coordinator.server.stats import CloseReason
from groupkeeper.protocol.frames import FrameError
from tests.helpers.wire.connections import Peer, commit, fake, heartbeat, make_server
from tests.helpers.wire.handling import make_services
from tests.helpers.wire.raw_client import encode_request


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int, *, flexible: bool = False) -> bytes:
    return struct.pack(">hhih", key, version, 1, 1) + b"c" + (b"\0" if flexible else b"")


def cut(frame: bytes, size: int) -> bytes:
    """The same frame with a body that ends early, and a length that says so."""
    return framed(frame[4:-size])


MANY = encode_request("metadata", 9, {"topics": [{"name": "x", "topic_id": None}] * 2_000}, 1, "c")

BAD = {
    "negative length": (b"\xff\xff\xff\xff", "negative_length"),
    "length over the limit": (struct.pack(">i", 8_388_609), "frame_too_large"),
    "TLS": (bytes.fromhex("160301020001"), "not_kafka_tls"),
    "HTTP GET": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not_kafka_http"),
    "HTTP POST": (b"POST /api HTTP/1.1\r\n\r\n", "not_kafka_http"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "not_kafka_http"),
    "no header": (framed(b""), "bad_header"),
    "half a header": (framed(b"\0\x0c\0"), "bad_header"),
    "client id beyond the end": (framed(struct.pack(">hhih", 12, 0, 1, 100)), "bad_header"),
    "unknown key": (framed(header(999, 0)), "unknown_api"),
    "transactions, which are not served": (framed(header(22, 0)), "unknown_api"),
    "unknown version": (framed(header(12, 5)), "unsupported_version"),
    "negative version": (framed(header(12, -1)), "unsupported_version"),
    "Produce 0, listed and not served": (framed(header(0, 0)), "unsupported_version"),
    "body ends early": (cut(heartbeat(1), 3), "truncated"),
    "no body": (framed(header(11, 0)), "truncated"),
    "count beyond the end": (
        framed(header(3, 1) + struct.pack(">i", 2**31 - 1)),
        "count_beyond_end",
    ),
    "compact count of 2^32-1": (
        framed(header(3, 9, flexible=True) + b"\xff\xff\xff\xff\x0f"),
        "count_beyond_end",
    ),
    "string beyond the end": (framed(header(12, 0) + struct.pack(">h", 32_000)), "truncated"),
    "null where none may be": (framed(header(12, 0) + b"\xff\xff" + bytes(20)), "null_not_allowed"),
    "null array where none may be": (
        framed(header(15, 0) + struct.pack(">i", -1)),
        "null_not_allowed",
    ),
    "more elements than allowed": (MANY, "too_many_elements"),
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_input_closes_its_connection_with_a_reason_and_no_other(name: str) -> None:
    data, reason = BAD[name]
    services = make_services(lambda _: ErrorCode.NONE, max_request_elements=1_000)
    server = make_server(services=services)
    peer, other = Peer(server, "10.0.0.9"), Peer(server)
    with capture_logs() as lines:
        peer.send(data)
    assert peer.transport.is_closed
    assert peer.transport.writes == []
    assert {k: n for k, n in server.stats.closed.items() if n} == {reason: 1}
    (line,) = lines
    assert (line["reason"], line["peer"]) == (reason, "10.0.0.9")
    assert line["log_level"] == "warning"
    assert fake(server).requests == []
    # What follows is not even looked at, and nobody else notices.
    peer.send(heartbeat(5))
    assert peer.transport.writes == []
    other.send(heartbeat(6))
    assert other.replies() == [6]


@pytest.mark.parametrize("name", BAD)
async def test_bad_input_that_arrives_byte_by_byte_has_the_same_end(name: str) -> None:
    data, reason = BAD[name]
    services = make_services(lambda _: ErrorCode.NONE, max_request_elements=1_000)
    server = make_server(services=services)
    peer = Peer(server)
    for index in range(len(data)):
        peer.send(data[index : index + 1])
    assert peer.transport.is_closed
    assert server.stats.closed[reason] == 1


def broken_frames() -> list[FrameError]:
    return [each for each in gc.get_objects() if isinstance(each, FrameError)]


async def test_bad_input_is_let_go_without_the_garbage_collector() -> None:
    """An exception that is kept where it was caught holds the frames; the collector comes late."""
    before = broken_frames()  # of other tests
    gc.disable()
    try:
        peer = Peer(make_server(lambda _: ErrorCode.NONE))
        peer.send(heartbeat(1), b"\xff\xff\xff\xff")
        left = [each for each in broken_frames() if each not in before]
    finally:
        gc.enable()
    assert peer.transport.is_closed
    assert left == []


@pytest.mark.parametrize("name", BAD)
async def test_what_came_before_bad_input_is_answered_before_the_connection_closes(
    name: str,
) -> None:
    data, reason = BAD[name]
    server = make_server(services=make_services(max_request_elements=1_000))
    peer = Peer(server)
    peer.send(commit(1), commit(2), data)
    assert server.stats.closed[reason] == 1
    assert not peer.transport.is_closed
    for ticket in fake(server).tickets:
        ticket.resolve(OffsetCommitResult(ErrorCode.NONE))
    await asyncio.sleep(0)
    assert peer.replies() == [1, 2]
    assert peer.transport.is_closed


@pytest.mark.parametrize(
    "frame",
    [
        framed(heartbeat(1)[4:] + b"left over"),
        # A tag that nobody knows, in the header and in the body.
        framed(header(12, 4) + b"\x01\x63\x02ab" + b"\x02g\0\0\0\1\x02m\0" + b"\x01\x63\x02ab"),
        # Text that is not UTF-8, in the client id and in the group id.
        framed(
            struct.pack(">hhih", 12, 0, 1, 1) + b"\xff" + b"\0\x01\xff" + b"\0\0\0\1" + b"\0\x01m"
        ),
    ],
    ids=["bytes left over", "unknown tags", "not UTF-8"],
)
async def test_what_kafka_forgives_is_answered(frame: bytes) -> None:
    server = make_server(lambda _: ErrorCode.NONE)
    peer = Peer(server)
    peer.send(frame)
    assert peer.replies() == [1]
    (request,) = fake(server).requests
    assert isinstance(request, Heartbeat)


async def test_api_versions_above_ours_is_answered_and_the_connection_goes_on() -> None:
    peer = Peer(make_server(lambda _: ErrorCode.NONE))
    body = b"\x09whatever a newer client puts there"
    peer.send(framed(header(18, 9, flexible=True) + body), heartbeat(2))
    assert peer.replies() == [1, 2]
    reply = peer.decoded("api_versions", 0, 0)
    assert reply == {
        "error_code": 35,
        "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}],
    }


async def test_a_reply_that_would_be_too_large_closes_the_connection() -> None:
    def answer(_: Any) -> Any:
        from groupkeeper.coordinator.core.requests.offsets import OffsetFetchResult

        rows = [(i, i, -1, "x" * 50, ErrorCode.NONE) for i in range(50)]
        return OffsetFetchResult(ErrorCode.NONE, [("orders", "", rows)])

    server = make_server(services=make_services(answer, max_reply_bytes=10_000))
    peer, other = Peer(server), Peer(server)
    groups = [{"group_id": "g", "topics": None}] * 50
    peer.send(encode_request("offset_fetch", 9, {"groups": groups}, 1, "c"), heartbeat(2))
    for _ in range(5):
        await asyncio.sleep(0)
    assert peer.transport.is_closed
    assert peer.transport.writes == []
    assert server.stats.closed["reply_too_large"] == 1
    assert not other.transport.is_closed


def test_a_flood_of_refusals_is_a_few_lines_and_a_count() -> None:
    now = 100.0
    log = RefusalLog(lambda: now)
    with capture_logs() as lines:
        for _ in range(1_000):
            log.write("truncated", "10.0.0.9")
        log.write("unknown_api", "10.0.0.9")
        now += WINDOW_S
        log.write("truncated", "10.0.0.8")
    assert [line["reason"] for line in lines] == [
        *["truncated"] * LINES_PER_WINDOW,
        "unknown_api",
        "truncated",
    ]
    assert lines[-1]["left_out"] == 1_000 - LINES_PER_WINDOW


@pytest.mark.parametrize(
    ("reason", "event"),
    [
        (CloseReason.TOO_MANY_CONNECTIONS, "connection_closed_at_limit"),
        (CloseReason.NOT_READING, "connection_closed_at_limit"),
        ("frame_too_large", "connection_closed_bad_request"),
        (CloseReason.INTERNAL_ERROR, "connection_closed_by_bug"),
        (CloseReason.IDLE, "connection_closed"),
    ],
)
def test_the_log_says_who_made_us_close_the_connection(reason: str, event: str) -> None:
    with capture_logs() as lines:
        RefusalLog(lambda: 0.0).write(reason, "192.0.2.1")
    assert [(line["event"], line["reason"]) for line in lines] == [(event, str(reason))]


async def test_the_line_names_the_software_that_the_client_said_it_is() -> None:
    peer = Peer(make_server())
    told = {"client_software_name": "librdkafka", "client_software_version": "2.6.0"}
    peer.send(encode_request("api_versions", 3, told, 1, "c"))
    with capture_logs() as lines:
        peer.send(framed(header(999, 0)))
    (line,) = lines
    assert line["client_software"] == "librdkafka 2.6.0"
    assert (line["api_key"], line["api_version"]) == (999, 0)
