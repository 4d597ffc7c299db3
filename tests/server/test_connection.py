"""One connection, over a transport that takes notes: order, back-pressure, coalesced writes."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.membership import Heartbeat, JoinGroupResult
from groupkeeper.coordinator.core.requests.offsets import (
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetchResult,
)
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.server.stats import CloseReason
from groupkeeper.protocol.reader import FREE_BYTES
from tests.helpers.wire.connections import (
    Peer,
    commit,
    fake,
    heartbeat,
    join,
    kinds,
    make_server,
)
from tests.helpers.wire.handling import make_services
from tests.helpers.wire.raw_client import encode_request

JOINED = JoinGroupResult(ErrorCode.UNKNOWN_MEMBER_ID, "m")
COMMITTED = OffsetCommitResult(ErrorCode.NONE)
HEARTBEAT_REPLY_BYTES = 16


class OnlyHeartbeats:
    """A coordinator that answers heartbeats at once and keeps all other tickets."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.tickets: list[Any] = []

    def submit(self, request: Request, ticket: Any) -> None:
        self.requests.append(request)
        if isinstance(request, Heartbeat):
            ticket.resolve(ErrorCode.NONE)
        else:
            self.tickets.append(ticket)


def make_peer(**limits: int) -> tuple[Peer, OnlyHeartbeats]:
    coordinator = OnlyHeartbeats()
    return Peer(make_server(services=make_services(coordinator=coordinator), **limits)), coordinator


async def turns(count: int = 1) -> None:
    """Let the loop run what was scheduled."""
    for _ in range(count):
        await asyncio.sleep(0)


def heartbeat_of(client_id: str, version: int = 4, member_id: str = "m") -> bytes:
    values = {"group_id": "g", "generation_id": 1, "member_id": member_id}
    return encode_request("heartbeat", version, values, 7, client_id)


async def test_a_heartbeat_is_that_of_its_own_bytes_and_client_whatever_came_before() -> None:
    peer, coordinator = make_peer()
    sent = [
        *[("app", 4, "m"), ("app", 4, "m"), ("other", 4, "m"), ("other", 4, "m"), ("app", 4, "m")],
        *[("app", 3, "m"), ("app", 3, "m"), ("app", 3, "n"), ("app", 4, "n"), ("", 4, "n")],
        *[("x" * 300, 4, "n"), ("", 4, "n"), ("x" * 300, 4, "m"), ("app", 4, "m")],
    ]
    for client_id, version, member_id in sent:
        peer.send(heartbeat_of(client_id, version, member_id))
    assert [(r.client.client_id, r.member_id) for r in coordinator.requests] == [
        (client_id, member_id) for client_id, _, member_id in sent
    ]
    assert len(peer.frames()) == len(sent)


def heartbeat_with_tags(header_tag_bytes: int) -> bytes:
    """A heartbeat with one tagged field in its header, and one in its body."""
    plain = heartbeat_of("app")[4:]
    head, body = plain[:13], plain[14:-1]
    size = bytes((header_tag_bytes & 0x7F | 0x80, header_tag_bytes >> 7 & 0x7F | 0x80))
    header_tags = b"\1\x63" + size + bytes((header_tag_bytes >> 14,)) + bytes(header_tag_bytes)
    data = head + header_tags + body + b"\1\x63\0"
    return struct.pack(">i", len(data)) + data


async def test_a_body_that_was_accepted_is_refused_in_a_frame_that_is_too_large_for_it() -> None:
    coordinator = OnlyHeartbeats()
    services = make_services(coordinator=coordinator, max_request_elements=1)
    peer = Peer(make_server(services=services))
    peer.send(heartbeat_with_tags(20_000))
    peer.send(heartbeat_with_tags(20_000))
    assert len(peer.frames()) == 2
    peer.send(heartbeat_with_tags(FREE_BYTES + 2_048))
    assert len(peer.frames()) == 2
    assert peer.transport.is_closed, "as the first request of a connection would be"


def fetch_of(version: int, *partitions: int, group_id: str = "g") -> bytes:
    topics = [{"name": "orders", "partition_indexes": partitions}]
    return encode_request(
        "offset_fetch", version, {"group_id": group_id, "topics": topics}, 7, "app"
    )


