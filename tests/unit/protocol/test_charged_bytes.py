"""Bytes are charged as well as elements: long names cost time wherever they are handled."""

from __future__ import annotations

import pytest

from groupkeeper.protocol.codec import read_request
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.frames import read_request_header
from groupkeeper.protocol.packed.offset_commit import read_offset_commit
from groupkeeper.protocol.packed.offset_fetch import read_offset_fetch
from groupkeeper.protocol.reader import BYTES_AN_ELEMENT, FREE_BYTES
from groupkeeper.protocol.versions import ApiKey
from tests.helpers.wire.raw_client import encode_request

ALLOWED = 1_000


def commit_of(metadata_bytes: int, partitions: int = 900, version: int = 8) -> bytes:
    """A commit whose partitions share the bytes of metadata."""
    text = "m" * (metadata_bytes // partitions)
    rows = [{"partition_index": n, "committed_metadata": text} for n in range(partitions)]
    values = {"group_id": "g", "topics": [{"name": "orders", "partitions": rows}]}
    return encode_request("offset_commit", version, values, 1, "app")


def reason(read, key: ApiKey, version: int, frame: bytes) -> str:
    """Why the frame is refused; "" if it is not."""
    offset = read_request_header(frame).body_offset
    try:
        read(version, frame, offset, ALLOWED)
    except ProtocolError as error:
        return error.reason
    return ""


def carefully(version: int, frame: bytes, offset: int, max_elements: int) -> object:
    return read_request(ApiKey.OFFSET_COMMIT, version, frame, offset, max_elements)


@pytest.mark.parametrize("version", [2, 7, 8, 9])
@pytest.mark.parametrize("read", [read_offset_commit, carefully], ids=["packed", "careful"])
def test_bytes_above_the_first_megabyte_count_as_elements(read, version) -> None:
    key = ApiKey.OFFSET_COMMIT
    assert reason(read, key, version, commit_of(900_000, version=version)) == ""
    left = ALLOWED - 901  # the partitions, and their topic
    longest = FREE_BYTES + (left - 1) * BYTES_AN_ELEMENT - 40_000
    assert reason(read, key, version, commit_of(longest, version=version)) == ""
    too_long = FREE_BYTES + (left + 2) * BYTES_AN_ELEMENT
    assert reason(read, key, version, commit_of(too_long, version=version)) == "too_many_elements"


@pytest.mark.parametrize("length", [15_000, 30_000], ids=["packed", "careful"])
def test_long_names_of_groups_are_charged_in_a_fetch(length: int) -> None:
    count = 3_000_000 // length
    groups = [{"group_id": f"{n}" + "g" * length, "topics": None} for n in range(count)]
    frame = encode_request("offset_fetch", 8, {"groups": groups}, 1, "app")
    assert len(frame) > FREE_BYTES + ALLOWED * BYTES_AN_ELEMENT
    assert reason(read_offset_fetch, ApiKey.OFFSET_FETCH, 8, frame) == "too_many_elements"


def test_what_the_leader_of_a_thousand_members_sends_is_read() -> None:
    """Half a megabyte to one: within what is free, and so with a tenth of the budget."""
    assignments = [{"member_id": f"m{n}" * 10, "assignment": bytes(950)} for n in range(1_000)]
    values = {"group_id": "g", "member_id": "m0", "assignments": assignments}
    frame = encode_request("sync_group", 5, values, 1, "app")
    offset = read_request_header(frame).body_offset
    assert len(read_request(ApiKey.SYNC_GROUP, 5, frame, offset, 1_000).assignments) == 1_000
