"""A client connection of a broker's listener, with the client and the broker played by the test."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.gateway.request_stream import MAX_HEAD_BYTES
from groupkeeper.coordinator.gateway.splitting import Division
from groupkeeper.coordinator.server.stats import CloseReason
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.versions import API_BY_KEY, ApiKey
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.wire.connections import fake, heartbeat, join, make_server
from tests.helpers.wire.handling import decode
from tests.helpers.wire.raw_client import encode_request
from tests.helpers.wire.relays import (
    DESCRIBE_CONFIGS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    RelayPeer,
    produce,
    reply,
    request,
)

MEGABYTE = 1_048_576


def metadata(correlation_id: int, version: int = 9) -> bytes:
    values = {"topics": [{"name": "orders"}], "allow_auto_topic_creation": False}
    return encode_request("metadata", version, values, correlation_id, "app")


def closed(peer: RelayPeer, reason: str) -> bool:
    """The pair has ended for this reason, and nothing else was counted."""
    counts = {key: n for key, n in peer.connection._shared.stats.closed.items() if n}
    link_ended = not peer.links or peer.link.is_closed or peer.link.owner is None
    return counts == {reason: 1} and peer.transport.is_closed and link_ended


# --- bytes that pass ------------------------------------------------------------------------------


@virtual_time
async def test_a_request_goes_on_before_its_end_has_arrived() -> None:
    peer = RelayPeer(make_server())
    frame = produce(1, acks=-1, records=bytes(1_000))
    peer.send(frame[:100])
    assert peer.link.sent == frame[:100]
    peer.send(frame[100:101])
    peer.send(frame[101:])
    assert peer.link.sent == frame


@virtual_time
async def test_a_reply_goes_on_before_its_end_has_arrived() -> None:
    peer = RelayPeer(make_server())
    peer.send(request(FETCH, 12, 7))
    whole = reply(7, bytes(1_000))
    peer.link.answer(whole[:3])
    assert peer.received == b""
    peer.link.answer(whole[3:20])
    assert peer.received == whole[:20]
    peer.link.answer(whole[20:])
    assert peer.received == whole
    assert peer.passed == [FETCH]
    assert peer.connection.owes == 0


@virtual_time
async def test_a_client_that_is_newer_than_we_learns_our_versions() -> None:
    """franz-go asks for ApiVersions in its newest version first."""
    peer = RelayPeer(make_server())
    newest = API_BY_KEY[ApiKey.API_VERSIONS].max_version
    frame = encode_request("api_versions", newest, {}, 7, "app")
    peer.send(frame[:6] + struct.pack(">h", newest + 1) + frame[8:])
    correlation_id, error = struct.unpack_from(">ih", peer.received, 4)
    assert (correlation_id, error) == (7, ErrorCode.UNSUPPORTED_VERSION)
    assert peer.links == []


@virtual_time
async def test_a_large_request_and_its_reply_are_not_held() -> None:
    server = make_server()
    peer = RelayPeer(server)
    frame = produce(1, acks=1, records=bytes(20 * MEGABYTE))
    most = 0
    for at in range(0, len(frame), 262_144):
        peer.send(frame[at : at + 262_144])
        most = max(most, peer.connection._requests.held_bytes, server.budget.held_bytes)
    assert len(peer.link.sent) == len(frame)
    whole = reply(1, bytes(20 * MEGABYTE))
    for at in range(0, len(whole), 262_144):
        peer.link.answer(whole[at : at + 262_144])
        most = max(most, peer.connection._replies.held_bytes, server.budget.held_bytes)
    assert peer.received == whole
    assert most == 0


@virtual_time
async def test_requests_that_arrive_byte_by_byte_are_the_same() -> None:
    peer = RelayPeer(make_server())
    frames = produce(1, acks=0) + produce(2, acks=1, version=3) + request(FETCH, 4, 3)
    for byte in frames:
        peer.send(bytes([byte]))
    assert peer.link.sent == frames
    assert peer.connection.owes == 2
    for byte in reply(2) + reply(3):
        peer.link.answer(bytes([byte]))
    assert peer.replies() == [2, 3]


@virtual_time
async def test_what_arrives_together_leaves_in_one_write() -> None:
    peer = RelayPeer(make_server())
    peer.send(request(FETCH, 12, 1), request(FETCH, 12, 2), produce(3, acks=0), heartbeat(4))
    assert peer.link.writes == 1
    peer.link.answer(reply(1) + reply(2))
    assert len(peer.transport.writes) == 1
    assert peer.replies()[:2] == [1, 2]


@virtual_time
async def test_requests_before_a_bad_one_still_leave() -> None:
    peer = RelayPeer(make_server())
    before = produce(1, acks=0)
    peer.send(before, b"\xff" * 12)
    assert peer.link.sent == before
    assert peer.transport.is_closed


@virtual_time
async def test_a_produce_without_acks_gets_no_slot() -> None:
    peer = RelayPeer(make_server())
    peer.send(produce(1, acks=0), produce(2, acks=0, version=3), request(FETCH, 12, 3))
    assert peer.connection.owes == 1
    peer.link.answer(reply(3))
    assert peer.replies() == [3]


@virtual_time
async def test_a_link_that_ends_after_a_produce_without_acks_ends_the_pair() -> None:
    """Kafka closes the connection: the producer has no other way to see an error."""
    peer = RelayPeer(make_server())
    peer.send(produce(1, acks=0))
    peer.link.lose()
    assert closed(peer, "upstream_lost")


# --- the order of replies -------------------------------------------------------------------------


@virtual_time
async def test_an_answer_of_ours_waits_for_an_earlier_reply_of_the_broker() -> None:
    server = make_server(lambda _: 0)
    peer = RelayPeer(server)
    peer.send(request(LIST_OFFSETS, 6, 1), heartbeat(2), request(LIST_OFFSETS, 6, 3))
    assert peer.received == b""
    peer.link.answer(reply(1) + reply(3))
    assert peer.replies() == [1, 2, 3]


@virtual_time
async def test_a_request_behind_a_parked_join_does_not_begin() -> None:
    server = make_server()
    peer = RelayPeer(server)
    peer.send(request(LIST_OFFSETS, 6, 1), join(2), request(LIST_OFFSETS, 6, 3), heartbeat(4))
    assert peer.link.sent == request(LIST_OFFSETS, 6, 1)
    peer.link.answer(reply(1))
    assert peer.replies() == [1]
    fake(server).tickets[0].abort()
    assert closed(peer, "internal_error")


@virtual_time
async def test_what_waits_behind_an_answer_begins_after_it_in_order() -> None:
    server = make_server()
    peer = RelayPeer(server)
    peer.send(heartbeat(1), request(LIST_OFFSETS, 6, 2), heartbeat(3), request(FETCH, 12, 4))
    assert peer.links == []
    fake(server).tickets[0].resolve(0)
    await turns(3)
    assert peer.link.sent == request(LIST_OFFSETS, 6, 2)
    fake(server).tickets[1].resolve(0)
    await turns(3)
    assert peer.replies() == [1]
    peer.link.answer(reply(2))
    assert peer.replies() == [1, 2, 3]
    peer.link.answer(reply(4))
    assert peer.replies() == [1, 2, 3, 4]


@virtual_time
async def test_a_request_in_two_parts_is_answered_once_in_its_place() -> None:
    def divide(_host: str, piece: Any) -> Division:
        return Division(heartbeat(piece.frame[11]), piece.frame, lambda mine, theirs: theirs)

    server = make_server(lambda _: 0)
    peer = RelayPeer(server, divide=divide)
    peer.send(request(FETCH, 12, 1), request(DESCRIBE_CONFIGS, 1, 2), heartbeat(3))
    assert peer.link.sent == request(FETCH, 12, 1) + request(DESCRIBE_CONFIGS, 1, 2)
    peer.link.answer(reply(1) + reply(2, b"merged"))
    assert peer.replies() == [1, 2, 3]
    assert b"merged" in peer.received


@virtual_time
async def test_a_rewritten_reply_is_gathered_and_changed() -> None:
    peer = RelayPeer(make_server(), change=lambda *_: lambda whole: whole.replace(b"a", b"b"))
    peer.send(metadata(1))
    whole = reply(1, b"a" * 1_000)
    peer.link.answer(whole[:500])
    assert peer.received == b""
    peer.link.answer(whole[500:])
    assert peer.received == reply(1, b"b" * 1_000)


# --- bad input from the client --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (struct.pack(">i", -1), "negative_length"),
        (struct.pack(">i", 104_857_601), "frame_too_large"),
        (b"GET / HTTP/1.1\r\n", "not_kafka_http"),
        (b"\x16\x03\x01\x02\x00", "not_kafka_tls"),
        (request(METADATA, 9, 1, b"")[:-1].replace(b"\0\0\0", b"\x01\0\0", 1), "frame_too_large"),
        (request(76, 1, 1), "unsupported_version"),
        (request(FETCH, 16, 1), "unsupported_version"),
        (struct.pack(">ihhi", 8, FETCH, 12, 1) + bytes(8), "bad_header"),
        (struct.pack(">ihhih", 10, 0, 9, 1, -1), "bad_header"),
        (struct.pack(">ihhih", MEGABYTE, 0, 9, 1, -1) + b"\xff" * MAX_HEAD_BYTES, "bad_header"),
    ],
)
@virtual_time
async def test_bad_input_ends_the_pair_once_earlier_requests_are_answered(
    sent: bytes, reason: str
) -> None:
    server = make_server()
    peer, other = RelayPeer(server), RelayPeer(server)
    other.send(request(FETCH, 12, 1))
    peer.send(request(FETCH, 12, 5), sent)
    assert not peer.transport.is_closed
    peer.link.answer(reply(5))
    assert peer.replies() == [5]
    assert closed(peer, reason)
    other.link.answer(reply(1))
    assert other.replies() == [1]


@virtual_time
async def test_thousands_of_requests_in_one_read_are_divided_among_turns() -> None:
    server = make_server(lambda _: 0, max_turn_requests=10)
    peer = RelayPeer(server)
    peer.send(*[heartbeat(n) for n in range(500)])
    assert len(peer.replies()) == 10
    assert not peer.transport.is_reading
    await turns(100)
    assert peer.replies() == list(range(500))
    assert peer.transport.is_reading


@virtual_time
async def test_a_client_with_too_many_unanswered_requests_is_not_read() -> None:
    peer = RelayPeer(make_server(max_waiting_requests=10))
    frames = [request(LIST_OFFSETS, 6, n, bytes(1_000)) for n in range(20)]
    peer.send(*frames)
    assert peer.connection.owes == 10
    assert not peer.transport.is_reading
    peer.link.answer(b"".join(reply(n) for n in range(10)))
    assert peer.connection.owes == 10
    peer.link.answer(b"".join(reply(n) for n in range(10, 20)))
    assert peer.replies() == list(range(20))
    assert peer.transport.is_reading


@virtual_time
async def test_a_bug_of_ours_ends_the_pair_alone() -> None:
    def divide(_host: str, _piece: Any) -> Division:
        raise KeyError("a bug")

    server = make_server()
    peer, other = RelayPeer(server, divide=divide), RelayPeer(server)
    other.send(request(FETCH, 12, 1))
    peer.send(request(DESCRIBE_CONFIGS, 1, 2))
    assert closed(peer, "internal_error")
    other.link.answer(reply(1))
    assert other.replies() == [1]


# --- bad input from the broker --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply(2), "unexpected_reply"),
        (reply(1) + reply(1), "unexpected_reply"),
        (struct.pack(">ii", 3, 1), "bad_reply"),
        (struct.pack(">ii", -1, 1), "bad_reply"),
        (struct.pack(">ii", 104_857_601, 1), "bad_reply"),
    ],
)
@virtual_time
async def test_a_bad_reply_ends_the_pair_alone(answer: bytes, reason: str) -> None:
    server = make_server()
    peer, other = RelayPeer(server), RelayPeer(server)
    for each in (peer, other):
        each.send(request(FETCH, 12, 1))
    peer.link.answer(answer)
    assert closed(peer, "upstream_bad_reply")
    assert peer.link.target.traffic.failures == {reason: 1}
    other.link.answer(reply(1))
    assert other.replies() == [1]


@virtual_time
async def test_a_reply_that_cannot_be_rewritten_ends_the_pair() -> None:
    def broken(_: bytes) -> bytes:
        raise ProtocolError("truncated", "it ends early")

    peer = RelayPeer(make_server(), change=lambda *_: broken)
    peer.send(metadata(1))
    peer.link.answer(reply(1))
    assert closed(peer, "upstream_bad_reply")
    assert peer.received == b""


@virtual_time
async def test_a_reply_to_rewrite_that_is_too_long_ends_the_pair_at_its_length() -> None:
    server = make_server()
    peer = RelayPeer(server, change=lambda *_: lambda whole: whole)
    peer.send(metadata(1))
    peer.link.answer(struct.pack(">ii", 67_108_865, 1))
    assert closed(peer, "upstream_bad_reply")


# --- the life of the link -------------------------------------------------------------------------


@virtual_time
async def test_a_link_is_opened_on_first_need_and_requests_wait_for_it() -> None:
    peer = RelayPeer(make_server(lambda _: 0), opens=False)
    peer.send(heartbeat(1))
    assert peer.links == []
    peer.send(request(FETCH, 12, 2), heartbeat(3))
    assert len(peer.links) == 1
    assert peer.replies() == [1]
    peer.link.open()
    assert peer.link.sent == request(FETCH, 12, 2)
    peer.link.answer(reply(2))
    assert peer.replies() == [1, 2, 3]


@virtual_time
async def test_a_broker_that_closes_while_a_reply_is_owed_ends_the_pair() -> None:
    peer = RelayPeer(make_server())
    peer.send(request(FETCH, 12, 1), request(FETCH, 12, 2))
    peer.link.answer(reply(1) + reply(2)[:6])
    peer.link.lose()
    assert closed(peer, "upstream_lost")
    assert peer.link.target.traffic.failures == {"lost": 1}
    assert peer.received == reply(1)


@virtual_time
async def test_a_broker_that_closes_in_the_middle_of_a_request_ends_the_pair() -> None:
    peer = RelayPeer(make_server())
    peer.send(produce(1, acks=1, records=bytes(1_000))[:200])
    peer.link.lose()
    assert closed(peer, "upstream_lost")
    assert peer.link.target.traffic.failures == {"lost": 1}


@virtual_time
async def test_an_idle_link_that_the_broker_closed_is_opened_again_for_the_next_request() -> None:
    peer = RelayPeer(make_server())
    peer.send(request(FETCH, 12, 1))
    peer.link.answer(reply(1))
    peer.link.lose()
    assert not peer.link.target.traffic.failures
    assert not peer.transport.is_closed
    peer.send(request(FETCH, 12, 2))
    assert len(peer.links) == 2
    peer.link.answer(reply(2))
    assert peer.replies() == [1, 2]


@virtual_time
async def test_metadata_comes_from_the_image_if_the_broker_cannot_be_reached() -> None:
    peer = RelayPeer(make_server(lambda _: 0), opens=False)
    peer.send(metadata(1), heartbeat(2))
    peer.link.lose("refused")
    await turns(3)
    assert peer.replies() == [1, 2]
    size = struct.unpack_from(">i", peer.received)[0] + 4
    shown = decode("metadata", 9, peer.received[:size], 1)
    brokers = {(b["node_id"], b["host"], b["port"]) for b in shown["brokers"]}
    assert brokers == {(1, "192.0.2.1", 9100), (1_000_000, "192.0.2.1", 9092)}
    (topic,) = shown["topics"]
    assert (topic["name"], topic["error_code"], len(topic["partitions"])) == ("orders", 0, 3)
    assert {(p["error_code"], p["leader_id"]) for p in topic["partitions"]} == {(5, -1)}


@virtual_time
async def test_data_requests_end_the_pair_if_the_broker_cannot_be_reached() -> None:
    peer = RelayPeer(make_server(), opens=False)
    peer.send(produce(1, acks=1))
    peer.link.lose("refused")
    assert closed(peer, "upstream_lost")


@virtual_time
async def test_a_client_that_leaves_ends_the_link() -> None:
    server = make_server()
    peer = RelayPeer(server)
    peer.send(join(1))
    peer.connection.connection_lost(None)
    assert server.stats.connections_open == 0
    peer = RelayPeer(server)
    peer.send(request(FETCH, 12, 1))
    peer.connection.connection_lost(None)
    assert peer.link.is_closed
    assert server.budget.held_bytes == 0


# --- the flow of bytes ----------------------------------------------------------------------------


@virtual_time
async def test_a_broker_is_not_read_while_the_client_does_not_read() -> None:
    server = make_server()
    peer = RelayPeer(server)
    peer.send(request(FETCH, 12, 1))
    peer.link.answer(reply(1, bytes(MEGABYTE))[:300_000])
    peer.transport.unsent_bytes = 200_000
    peer.connection.pause_writing()
    assert not peer.link.is_reading
    assert server.budget.held_bytes >= 200_000
    peer.transport.unsent_bytes = 0
    peer.connection.resume_writing()
    assert peer.link.is_reading
    assert server.budget.held_bytes == 0


@virtual_time
async def test_a_client_is_not_read_while_the_broker_does_not_read() -> None:
    server = make_server()
    peer = RelayPeer(server)
    frame = produce(1, acks=1, records=bytes(MEGABYTE))
    peer.send(frame[:262_144])
    peer.link.stall(200_000)
    assert not peer.transport.is_reading
    assert server.budget.held_bytes > 200_000
    peer.link.stall(0)
    assert peer.transport.is_reading
    peer.send(frame[262_144:])
    assert peer.link.sent == frame


@virtual_time
async def test_a_larger_window_lets_more_bytes_wait() -> None:
    peer = RelayPeer(make_server(), window_bytes=MEGABYTE)
    peer.send(request(FETCH, 12, 1))
    peer.transport.unsent_bytes = 700_000
    peer.connection.pause_writing()
    assert peer.link.is_reading
    peer.transport.unsent_bytes = 800_000
    peer.link.answer(reply(1, bytes(MEGABYTE))[:1_000])
    assert not peer.link.is_reading


@virtual_time
async def test_a_client_that_stops_reading_is_closed_when_memory_is_short() -> None:
    server = make_server(max_buffered_bytes=1_000_000)
    stuck, other = RelayPeer(server), RelayPeer(server)
    for each in (stuck, other):
        each.send(request(FETCH, 12, 1))
    stuck.link.answer(reply(1, bytes(MEGABYTE))[:900_000])
    stuck.transport.unsent_bytes = 900_000
    stuck.connection.pause_writing()
    await asyncio.sleep(10)
    assert closed(stuck, CloseReason.MEMORY_BUDGET)
    assert stuck.transport.is_aborted
    other.link.answer(reply(1))
    assert other.replies() == [1]


@virtual_time
async def test_a_stop_lets_a_request_pass_that_has_begun_and_begins_no_other() -> None:
    server = make_server()
    peer = RelayPeer(server)
    frame = produce(1, acks=1, records=bytes(1_000))
    peer.send(frame[:500])
    server.stop_accepting()
    assert peer.transport.is_reading
    peer.send(frame[500:], request(FETCH, 12, 2))
    assert peer.link.sent == frame
    assert not peer.transport.is_reading
    peer.link.answer(reply(1))
    assert peer.replies() == [1]
    server.close_all()
    assert peer.transport.is_closed


# --- the session of our own login -----------------------------------------------------------------


@virtual_time
async def test_a_link_whose_session_ends_is_replaced_when_nothing_is_owed_on_it() -> None:
    peer = RelayPeer(make_server())
    peer.send(request(FETCH, 12, 1), request(FETCH, 12, 2))
    old = peer.link
    old.is_over = True
    peer.send(request(FETCH, 12, 3))
    assert old.sent == request(FETCH, 12, 1) + request(FETCH, 12, 2)
    old.answer(reply(1))
    assert len(peer.links) == 1
    old.answer(reply(2))
    assert old.is_closed
    assert peer.link.sent == request(FETCH, 12, 3)
    peer.link.answer(reply(3))
    assert peer.replies() == [1, 2, 3]


@virtual_time
async def test_a_link_whose_session_ends_is_replaced_between_two_requests() -> None:
    peer = RelayPeer(make_server())
    frame = produce(1, acks=1)
    peer.send(frame[:50])
    old = peer.link
    old.is_over = True
    peer.send(frame[50:])
    assert old.sent == frame
    old.answer(reply(1))
    assert not old.is_closed, "nothing waits for another one"
    peer.send(request(FETCH, 12, 2))
    assert old.is_closed
    assert peer.link.sent == request(FETCH, 12, 2)


@virtual_time
async def test_a_produce_without_acks_is_sent_before_its_link_is_replaced() -> None:
    peer = RelayPeer(make_server())
    peer.send(produce(1, acks=0))
    old = peer.link
    peer.connection._turning = True  # as in the middle of a turn
    peer.connection._send(produce(2, acks=0), None)
    old.is_over = True
    assert not peer.connection._waits_for_end_of_link()
    assert old.sent == produce(1, acks=0) + produce(2, acks=0)
    assert old.is_closed
