"""The writer of messages against kio's, on random valid content of every version that we serve."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.protocol.codec import request_class, response_class, write_response
from groupkeeper.protocol.reader import read_entity
from groupkeeper.protocol.versions import API_BY_KEY
from groupkeeper.protocol.writer import Row, Written, element_class, entities_writer, write_entity
from tests.helpers.wire import kio_replies
from tests.helpers.wire.wire_entities import (
    FEW,
    entities,
    kio_bytes,
    response_values,
    rows,
    sample,
    served,
    served_id,
    shapes,
)

every_version = pytest.mark.parametrize("api", served(), ids=served_id)


@every_version
@FEW
@given(data=st.data(), correlation_id=st.integers(-(2**31), 2**31 - 1))
def test_responses_are_those_of_kio(
    api: tuple[int, int], data: st.DataObject, correlation_id: int
) -> None:
    entity = data.draw(entities(response_class(*api)))
    throttle_time_ms, values = response_values(entity)
    ours = write_response(*api, correlation_id, throttle_time_ms, values)
    assert ours == kio_replies.write_response(*api, correlation_id, entity)


@every_version
def test_responses_with_empty_arrays_are_those_of_kio(api: tuple[int, int]) -> None:
    entity = sample(response_class(*api))
    empty = replace(entity, **{s.name: () for s in shapes(type(entity)) if s.is_array})
    throttle_time_ms, values = response_values(empty)
    ours = write_response(*api, 1, throttle_time_ms, values)
    assert ours == kio_replies.write_response(*api, 1, empty)


@every_version
@FEW
@given(data=st.data())
def test_requests_are_those_of_kio(api: tuple[int, int], data: st.DataObject) -> None:
    entity = data.draw(entities(request_class(*api)))
    assert write_entity(type(entity), rows(entity)) == kio_bytes(entity)


@every_version
@pytest.mark.parametrize("of", [request_class, response_class])
def test_what_is_neither_null_nor_default_is_written_as_kio_writes_it(
    api: tuple[int, int], of: Any
) -> None:
    entity = sample(of(*api))
    assert write_entity(type(entity), rows(entity)) == kio_bytes(entity)


@every_version
def test_a_response_carries_the_throttle_time_that_is_given(api: tuple[int, int]) -> None:
    entity = sample(response_class(*api))
    _, values = response_values(entity)
    body = 9 if API_BY_KEY[api[0]].is_flexible(api[1]) and api[0] != 18 else 8
    read = read_entity(type(entity), write_response(*api, 1, 1234, values), body, 1000)
    assert getattr(read, "throttle_time", 1234) == 1234
    assert hasattr(read, "throttle_time") == hasattr(entity, "throttle_time")


@every_version
def test_an_array_may_be_written_in_parts(api: tuple[int, int]) -> None:
    entity_type = response_class(*api)
    values = rows(sample(entity_type))
    whole = write_entity(entity_type, values)
    for shape in shapes(entity_type):
        if not shape.is_array or shape.entity is None:
            continue
        write_all = entities_writer(element_class(entity_type, shape.name))
        parts = []
        for item in getattr(values, shape.name):
            part = bytearray()
            write_all(part, [item])
            parts.append(part)
        in_parts = Row(**{**vars(values), shape.name: Written(len(parts), parts)})
        assert write_entity(entity_type, in_parts) == whole


LONG = "m" * 126, "m" * 127, "m" * 128, "m" * 16_382, "m" * 16_383, "m" * 32_767


@pytest.mark.parametrize("text", LONG, ids=len)
@pytest.mark.parametrize("version", range(6))
def test_lengths_take_as_many_bytes_as_with_kio(version: int, text: str) -> None:
    """SyncGroup: a text and bytes, where a varint grows by a byte."""
    entity = kio_replies.build(
        response_class(14, version),
        error_code=0,
        protocol_type=text,
        protocol_name=text,
        assignment=text.encode() * 130,
    )
    assert write_entity(type(entity), rows(entity)) == kio_bytes(entity)


@pytest.mark.parametrize("count", [0, 126, 127, 16_382, 16_383])
@pytest.mark.parametrize("version", [1, 2])
def test_counts_take_as_many_bytes_as_with_kio(version: int, count: int) -> None:
    """DeleteGroups, classic and compact."""
    results = [{"group_id": "", "error_code": 0}] * count
    entity = kio_replies.build(response_class(42, version), results=results)
    ours = write_entity(type(entity), Row(throttle_time=0, results=rows(entity).results))
    assert ours == kio_bytes(entity)


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a\ud800b", b"a?b"),
        ("x" * 40_000, b"x" * 32_767),
        ("\ufffd" * 20_000, "\ufffd".encode() * 10_922),
    ],
)
def test_a_text_without_a_place_on_the_wire_is_replaced_or_cut(
    version: int, text: str, written: bytes
) -> None:
    values = Row(
        throttle_time=0,
        error_code=0,
        members=[Row(member_id=text, group_instance_id=None, error_code=0)],
    )
    entity_type = response_class(13, version)
    read = read_entity(entity_type, bytes(write_entity(entity_type, values)), 0, 10)
    assert read.members[0].member_id.encode() == written


def test_a_tagged_field_with_its_default_is_not_sent() -> None:
    """However the default comes: not given, kio's own, or a row of the same content."""
    entity_type = response_class(1, 16)
    leader = element_class(entity_type, "responses.partitions.current_leader")
    row: dict[str, Any] = {
        "partition_index": 3,
        "error_code": 0,
        "high_watermark": 5,
        "last_stable_offset": 5,
        "log_start_offset": 0,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": b"",
    }
    partition = element_class(entity_type, "responses.partitions")
    plain = write_entity(partition, Row(**row))
    assert plain.endswith(b"\0")
    for default in (leader(), Row(leader_id=-1, leader_epoch=-1)):
        assert write_entity(partition, Row(**row, current_leader=default)) == plain
    sent = write_entity(partition, Row(**row, current_leader=Row(leader_id=1, leader_epoch=0)))
    assert sent == plain[:-1] + b"\x01\x01\x09" + b"\0\0\0\x01" + bytes(4) + b"\0"


def test_null_where_none_may_be_is_a_bug() -> None:
    with pytest.raises(AttributeError):
        write_entity(
            response_class(42, 2), Row(throttle_time=0, results=[Row(group_id=None, error_code=0)])
        )
    with pytest.raises(TypeError):
        write_entity(response_class(42, 2), Row(throttle_time=0, results=None))
    with pytest.raises(TypeError):
        write_response(42, 2, 1, 0, {"results": None})


def test_durations_are_milliseconds() -> None:
    entity = kio_replies.build(
        response_class(12, 4), throttle_time=timedelta(seconds=2), error_code=0
    )
    assert write_entity(type(entity), Row(throttle_time=2000, error_code=0)) == kio_bytes(entity)
