"""Payloads and events: what is written down, and what readers get."""

from __future__ import annotations

import msgspec
import pytest

from groupkeeper.coordinator.core.events import GroupCreated
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.storage.base import Batch, ShardAppend, StorageError
from groupkeeper.storage.codec.events import Stamp
from groupkeeper.storage.codec.records import (
    decode_head,
    decode_payload,
    decode_record,
    decode_saved,
    encode_payload,
    payload_events,
)
from tests.helpers.core.records import commit, group_record
from tests.helpers.core.sample_events import SAMPLES, encoded_kinds, rendered

STAMP = Stamp("log", 2_000, 1_000)


def append_of(*batches: Batch, shard: int = 0) -> ShardAppend:
    return ShardAppend(shard, 1, batches, lambda _: None)


def test_every_kind_of_event_comes_out_complete_and_numbered() -> None:
    first, *others = SAMPLES
    assert not isinstance(first, GroupCreated)
    batches = [Batch([first], [])] + [Batch([], [event]) for event in others]  # type: ignore[list-item]
    payload = decode_payload(encode_payload(STAMP, 0, [append_of(*batches)]))
    assert list(payload_events(1, payload)) == rendered()
    assert encoded_kinds() == {event["kind"] for event in rendered()} - {"commit"}


def test_events_of_a_batch_come_before_its_commits_and_other_records_are_no_events() -> None:
    batch = Batch([group_record("g"), commit("g", 1)], [GroupCreated(group_id="g")])
    payload = decode_payload(encode_payload(STAMP, 0, [append_of(batch, batch)]))
    kinds = [(event["seq"], event["kind"]) for event in payload_events(7, payload)]
    assert kinds == [(7, "group_created"), (8, "commit"), (9, "group_created"), (10, "commit")]


def test_what_the_clock_said_is_there_only_where_it_differs() -> None:
    for stamp, there in ((Stamp("log", 5, 5), False), (Stamp("log", 5, 4), True)):
        items = [append_of(Batch([], [GroupCreated(group_id="g")]))]
        (event,) = payload_events(1, decode_payload(encode_payload(stamp, 0, items)))
        assert ("clock_ms" in event) is there


def test_an_event_of_no_group_has_no_group_type() -> None:
    types = {event["kind"]: event["group_type"] for event in rendered()}
    assert types["admin_action"] == types["end_offset"] == types["shard_loaded"] == ""
    assert types["commit"] == types["member_join"] == "classic"


def test_the_type_of_a_group_is_that_of_its_records_and_events() -> None:
    of_consumer = {"group_type": GroupType.CONSUMER}
    changed = msgspec.structs.replace(commit("g", 1), **of_consumer)
    batch = Batch([commit("c", 1), changed], [GroupCreated(group_id="g", **of_consumer)])
    data = encode_payload(STAMP, 0, [append_of(batch)])
    types = [(e["group"], e["group_type"]) for e in payload_events(1, decode_payload(data))]
    assert types == [("g", "consumer"), ("c", "classic"), ("g", "consumer")]
    assert data.count(b"group_type") == 2, "the type of a classic group is not stored"


def test_items_without_batches_leave_no_trace() -> None:
    payload = decode_payload(encode_payload(STAMP, 4, [append_of(), append_of(shard=1)]))
    assert payload.items == []
    assert payload.folded_row == 4


def test_bytes_are_base64_in_plain_json() -> None:
    data = encode_payload(STAMP, 0, [append_of(Batch([group_record("g")], []))])
    record = msgspec.json.decode(data)["items"][0]["batches"][0]["records"][0]
    assert record["record"] == "group"
    assert record["members"][0]["subscription"] == "AAH/"


def test_the_head_is_read_without_the_rest() -> None:
    head = decode_head(encode_payload(STAMP, 9, [append_of(Batch([commit("g", 1)], []))]))
    assert (head.version, head.log_id, head.ts_ms, head.folded_row) == (3, "log", 2_000, 9)


@pytest.mark.parametrize("decode", [decode_payload, decode_head])
def test_a_payload_of_another_version_is_refused(decode: object) -> None:
    data = encode_payload(STAMP, 0, []).replace(b'"version":3', b'"version":4')
    assert callable(decode)
    with pytest.raises(StorageError, match="version 4, this groupkeeper reads up to 3"):
        decode(data)


@pytest.mark.parametrize("decode", [decode_payload, decode_head, decode_record, decode_saved])
def test_what_cannot_be_read_is_a_storage_error(decode: object) -> None:
    assert callable(decode)
    with pytest.raises(StorageError, match="cannot be read"):
        decode(b'{"record": "unheard-of"}')


def test_a_field_that_an_older_version_did_not_write_takes_its_default() -> None:
    data = b'{"kind":"commit_rejected","group":"g","error":"E"}'
    payload = (
        b'{"version":1,"log_id":"l","ts_ms":1,"clock_ms":1,"folded_row":0,"items":[{"shard":0,'
        b'"lease_epoch":1,"batches":[{"records":[],"events":[' + data + b'],"later":1}]}]}'
    )
    (event,) = payload_events(1, decode_payload(payload))
    assert (event["kind"], event["count"], event["member_id"]) == ("commit_rejected", 1, "")