async def test_a_fetch_is_that_of_its_own_bytes_whatever_came_before() -> None:
    peer, coordinator = make_peer()
    sent = [
        (7, "g", 0),
        (7, "g", 0),
        (6, "g", 0),
        (7, "g", 1),
        (7, "h", 1),
        (5, "g", 1),
        (7, "g", 0),
    ]
    for version, group_id, partition in sent:
        peer.send(fetch_of(version, partition, group_id=group_id))
        coordinator.tickets.pop().resolve(OffsetFetchResult(ErrorCode.NONE))
    assert [(r.group_id, r.topics) for r in coordinator.requests] == [
        (group_id, [("orders", "", [partition])]) for _, group_id, partition in sent
    ]
    assert len(peer.frames()) == len(sent)


async def test_all_offsets_are_fetched_one_answer_at_a_time_after_a_fetch_of_some() -> None:
    peer, coordinator = make_peer()
    everything = encode_request("offset_fetch", 7, {"group_id": "g", "topics": None}, 7, "app")
    peer.send(fetch_of(7, 0))
    peer.send(everything, everything)
    assert len(coordinator.requests) == 2, "the last one waits for the answer"


async def test_a_request_is_answered_within_the_call_that_brought_it() -> None:
    peer, _ = make_peer()
    peer.send(heartbeat(1))
    assert peer.replies() == [1]
    assert peer.decoded("heartbeat", 4)["error_code"] == 0


async def test_replies_of_one_read_leave_in_one_write_in_order() -> None:
    peer, _ = make_peer()
    peer.send(*[heartbeat(i) for i in range(20)])
    assert len(peer.transport.writes) == 1
    assert peer.replies() == list(range(20))


async def test_requests_may_be_cut_anywhere() -> None:
    stream = heartbeat(1) + heartbeat(2) + heartbeat(3)
    for size in range(1, len(stream)):
        peer, _ = make_peer()
        for start in range(0, len(stream), size):
            peer.send(stream[start : start + size])
        assert peer.replies() == [1, 2, 3]


async def test_a_parked_join_holds_what_follows_it() -> None:
    peer, coordinator = make_peer()
    peer.send(join(1), heartbeat(2), heartbeat(3))
    peer.send(heartbeat(4))
    assert kinds(coordinator.requests) == ["JoinGroup"]
    coordinator.tickets[0].resolve(JOINED)
    assert peer.replies() == [1]
    # The rest is begun in a turn of its own: whoever answered us may be busy answering others.
    assert kinds(coordinator.requests) == ["JoinGroup"]
    await turns()
    assert peer.replies() == [1, 2, 3, 4]


async def test_replies_that_one_append_releases_leave_in_one_write() -> None:
    peer, coordinator = make_peer()
    peer.send(*[commit(number) for number in range(5)])
    for ticket in coordinator.tickets[:3]:
        ticket.resolve(COMMITTED)
    assert peer.transport.writes == [], "the next ticket of this turn may be another of these"
    await turns()
    assert (len(peer.transport.writes), peer.replies()) == (1, [0, 1, 2])
    for ticket in coordinator.tickets[3:]:
        ticket.resolve(COMMITTED)
    assert (len(peer.transport.writes), peer.replies()) == (2, [0, 1, 2, 3, 4])
    await turns()
    assert len(peer.transport.writes) == 2


async def test_a_reply_that_is_to_leave_with_others_leaves_before_a_close() -> None:
    peer, coordinator = make_peer()
    peer.send(commit(1), commit(2))
    coordinator.tickets[0].resolve(COMMITTED)
    peer.connection.abort(CloseReason.SHUTDOWN)
    await turns()
    assert peer.replies() == [1]
    assert peer.transport.is_closed


async def test_commits_are_pipelined_and_answered_in_order() -> None:
    peer, coordinator = make_peer()
    peer.send(commit(1), commit(2), heartbeat(3), commit(4))
    assert kinds(coordinator.requests) == [
        "OffsetCommit",
        "OffsetCommit",
        "Heartbeat",
        "OffsetCommit",
    ]
    assert peer.replies() == []
    coordinator.tickets[1].resolve(COMMITTED)
    assert peer.replies() == []
    coordinator.tickets[0].resolve(COMMITTED)
    await turns()
    assert peer.replies() == [1, 2, 3]
    assert len(peer.transport.writes) == 1
    coordinator.tickets[2].resolve(COMMITTED)
    assert peer.replies() == [1, 2, 3, 4]


