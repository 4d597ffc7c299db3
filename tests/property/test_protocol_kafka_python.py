"""Requests and responses against kafka-python's codecs, which come from Kafka's schemas on their
own way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from groupkeeper.protocol.codec import read_request, request_class, response_class, write_response
from groupkeeper.protocol.versions import API_BY_KEY, ApiKey
from tests.helpers.clients.kafka_python import message_class
from tests.helpers.wire.wire_entities import (
    FEW,
    entities,
    kio_bytes,
    plain,
    response_values,
    served,
    served_id,
)

LIMIT = 1000
UNKNOWN = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE)
"""kafka-python has no consumer groups."""
KNOWN = [api for api in served() if api[0] not in UNKNOWN]
NO_DEFAULT = ("replica_state", "current_leader", "diverging_epoch", "snapshot_id")


def theirs(api_key: int, kind: str) -> Any:
    """kafka-python's class."""
    return message_class(API_BY_KEY[api_key].name + kind)


def comparable(value: Any) -> Any:
    """One spelling of names and values.

    kio leaves the unit out of names; kafka-python turns authorized operations into a set of bits,
    and has no value for a nested entity that is a tag and was not sent.
    """
    if isinstance(value, dict):
        return {
            name.removesuffix("_ms"): comparable(item)
            for name, item in value.items()
            if not name.endswith("authorized_operations") and name not in NO_DEFAULT
        }
    if isinstance(value, list | tuple):
        return [comparable(item) for item in value]
    if isinstance(value, UUID) and value.int == 0:
        return None
    if isinstance(value, memoryview):
        return bytes(value)
    return value


@pytest.mark.parametrize("api", KNOWN, ids=served_id)
@FEW
@given(data=st.data())
def test_requests_are_read_as_kafka_python_reads_them(
    api: tuple[int, int], data: st.DataObject
) -> None:
    body = kio_bytes(data.draw(entities(request_class(*api))))

    ours = read_request(*api, body, 0, LIMIT)

    decoded = theirs(api[0], "Request").decode(body, version=api[1])
    assert comparable(plain(ours)) == comparable(decoded.to_dict(json=False))


@pytest.mark.parametrize("api", KNOWN, ids=served_id)
@FEW
@given(data=st.data(), correlation_id=st.integers(-(2**31), 2**31 - 1))
def test_response_frames_are_read_by_kafka_python(
    api: tuple[int, int], data: st.DataObject, correlation_id: int
) -> None:
    entity = data.draw(entities(response_class(*api)))
    if api[0] == ApiKey.API_VERSIONS:
        # With an error it takes the body for one of v0.
        entity = replace(entity, error_code=ErrorCode.none)

    throttle_time_ms, values = response_values(entity)
    frame = write_response(*api, correlation_id, throttle_time_ms, values)

    decoded = theirs(api[0], "Response").decode(frame, version=api[1], header=True, framed=True)
    assert decoded.header.correlation_id == correlation_id
    assert comparable(plain(entity)) == comparable(decoded.to_dict(json=False))
