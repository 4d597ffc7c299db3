"""Building responses from plain values, reading text as Java does, topic ids."""

from __future__ import annotations

from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from protocol.codec import (
    build,
    request_class,
    respond,
    response_class,
    topic_id_to_uuid,
    uuid_to_topic_id,
)
from protocol.reader import java_text
from protocol.versions import ApiKey


def test_a_field_that_a_version_lacks_is_dropped() -> None:
    old = build(response_class(ApiKey.HEARTBEAT, 0), error_code=27)
    new = build(response_class(ApiKey.HEARTBEAT, 4), error_code=27)
    assert not hasattr(old, "throttle_time")
    assert new.throttle_time.total_seconds() == 0
    assert old.error_code is new.error_code is ErrorCode(27)


def test_nested_values_may_be_mappings() -> None:
    entity = build(
        response_class(ApiKey.CREATE_TOPICS, 7),
        topics=[
            {"name": "orders", "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "error_code": 36,
             "error_message": None, "num_partitions": -1, "replication_factor": -1,
             "configs": None},
        ],
    )  # fmt: skip
    (topic,) = entity.topics
    assert topic.topic_id == UUID(int=1)
    assert topic.error_code == 36
    assert topic.configs is None


def test_what_a_version_needs_and_did_not_get_is_a_bug() -> None:
    with pytest.raises(TypeError, match="error_code"):
        build(response_class(ApiKey.HEARTBEAT, 4))


def test_a_response_is_a_whole_frame() -> None:
    assert respond(ApiKey.HEARTBEAT, 0, 5, error_code=25) == b"\0\0\0\x06\0\0\0\x05\0\x19"
    assert respond(ApiKey.HEARTBEAT, 4, 5, error_code=25) == (
        b"\0\0\0\x0c\0\0\0\x05\0\0\0\0\0\0\x19\0"
    )


def test_dropped_versions_have_the_classes_of_their_successors() -> None:
    assert request_class(ApiKey.OFFSET_FETCH, 0) is request_class(ApiKey.OFFSET_FETCH, 1)
    assert response_class(ApiKey.OFFSET_FETCH, 0) is response_class(ApiKey.OFFSET_FETCH, 1)
    assert response_class(ApiKey.OFFSET_COMMIT, 0) is response_class(ApiKey.OFFSET_COMMIT, 2)
    assert request_class(ApiKey.OFFSET_COMMIT, 0).__name__ == "OffsetCommitRequestV0"


def test_topic_ids_have_two_forms() -> None:
    uuid = UUID("d79a0b1c-9f4f-4e5f-8c3b-0f1e2d3c4b5a")
    printed = uuid_to_topic_id(uuid)
    assert len(printed) == 22
    assert topic_id_to_uuid(printed) == uuid
    assert uuid_to_topic_id(None) == ""
    assert topic_id_to_uuid("") is None


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain", "plain"),
        (b"a\xffb", "a\ufffdb"),
        (b"\xc3", "\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),
        (b"\xe1\x80A", "\ufffdA"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0\x80\xed\xb0\x80", "\ufffd\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xed\x9f\xbf", "\ud7ff"),
        (b"\xf0\x90\x80", "\ufffd"),
        (b"\xf5\x80", "\ufffd\ufffd"),
    ],
)
def test_malformed_text_is_replaced_as_java_replaces_it(raw: bytes, text: str) -> None:
    assert java_text(raw) == text
