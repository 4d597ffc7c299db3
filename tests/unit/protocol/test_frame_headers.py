"""Request and response headers."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.frames import (
    MAX_REMEMBERED_BYTES,
    HeaderReader,
    RequestHeader,
    has_flexible_response_header,
    read_request_header,
    response_header,
)
from groupkeeper.protocol.versions import ApiKey


def frame(
    key: int,
    version: int,
    client_id: bytes | None = b"app",
    rest: bytes = b"",
    correlation_id: int = 7,
) -> bytes:
    size = -1 if client_id is None else len(client_id)
    return struct.pack(">ihhih", 0, key, version, correlation_id, size) + (client_id or b"") + rest


def test_a_classic_version_has_header_v1() -> None:
    header = read_request_header(frame(ApiKey.HEARTBEAT, 3, rest=b"body"))
    assert header == RequestHeader(ApiKey.HEARTBEAT, 3, 7, "app", 17)


def test_a_flexible_version_has_header_v2() -> None:
    header = read_request_header(frame(ApiKey.HEARTBEAT, 4, rest=b"\0body"))
    assert header == RequestHeader(ApiKey.HEARTBEAT, 4, 7, "app", 18)


def test_unknown_tags_are_skipped() -> None:
    data = frame(ApiKey.HEARTBEAT, 4, rest=b"\x02\x00\x03abc\x81\x01\x00body")
    assert data[read_request_header(data).body_offset :] == b"body"


@pytest.mark.parametrize("size", [-1, -2, -(2**15)])
def test_a_negative_length_is_no_client_id(size: int) -> None:
    data = struct.pack(">ihhih", 0, ApiKey.HEARTBEAT, 0, 7, size)
    assert read_request_header(data).client_id is None


def test_a_client_id_that_is_not_utf8_is_replaced() -> None:
    header = read_request_header(frame(ApiKey.HEARTBEAT, 0, b"a\xffb\xed\xa0\x80c"))
    assert header.client_id == "a\ufffdb\ufffdc"


@pytest.mark.parametrize("size", range(14))
def test_a_frame_shorter_than_a_header_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match="bad_header"):
        read_request_header(frame(ApiKey.HEARTBEAT, 0, b"")[:size])


@pytest.mark.parametrize("rest", [b"", b"\x01", b"\x01\x00", b"\x01\x00\x05abc", b"\xff\xff"])
def test_tags_that_end_early_are_refused(rest: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_request_header(frame(ApiKey.HEARTBEAT, 4, rest=rest))


def test_a_client_id_beyond_the_end_is_refused() -> None:
    with pytest.raises(ProtocolError, match="bad_header"):
        read_request_header(frame(ApiKey.HEARTBEAT, 0)[:-1])


@pytest.mark.parametrize(
    ("key", "version"),
    [
        *[(key, 0) for key in (-1, 4, 22, 28, 32767)],
        *[(ApiKey.HEARTBEAT, 5), (ApiKey.HEARTBEAT, -1), (ApiKey.PRODUCE, 2)],
    ],
)
def test_what_is_not_served_is_read_as_far_as_its_client_id(key: int, version: int) -> None:
    data = frame(key, version, rest=b"\xff")
    assert read_request_header(data)[:4] == (key, version, 7, "app")
    assert read_request_header(data).body_offset == len(data) - 1


@pytest.mark.parametrize(("version", "rest"), [(99, b"\0"), (-1, b"")])
def test_api_versions_outside_its_range_comes_through_to_be_answered(
    version: int, rest: bytes
) -> None:
    header = read_request_header(frame(ApiKey.API_VERSIONS, version, rest=rest))
    assert (header.api_key, header.api_version, header.correlation_id) == (18, version, 7)


def test_response_headers() -> None:
    assert response_header(flexible=False).pack(0, 7) == b"\0\0\0\0\0\0\0\x07"
    assert response_header(flexible=True).pack(0, 7) == b"\0\0\0\0\0\0\0\x07\0"


def test_api_versions_alone_answers_flexible_versions_with_header_v0() -> None:
    assert not has_flexible_response_header(ApiKey.API_VERSIONS, 4)
    assert has_flexible_response_header(ApiKey.HEARTBEAT, 4)
    assert not has_flexible_response_header(ApiKey.HEARTBEAT, 3)


LONG = b"x" * (MAX_REMEMBERED_BYTES + 1)
HEADERS = [
    frame(key, version, client_id, rest)
    for client_id in (b"app", b"app", None, b"", b"apple", "ä".encode(), b"a\xff", LONG, b"app")
    for key, version, rest in (
        (ApiKey.HEARTBEAT, 3, b"body"),
        (ApiKey.HEARTBEAT, 4, b"\0body"),
        (ApiKey.OFFSET_COMMIT, 8, b"\x01\x05\x01xbody"),
        (ApiKey.API_VERSIONS, 99, b"\0"),
    )
]


def test_a_connection_reads_its_headers_as_if_each_were_the_first() -> None:
    reader = HeaderReader()
    for data in HEADERS:
        assert reader.read(data) == read_request_header(data)


def sized(data: bytes, more: int = 0) -> bytes:
    """The frame with its length in front."""
    return struct.pack(">i", len(data) - 4 + more) + data[4:]


def test_a_whole_frame_of_the_last_client_has_the_header_that_is_read_otherwise() -> None:
    reader = HeaderReader()
    last_client, found = None, 0
    for data in (*HEADERS, *HEADERS):
        whole = reader.read_whole(sized(data))
        header = read_request_header(data)
        if whole is None:
            assert reader.read(data) == header
        else:
            assert (*whole[:3], last_client, whole[3]) == header
            found += 1
        last_client = header.client_id
    assert found > 10


def test_bytes_that_are_not_exactly_one_frame_are_split_first() -> None:
    data = frame(ApiKey.HEARTBEAT, 4, rest=b"\0body")
    reader = HeaderReader(max_frame_bytes=len(data) - 4)
    reader.read(data)
    assert reader.read_whole(sized(data)) == (ApiKey.HEARTBEAT, 4, 7, 18)
    longer = sized(data + b"x")
    for other in (sized(data, 1), sized(data, -1), sized(data) + b"x", sized(data)[:-1], longer):
        assert reader.read_whole(other) is None
    for size in range(18):
        assert reader.read_whole(sized(data[:size])) is None


def test_a_negative_key_or_version_is_not_taken_for_another_that_is_served() -> None:
    reader = HeaderReader()
    served = frame(ApiKey.HEARTBEAT, 4, rest=b"\0body")
    for numbers in ((12, -1), (12, -0x8000), (-1, 4), (-12, 4), (11, 0x7FFF), (-0x8000, 4)):
        odd = served[:4] + struct.pack(">hh", *numbers) + served[8:]
        reader.read(served)
        assert reader.read_whole(sized(served)) is not None
        assert reader.read_whole(sized(odd)) is None
        assert reader.read(odd)[:2] == numbers
        assert reader.read(odd) == read_request_header(odd)


def test_a_client_id_that_is_too_long_to_remember_ends_what_was_remembered() -> None:
    data = frame(ApiKey.HEARTBEAT, 4, rest=b"\0body")
    reader = HeaderReader()
    reader.read(data)
    reader.read(frame(ApiKey.HEARTBEAT, 4, LONG, b"\0body"))
    assert reader.read_whole(sized(data)) is None, "its client is not the last one"


def test_no_bytes_are_those_of_a_client_id_that_is_too_long_to_remember() -> None:
    reader = HeaderReader()
    reader.read(frame(ApiKey.HEARTBEAT, 4, LONG, b"\0body"))
    for version in (3, 4):
        ends_before_the_client_id = frame(ApiKey.HEARTBEAT, version)[:12]
        with pytest.raises(ProtocolError):
            reader.read(ends_before_the_client_id)
        assert reader.read_whole(sized(ends_before_the_client_id)) is None


@pytest.mark.parametrize("data", HEADERS[:12])
def test_what_is_refused_is_refused_behind_a_good_header_too(data: bytes) -> None:
    for bad in (
        *[data[:size] for size in range(len(data))],
        frame(99, 4, b"app"),
        frame(ApiKey.HEARTBEAT, 77, b"app"),
    ):
        reader = HeaderReader()
        reader.read(data)
        assert outcome(reader.read, bad) == outcome(read_request_header, bad)


def outcome(read: Callable[[bytes], object], data: bytes) -> object:
    try:
        return read(data)
    except ProtocolError as refused:
        return refused.reason