async def test_a_join_behind_commits_is_begun_but_answered_after_them() -> None:
    peer, coordinator = make_peer()
    peer.send(commit(1), join(2), heartbeat(3))
    assert kinds(coordinator.requests) == ["OffsetCommit", "JoinGroup"]
    coordinator.tickets[1].resolve(JOINED)
    assert peer.replies() == []
    coordinator.tickets[0].resolve(COMMITTED)
    assert peer.replies() == [1, 2]
    await turns()
    assert peer.replies() == [1, 2, 3]


async def test_reading_pauses_when_too_many_bytes_wait_and_goes_on_when_they_are_gone() -> None:
    peer, coordinator = make_peer(max_waiting_bytes=300)
    peer.send(join(1))
    assert peer.transport.is_reading
    peer.send(*[heartbeat(i) for i in range(2, 22)])
    assert not peer.transport.is_reading
    coordinator.tickets[0].resolve(JOINED)
    await turns(2)
    assert peer.replies() == list(range(1, 22))
    assert peer.transport.is_reading


async def test_reading_pauses_when_too_many_requests_wait() -> None:
    peer, coordinator = make_peer(max_waiting_requests=4)
    peer.send(*[commit(i) for i in range(8)])
    assert len(coordinator.requests) == 4
    assert not peer.transport.is_reading
    for index in range(8):
        coordinator.tickets[index].resolve(COMMITTED)
        await turns()
    assert peer.replies() == list(range(8))
    assert peer.transport.is_reading


async def test_replies_that_wait_for_an_earlier_one_are_bounded_too() -> None:
    peer, coordinator = make_peer(max_waiting_bytes=200)
    peer.send(commit(0))
    for index in range(1, 40):
        peer.send(heartbeat(index))
    begun = len(coordinator.requests)
    assert begun < 20
    coordinator.tickets[0].resolve(COMMITTED)
    await turns(2)
    assert peer.replies() == list(range(40))


async def test_nothing_is_begun_while_the_peer_does_not_take_its_replies() -> None:
    peer, coordinator = make_peer()
    peer.connection.pause_writing()
    assert not peer.transport.is_reading
    peer.send(heartbeat(1), heartbeat(2))
    assert coordinator.requests == []
    peer.connection.resume_writing()
    await turns()
    assert peer.replies() == [1, 2]
    assert peer.transport.is_reading


async def test_one_turn_begins_a_limited_number_of_requests() -> None:
    peer, _ = make_peer(max_turn_requests=3)
    peer.send(*[heartbeat(i) for i in range(8)])
    seen = []
    while not seen or seen[-1] < 8:
        seen.append(len(peer.replies()))
        await turns()
    assert seen == [3, 6, 8]


async def test_a_client_that_goes_while_parked_gets_no_reply_and_harms_nobody() -> None:
    peer, coordinator = make_peer()
    peer.send(commit(1), join(2), heartbeat(3))
    peer.connection.connection_lost(None)
    for ticket in coordinator.tickets:
        ticket.resolve(COMMITTED if ticket.key == 8 else JOINED)
    await turns()
    assert peer.replies() == []
    # Nothing was taken back either: the member is the coordinator's to keep
    # (docs/spec/wire.md#disconnects).
    assert kinds(coordinator.requests) == ["OffsetCommit", "JoinGroup"]


async def test_what_waits_only_for_its_connection_is_let_go_with_it() -> None:
    peer, coordinator = make_peer()
    peer.send(join(1))
    gone: list[int] = []
    coordinator.tickets[0].on_closed = lambda: gone.append(1)
    peer.connection.connection_lost(None)
    assert gone == [1]


async def test_a_refused_request_without_a_reply_ends_the_connection_behind_what_was_owed() -> None:
    """As Kafka does for Produce with acks=0: there is no other way to tell."""
    server = make_server(services=make_services(coordinator=OnlyHeartbeats()))
    peer = Peer(server)
    topic = {"name": "orders", "partition_data": [{"index": 0, "records": b"x"}]}
    produce = encode_request("produce", 9, {"acks": 0, "topic_data": [topic]}, 1, "app")
    peer.send(heartbeat(1), produce, heartbeat(2))
    assert peer.replies() == [1]
    assert peer.transport.is_closed
    assert server.stats.closed["produce_without_acks"] == 1


