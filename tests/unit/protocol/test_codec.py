"""Requests and responses of every version, reading text as Java does, topic ids."""

from __future__ import annotations

from uuid import UUID

import pytest

from groupkeeper.protocol.codec import (
    request_class,
    response_class,
    uuid_to_topic_id,
    write_elements,
    write_response,
)
from groupkeeper.protocol.reader import java_text
from groupkeeper.protocol.versions import ApiKey
from groupkeeper.protocol.writer import Row, Written


def test_a_response_is_a_whole_frame() -> None:
    # v0 has no throttle time: its value is dropped.
    v0 = write_response(ApiKey.HEARTBEAT, 0, 5, 7, {"error_code": 25})
    v4 = write_response(ApiKey.HEARTBEAT, 4, 5, 7, {"error_code": 25})
    assert v0 == b"\0\0\0\x06\0\0\0\x05\0\x19"
    assert v4 == b"\0\0\0\x0c\0\0\0\x05\0\0\0\0\7\0\x19\0"


def test_a_response_to_api_versions_has_the_classic_header_in_every_version() -> None:
    frame = write_response(ApiKey.API_VERSIONS, 4, 5, 0, {"error_code": 35, "api_keys": ()})
    assert frame[4:] == b"\0\0\0\x05" + b"\0\x23" + b"\x01" + b"\0\0\0\0" + b"\0"


def test_what_a_version_needs_and_did_not_get_is_a_bug() -> None:
    with pytest.raises(KeyError, match="error_code"):
        write_response(ApiKey.HEARTBEAT, 4, 5, 0, {})


def test_elements_are_those_of_the_whole_response() -> None:
    groups = [Row(group_id="a", error_code=0), Row(group_id="b", error_code=16)]
    parts = [write_elements(ApiKey.DELETE_GROUPS, 2, "results", [group]) for group in groups]
    written = Written(len(parts), parts)
    assert write_response(ApiKey.DELETE_GROUPS, 2, 1, 0, {"results": written}) == write_response(
        ApiKey.DELETE_GROUPS, 2, 1, 0, {"results": groups}
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
    assert uuid_to_topic_id(None) == ""


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
