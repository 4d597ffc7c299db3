"""Which bytes the generated readers read, and which they leave to the safe reader."""

from __future__ import annotations

from typing import Any

import pytest

from groupkeeper.protocol.codec import request_class
from groupkeeper.protocol.reader import read_entity
from groupkeeper.protocol.versions import ApiKey
from groupkeeper.protocol.writer import Row, write_entity
from tests.helpers.wire.plain_bytes import read_plain

LIMIT = 100
MEMBERS = 5


def sync_group(version: int, **values: Any) -> bytes:
    assignments = [Row(member_id=f"member-{n}", assignment=b"x" * 200) for n in range(MEMBERS)]
    row = Row(
        group_id="g" * 300,
        generation_id=7,
        member_id="member-1",
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name=None,
        assignments=assignments,
    )
    return bytes(write_entity(request_class(ApiKey.SYNC_GROUP, version), _with(row, values)))


def _with(row: Row, values: dict[str, Any]) -> Row:
    return Row(**(vars(row) | values))


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_request_as_clients_send_it_is_plain(version: int) -> None:
    entity_type = request_class(ApiKey.SYNC_GROUP, version)
    read = read_plain(entity_type, b"head" + sync_group(version) + b"rest", 4, LIMIT)
    assert (read.group_id, read.generation_id, read.member_id) == ("g" * 300, 7, "member-1")
    assert read.group_instance_id is None
    assert [a.assignment for a in read.assignments] == [b"x" * 200] * MEMBERS
    assert type(read) is entity_type


@pytest.mark.parametrize("version", [3, 5])
def test_what_is_cut_off_is_left_to_the_safe_reader(version: int) -> None:
    whole = sync_group(version)
    entity_type = request_class(ApiKey.SYNC_GROUP, version)
    assert all(read_plain(entity_type, whole[:n], 0, LIMIT) is None for n in range(len(whole)))


def test_a_tag_a_long_varint_and_a_small_budget_are_left_to_the_safe_reader() -> None:
    entity_type = request_class(ApiKey.SYNC_GROUP, 5)
    whole = sync_group(5)
    assert read_plain(entity_type, whole, 0, MEMBERS) is not None
    assert read_plain(entity_type, whole, 0, MEMBERS - 1) is None
    tagged = whole[:-1] + b"\x01\x09\x01x"
    assert read_plain(entity_type, tagged, 0, LIMIT) is None
    assert read_entity(entity_type, tagged, 0, LIMIT).generation_id == 7
    assert read_plain(entity_type, b"\xff" * 6 + whole, 0, LIMIT) is None


def test_text_that_is_not_utf_8_is_left_to_the_safe_reader() -> None:
    entity_type = request_class(ApiKey.SYNC_GROUP, 3)
    damaged = sync_group(3).replace(b"ggg", b"g\xffg", 1)
    assert read_plain(entity_type, damaged, 0, LIMIT) is None
    assert read_entity(entity_type, damaged, 0, LIMIT).group_id.startswith("g\ufffdg")