async def test_a_producer_of_nothing_that_wants_no_reply_gets_none_and_may_go_on() -> None:
    peer = Peer(make_server(services=make_services(coordinator=OnlyHeartbeats())))
    nothing = encode_request("produce", 9, {"acks": 0, "topic_data": []}, 2, "app")
    peer.send(heartbeat(1), nothing, heartbeat(3))
    assert peer.replies() == [1, 3]
    assert not peer.transport.is_closed


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.7", "/10.0.0.7"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("fe80::1%eth0", "/fe80:0:0:0:0:0:0:1"),
    ],
)
async def test_the_client_host_is_printed_as_java_does(address: str, host: str) -> None:
    server = make_server(lambda _: ErrorCode.NONE)
    Peer(server, address).send(heartbeat(1))
    (request,) = fake(server).requests
    assert request.client == ("app", host, "User:ANONYMOUS")


async def test_the_client_of_each_request_is_the_one_its_header_names() -> None:
    server = make_server(lambda _: ErrorCode.NONE)
    peer = Peer(server)
    values = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    for client_id in ("a", "b", "b", None, "a"):
        peer.send(encode_request("heartbeat", 0, values, 1, client_id))  # type: ignore[arg-type]
    assert [r.client.client_id for r in fake(server).requests] == ["a", "b", "b", "", "a"]


async def test_requests_are_counted_by_api_version_and_first_error() -> None:
    server = make_server(
        lambda r: COMMITTED if isinstance(r, OffsetCommit) else ErrorCode.REBALANCE_IN_PROGRESS
    )
    peer = Peer(server)
    peer.send(heartbeat(1), heartbeat(2), commit(3))
    assert server.stats.requests == {(12, 4, 27): 2, (8, 9, 0): 1}
    assert server.stats.bytes_in == len(heartbeat(1) * 2 + commit(3))
    assert server.stats.bytes_out == sum(len(frame) for frame in peer.frames())


async def test_alive_peers_do_not_notice_a_bug_in_answering_another() -> None:
    def answer(request: Request) -> Any:
        return object() if isinstance(request, OffsetCommit) else ErrorCode.NONE

    server = make_server(answer)
    unlucky, other = Peer(server), Peer(server)
    unlucky.send(commit(1))
    assert unlucky.transport.is_closed
    assert server.stats.closed["internal_error"] == 1
    other.send(heartbeat(2))
    assert other.replies() == [2]


async def test_a_bug_in_the_coordinator_closes_the_one_connection() -> None:
    def answer(request: Request) -> Any:
        raise ZeroDivisionError

    server = make_server(answer)
    peer = Peer(server)
    peer.send(commit(1))
    assert peer.transport.is_closed
    assert server.stats.closed["internal_error"] == 1


async def test_one_turn_begins_a_limited_number_of_bytes() -> None:
    peer, coordinator = make_peer(max_turn_bytes=3 * (len(heartbeat(1)) + HEARTBEAT_REPLY_BYTES))
    peer.send(*[heartbeat(i) for i in range(8)])
    seen = []
    while not seen or seen[-1] < 8:
        seen.append(len(coordinator.requests))
        await turns()
    assert seen == [3, 6, 8]


async def test_a_large_reply_ends_the_turn_and_the_next_begins_when_it_was_taken() -> None:
    """Or 128 pipelined requests for all topics would be one write of hundreds of megabytes."""
    peer, coordinator = make_peer(max_turn_bytes=3 * len(heartbeat(1)))
    answer = coordinator.submit

    def submit(request: Request, ticket: Any) -> None:
        ticket.render = lambda _result, _exchange: bytes(1_000)
        answer(request, ticket)

    coordinator.submit = submit  # type: ignore[method-assign]
    peer.send(*[heartbeat(i) for i in range(4)])
    assert len(coordinator.requests) == 1
    peer.connection.pause_writing()
    await turns(3)
    assert len(coordinator.requests) == 1
    peer.connection.resume_writing()
    seen = []
    while not seen or seen[-1] < 4:
        await turns()
        seen.append(len(coordinator.requests))
    assert seen == [2, 3, 4]
