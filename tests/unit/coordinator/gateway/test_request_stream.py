"""The beginning of a passed request, as slow as a client may send it."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.gateway import request_stream
from groupkeeper.coordinator.gateway.apis import treatments
from groupkeeper.coordinator.gateway.request_stream import Passed, RequestStream
from tests.helpers.wire.relays import KAFKA_VERSIONS

TABLE = treatments(KAFKA_VERSIONS)
LONGEST_ID = b"x" * 32_767
PRODUCE_KEY, FLEXIBLE = 0, 9


def produce_with(client_id: bytes, tags: int, transactional_id: bytes) -> bytes:
    """Return a Produce whose beginning is as long as clients can make it."""
    length = len(transactional_id) + 1
    body = b"".join(
        [
            PRODUCE_KEY.to_bytes(2, "big") + FLEXIBLE.to_bytes(2, "big") + bytes(4),
            len(client_id).to_bytes(2, "big") + client_id,
            bytes([tags]) + b"".join(bytes([tag, 100]) + bytes(100) for tag in range(tags)),
            bytes([length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14]),
            transactional_id,
            (1).to_bytes(2, "big") + bytes(4) + bytes([1, 0]),
        ]
    )
    return len(body).to_bytes(4, "big") + body


def test_a_beginning_that_comes_byte_by_byte_is_read_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was copied and read again after each byte, so one client cost the loop gigabytes."""
    read_bytes: list[int] = []
    read = request_stream.acks_of

    def counted(head: bytes, version: int) -> int | None:
        read_bytes.append(len(head))
        return read(head, version)

    monkeypatch.setattr(request_stream, "acks_of", counted)
    stream = RequestStream(lambda key, version: TABLE.get((key, version)), 10**6, 10**6)
    frame = produce_with(LONGEST_ID, 10, LONGEST_ID)
    passed = bytearray()
    for at in range(len(frame)):
        stream.feed(frame[at : at + 1])
        while (piece := stream.take()) is not None:
            assert isinstance(piece, Passed)
            passed += piece.data
    assert passed == frame
    assert not stream.held_bytes
    assert sum(read_bytes) < 4 * len(frame)
