"""Bytes that pass a gateway are the same, however the network cuts them."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.coordinator.gateway.apis import Treatment, treatments
from groupkeeper.coordinator.gateway.reply_stream import ReplySlot, ReplyStream
from groupkeeper.coordinator.gateway.request_stream import Passed, RequestStream
from groupkeeper.protocol.errors import ProtocolError
from tests.helpers.wire.relays import KAFKA_VERSIONS, produce, reply, request

TABLE = treatments(KAFKA_VERSIONS)
LIMIT = 100_000

bodies = st.binary(max_size=60) | st.integers(0, 70_000).map(bytes)
ids = st.integers(-(2**31), 2**31 - 1)
requests = st.one_of(
    st.builds(produce, ids, st.sampled_from([0, 1, -1]), bodies, st.sampled_from([3, 8, 9, 12])),
    st.builds(request, st.sampled_from([1, 2, 3, 11, 12, 18, 22, 36]), st.just(0), ids, bodies),
    st.builds(request, st.sampled_from([1, 3]), st.just(12), ids, bodies),
)


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The data in pieces, most of them small."""
    marks = draw(st.lists(st.integers(0, len(data)), max_size=30))
    edges = [0, *sorted(set(marks)), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a < b]


def read_requests(pieces: list[bytes]) -> list[tuple[bool, bytes, bool]]:
    """Each request: was it gathered, its bytes, does it get a reply."""
    stream = RequestStream(lambda key, version: TABLE.get((key, version)), LIMIT, LIMIT)
    found: list[tuple[bool, bytes, bool]] = []
    for data in pieces:
        stream.feed(data)
        while (piece := stream.take()) is not None:
            if not isinstance(piece, Passed):
                assert piece.treatment is not Treatment.PASSED
                found.append((True, piece.frame, True))
            elif piece.key >= 0:
                found.append((False, bytes(piece.data), piece.gets_reply))
            else:
                whole, sent, gets_reply = found.pop()
                found.append((whole, sent + piece.data, gets_reply))
    assert not stream.held_bytes
    assert not stream.is_incomplete
    return found


@given(st.data(), st.lists(requests, min_size=1, max_size=6))
def test_requests_are_the_same_however_they_arrive(data: st.DataObject, sent: list[bytes]) -> None:
    together = read_requests([b"".join(sent)])
    assert [frame for _, frame, _ in together] == sent
    assert read_requests(data.draw(cut(b"".join(sent)))) == together


@given(st.data(), st.lists(st.tuples(ids, bodies, st.booleans()), min_size=1, max_size=6))
def test_replies_are_the_same_however_they_arrive(
    data: st.DataObject, sent: list[tuple[int, bytes, bool]]
) -> None:
    stream = ReplyStream(LIMIT, LIMIT)
    for correlation_id, _, is_gathered in sent:
        stream.expect(ReplySlot(1, 0, correlation_id, bytes if is_gathered else None))
    frames = [reply(correlation_id, body) for correlation_id, body, _ in sent]
    found: list[bytes] = [b""]
    for piece in data.draw(cut(b"".join(frames))):
        stream.feed(piece)
        while (part := stream.take()) is not None:
            found[-1] += part.data
            if part.is_last:
                found.append(b"")
    assert found == [*frames, b""]
    assert not stream.owes
    assert not stream.held_bytes


@given(st.binary(max_size=200), st.data())
def test_any_bytes_are_refused_or_wait_and_hold_little(junk: bytes, data: st.DataObject) -> None:
    stream = RequestStream(lambda key, version: TABLE.get((key, version)), LIMIT, LIMIT)
    with suppress(ProtocolError):
        for piece in data.draw(cut(junk)):
            stream.feed(piece)
            while stream.take() is not None:
                pass
    assert stream.held_bytes <= len(junk)
