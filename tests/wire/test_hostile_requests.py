"""Bodies that nobody should send: in every served request, at every place where a length is.

No exception but ProtocolError comes out, and no more memory is taken than a small multiple of the
frame.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from groupkeeper.protocol.codec import read_request, request_class
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.packed.heartbeat import read_heartbeat
from groupkeeper.protocol.packed.offset_commit import read_offset_commit
from groupkeeper.protocol.packed.offset_fetch import read_offset_fetch
from groupkeeper.protocol.versions import ApiKey
from tests.helpers.wire.wire_entities import (
    Mark,
    encode,
    kio_bytes,
    plain,
    replaced,
    sample,
    served,
    served_id,
)

LIMIT = 10_000
HOT: dict[int, Callable[[int, bytes, int, int], Any]] = {
    ApiKey.HEARTBEAT: read_heartbeat,
    ApiKey.OFFSET_COMMIT: read_offset_commit,
    ApiKey.OFFSET_FETCH: read_offset_fetch,
}
DROPPED = [(8, 0), (8, 1), (9, 0)]
ALL = [*served(), *DROPPED]
every_request = pytest.mark.parametrize("api", ALL, ids=served_id)


def readers(api: tuple[int, int]) -> list[Callable[[bytes], Any]]:
    """What reads a body of this API and version: the careful reader, and the hot one."""
    result: list[Callable[[bytes], Any]] = [lambda body: read_request(*api, body, 0, LIMIT)]
    if api[0] in HOT:
        result.append(lambda body: HOT[api[0]](api[1], body, 0, LIMIT))
    return result


def sample_body(api: tuple[int, int]) -> tuple[bytes, list[Mark]]:
    return encode(sample(request_class(*api)))


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


COMPACT_COUNTS = [
    varint(n) for n in (1000, 2**14, 2**21, 2**28, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)
]
COMPACT_COUNTS += [b"\xff\xff\xff\xff\x7f", b"\xff" * 5 + b"\x01"]
CLASSIC_COUNTS = [struct.pack(">i", n) for n in (1000, 2**20, 2**31 - 1)]
CLASSIC_STRINGS = [struct.pack(">h", n) for n in (1000, 2**15 - 1)]


def hostile(mark: Mark) -> list[bytes]:
    if mark.compact:
        return COMPACT_COUNTS
    return CLASSIC_STRINGS if mark.kind == "string" else CLASSIC_COUNTS


def peak_bytes(read: Callable[[bytes], Any], body: bytes) -> int:
    """The most that is allocated while a body is refused.

    The lower of two peaks: a thread that another test has left allocates now and then.
    """
    return min(_peak_bytes(read, body), _peak_bytes(read, body))


def _peak_bytes(read: Callable[[bytes], Any], body: bytes) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            read(body)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@every_request
def test_a_count_or_length_beyond_the_end_is_refused_and_reserves_nothing(
    api: tuple[int, int],
) -> None:
    body, marks = sample_body(api)
    for read in readers(api):
        read(body)  # what is compiled on first use is not what this measures
        for mark in marks:
            for value in hostile(mark):
                peak = peak_bytes(read, replaced(body, mark, value))
                assert peak < 32_768, (mark, value)


@every_request
def test_a_null_where_none_may_be_is_refused(api: tuple[int, int]) -> None:
    body, marks = sample_body(api)
    nulls = [m for m in marks if m.kind in ("array", "string", "bytes") and not m.nullable]
    for read in readers(api):
        for mark in nulls:
            null = b"\0" if mark.compact else b"\xff" * (mark.stop - mark.start)
            with pytest.raises(ProtocolError) as raised:
                read(replaced(body, mark, null))
            assert raised.value.reason == "null_not_allowed", mark


@every_request
def test_an_end_at_any_byte_is_refused(api: tuple[int, int]) -> None:
    body, _ = sample_body(api)
    for read in readers(api):
        for size in range(len(body)):
            with pytest.raises(ProtocolError):
                read(body[:size])


@every_request
def test_unknown_tags_are_skipped_wherever_tags_may_be(api: tuple[int, int]) -> None:
    body, marks = sample_body(api)
    unknown = varint(70) + b"\x03abc" + varint(2**31) + b"\x00"
    for read in readers(api):
        expected = read(body)
        inside_a_tag = {m.path for m in marks if m.kind == "tag_size"}
        for mark in (m for m in marks if m.kind == "tags" and m.path not in inside_a_tag):
            count = body[mark.start]
            tagged = replaced(body, mark, bytes([count + 2]) + unknown)
            assert read(tagged) == expected, mark


@every_request
def test_text_that_is_not_utf8_is_replaced(api: tuple[int, int]) -> None:
    body, marks = sample_body(api)
    for read in readers(api):
        for mark in (m for m in marks if m.kind == "string"):
            bad = body[: mark.stop] + b"\xff\xed\xa0\x80" + body[mark.stop + 4 :]
            assert "\ufffd\ufffd" in repr(plain(read(bad))), mark


@every_request
def test_elements_of_all_arrays_count_against_one_budget(api: tuple[int, int]) -> None:
    body, marks = sample_body(api)
    elements = sum(2 for m in marks if m.kind == "array")
    tags = sum(body[m.start] for m in marks if m.kind == "tags")
    read = HOT.get(api[0])
    needed = elements + tags
    read_request(*api, body, 0, needed)
    if read is not None:
        read(api[1], body, 0, needed)
    if not needed:
        return
    with pytest.raises(ProtocolError) as raised:
        read_request(*api, body, 0, needed - 1)
    assert raised.value.reason == "too_many_elements"
    if read is not None:
        with pytest.raises(ProtocolError) as raised:
            read(api[1], body, 0, needed - 1)
        assert raised.value.reason == "too_many_elements"


def test_many_tags_count_too() -> None:
    body = b"\x02g\0\0\0\1\x02m\0" + varint(5000) + b"\x64\0" * 5000
    assert read_heartbeat(4, body, 0, 5000) == ("g", 1, "m", None)
    with pytest.raises(ProtocolError, match="too_many_elements"):
        read_heartbeat(4, body, 0, 4999)


def test_bytes_that_are_not_text_are_paid_for() -> None:
    names = b"".join(varint(16_001) + b"\xff" * 16_000 for _ in range(20))
    body = varint(21) + names + b"\0\0"
    assert len(read_request(ApiKey.DESCRIBE_GROUPS, 5, body, 0, 30_000).groups) == 20
    with pytest.raises(ProtocolError, match="too_many_elements"):
        read_request(ApiKey.DESCRIBE_GROUPS, 5, body, 0, 10_000)


def test_a_string_above_32767_bytes_is_refused_in_compact_form_too() -> None:
    def heartbeat(size: int) -> bytes:
        return varint(size + 1) + b"g" * size + b"\0\0\0\1\x02m\0\0"

    assert len(read_heartbeat(4, heartbeat(32_767), 0, LIMIT)[0]) == 32_767
    with pytest.raises(ProtocolError, match="string_too_long"):
        read_heartbeat(4, heartbeat(32_768), 0, LIMIT)


def test_a_known_tag_that_comes_twice_counts_as_it_came_last() -> None:
    entity = sample(request_class(ApiKey.FETCH, 12))
    body = kio_bytes(entity)
    tag = b"\x00\x05\x05text"
    assert body.endswith(b"\x01" + tag)
    twice = body.removesuffix(b"\x01" + tag) + b"\x02" + tag + b"\x00\x05\x05last"
    assert read_request(ApiKey.FETCH, 12, twice, 0, LIMIT).cluster_id == "last"


def test_a_known_tag_that_does_not_fill_its_size_is_refused() -> None:
    body = kio_bytes(sample(request_class(ApiKey.FETCH, 12)))
    longer = body.removesuffix(b"\x00\x05\x05text") + b"\x00\x06\x05text\x00"
    with pytest.raises(ProtocolError, match="bad_tag_size"):
        read_request(ApiKey.FETCH, 12, longer, 0, LIMIT)


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -(2**63)])
def test_a_duration_beyond_any_timedelta_is_a_number(retention_ms: int) -> None:
    body = b"\0\1g\0\0\0\1\0\1m" + struct.pack(">q", retention_ms) + b"\0\0\0\0"
    assert read_offset_commit(2, body, 0, LIMIT)[4] == retention_ms
    assert read_request(8, 2, body, 0, LIMIT).retention_time == retention_ms
