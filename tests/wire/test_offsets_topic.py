"""Records of ``__consumer_offsets`` are read as Kafka's own classes read them, in every version.

``tests/wire/capture_offsets_topic.py`` wrote the records: some by a real Kafka 4.3.1, some by its
classes, since a broker writes the newest version alone.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.protocol.offsets_topic import (
    ENTITIES,
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    OtherKey,
    RecordError,
    decode_group,
    decode_key,
    decode_offset,
    encode,
)
from groupkeeper.protocol.reader import read_entity

LINES = Path(__file__).with_name("offsets_topic").joinpath("records.jsonl").read_text()
RECORDS = [json.loads(line) for line in LINES.splitlines()]
FROM_A_BROKER = [record for record in RECORDS if record["from"] == "a broker"]


def test_there_are_records_of_every_version_and_of_a_broker() -> None:
    versions = {
        (record["key"][:4], int(record["value"][:4], 16)) for record in RECORDS if record["value"]
    }
    offsets = {("0001", version) for version in range(5)}
    groups = {("0002", version) for version in range(5)}
    assert versions >= offsets | groups | {("0000", 0)}
    kinds = {(record["key"][:4], record["value"] is None) for record in FROM_A_BROKER}
    assert kinds >= {("0001", False), ("0001", True), ("0002", False)}


def numbered(record: dict[str, Any]) -> str:
    value = "none" if record["value"] is None else f"v{int(record['value'][:4], 16)}"
    return f"{RECORDS.index(record)}-type{int(record['key'][:4], 16)}-{value}"


@pytest.mark.parametrize("record", RECORDS, ids=numbered)
def test_a_record_says_what_kafkas_classes_say(record: dict[str, Any]) -> None:
    key = decode_key(bytes.fromhex(record["key"]))
    assert shown(key) == record["key_as_json"]
    if record["value"] is not None:
        decode = decode_offset if isinstance(key, OffsetKey) else decode_group
        theirs = record["value_as_json"]
        ours = shown(decode(bytes.fromhex(record["value"])))
        members = zip(ours.get("members", []), theirs.get("members", []), strict=True)
        for mine, other in [(ours, theirs), *members]:
            # a field that a version does not have: Kafka's JSON leaves it out, ours has its default
            assert {name: mine[name] for name in other if name != "members"} == {
                name: other[name] for name in other if name != "members"
            }
            assert {mine[name] for name in mine.keys() - other.keys()} <= {-1, "", None}


@pytest.mark.parametrize("record", RECORDS, ids=numbered)
def test_a_record_is_written_again_byte_for_byte(record: dict[str, Any]) -> None:
    key = bytes.fromhex(record["key"])
    name = "GroupMetadata" if key[1] == 2 else "OffsetCommit"
    assert again(f"{name}Key", key) == key
    if record["value"] is not None:
        value = bytes.fromhex(record["value"])
        assert again(f"{name}Value", value) == value


def again(name: str, data: bytes) -> bytes:
    entity = ENTITIES[name, int.from_bytes(data[:2], "big")]
    return encode(read_entity(entity, data, 2, 1000))


def shown(value: Any) -> dict[str, Any]:
    """As Kafka's JSON converters print it."""
    found = {}
    for each in fields(value):
        content = getattr(value, each.name)
        if isinstance(content, tuple):
            content = [shown(item) for item in content]
        elif isinstance(content, bytes):
            content = b64encode(content).decode()
        first, *rest = each.name.split("_")
        found[first + "".join(word.title() for word in rest)] = content
    return found


def test_records_of_other_groups_are_told_apart() -> None:
    assert decode_key(bytes.fromhex("0003000161")) == OtherKey(3, "a")
    assert decode_key(bytes.fromhex("000b000161")) == OtherKey(11)
    assert decode_key(bytes.fromhex("7fff")) == OtherKey(32_767)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\0\5ab", b"\0\2\xff\xff"])
def test_what_is_no_key_is_an_error(data: bytes) -> None:
    with pytest.raises(RecordError):
        decode_key(data)


def test_a_version_after_the_newest_is_an_error_that_names_it() -> None:
    with pytest.raises(RecordError, match="OffsetCommitValue of version 5"):
        decode_offset(b"\0\5" + bytes(40))
    with pytest.raises(RecordError, match="GroupMetadataValue of version -1"):
        decode_group(b"\xff\xff" + bytes(40))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode, kinds in (
        (decode_key, (OffsetKey, GroupKey, OtherKey)),
        (decode_offset, (OffsetValue,)),
        (decode_group, (GroupValue,)),
    ):
        try:
            found = decode(data)
        except RecordError:
            continue
        assert isinstance(found, kinds)
