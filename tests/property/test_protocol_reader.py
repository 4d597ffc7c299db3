"""The safe reader against kio's own reader and writer, on random valid content of every version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader

from groupkeeper.protocol.codec import read_request, request_class
from groupkeeper.protocol.reader import read_with_care
from tests.helpers.wire.plain_bytes import read_plain
from tests.helpers.wire.wire_entities import (
    FEW,
    encode,
    entities,
    kio_bytes,
    plain,
    served,
    served_id,
)

LIMIT = 1000


@pytest.mark.parametrize("api", served(), ids=served_id)
@FEW
@given(data=st.data())
def test_requests_are_read_as_kio_reads_them(api: tuple[int, int], data: st.DataObject) -> None:
    entity_type = request_class(*api)
    entity = data.draw(entities(entity_type))
    body = kio_bytes(entity)
    assert encode(entity)[0] == body, "the encoder that the hostile tests build on"

    ours = read_request(*api, b"1234" + body + b"left over", 4, LIMIT)

    theirs, size = entity_reader(entity_type)(body, 0)
    assert size == len(body)
    assert plain(ours) == plain(theirs) == plain(entity)
    assert type(ours) is entity_type


@pytest.mark.parametrize("api", served(), ids=served_id)
@FEW
@given(data=st.data())
def test_bytes_that_are_read_quickly_are_read_as_with_care(
    api: tuple[int, int], data: st.DataObject
) -> None:
    entity_type = request_class(*api)
    body = bytearray(kio_bytes(data.draw(entities(entity_type))))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, max(0, len(body) - 1)))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    limit = data.draw(st.integers(0, 20))

    quickly = read_plain(entity_type, bytes(body), 0, limit)

    if quickly is not None:
        assert plain(quickly) == plain(read_with_care(entity_type, bytes(body), 0, limit))
