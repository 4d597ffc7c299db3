"""Records of __consumer_offsets as events: what they tell, and what is not made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from groupkeeper.pipeline.kafka_history.history import NOT_TOLD, Decoder
from groupkeeper.pipeline.kafka_history.transactions import RawRecord
from groupkeeper.protocol.consumer_protocol import ConsumerAssignment, encode_assignment
from groupkeeper.protocol.offsets_topic import ENTITIES, encode

RECORDS = Path(__file__).parents[3] / "wire" / "offsets_topic" / "records.jsonl"


def record(key: Any, value: Any = None, ts_ms: int = 100) -> RawRecord:
    """A record of the newest versions."""
    return RawRecord(0, ts_ms, encode(key), None if value is None else encode(value))


def offset_key(group: str = "g", partition: int = 0) -> Any:
    return ENTITIES["OffsetCommitKey", 1](group=group, topic="orders", partition=partition)


def an_offset(offset: int, **more: Any) -> Any:
    return ENTITIES["OffsetCommitValue", 4](offset=offset, metadata="", commit_timestamp=90, **more)


def group_key(group: str = "g") -> Any:
    return ENTITIES["GroupMetadataKey", 2](group=group)


def a_group(generation: int, *members: str, protocol_type: str = "consumer") -> Any:
    """A group whose members have one partition each, in their order."""
    value = ENTITIES["GroupMetadataValue", 3]
    member = value.__annotations__["members"].__args__[0]
    return value(
        protocol_type=protocol_type,
        generation=generation,
        protocol="range" if members else None,
        leader=members[0] if members else None,
        members=tuple(
            member(
                member_id=name,
                client_id=f"client-{name}",
                client_host="/10.0.0.7",
                session_timeout=1000,
                subscription=b"",
                assignment=encode_assignment(ConsumerAssignment(0, {"orders": [number]})),
            )
            for number, name in enumerate(members)
        ),
    )


def events(*records: RawRecord, whole_until: int = 1) -> list[dict[str, Any]]:
    decoder = Decoder("import-1-7", 7, whole_until)
    return [event for each in records for event in decoder.events(each)]


def test_a_commit_knows_what_it_replaces_and_a_tombstone_what_went() -> None:
    first, second, gone = events(
        record(offset_key(), an_offset(5)),
        record(offset_key(), an_offset(8, leader_epoch=2)),
        record(offset_key()),
    )
    (topic,) = second["topics"]
    assert topic["partitions"] == [
        {"partition": 0, "offset": 8, "leader_epoch": 2, "metadata": "", "previous_offset": 5}
    ]
    assert first["topics"][0]["partitions"][0]["previous_offset"] == -1
    assert (gone["kind"], gone["reason"]) == ("offset_deleted", "tombstone")
    assert gone["topics"][0]["partitions"][0]["offset"] == 8
    assert gone["topics"][0]["partitions"][0]["commit_time_ms"] == 90


def test_what_compaction_may_have_taken_is_not_taken_for_nothing() -> None:
    first, second, gone, again = events(
        record(offset_key(), an_offset(5)),
        record(offset_key(), an_offset(8)),
        record(offset_key(partition=1)),
        record(offset_key(partition=1), an_offset(1)),
        whole_until=0,
    )
    assert gone["kind"] == "offset_deleted"
    assert "offset" not in gone["topics"][0]["partitions"][0]
    before = [event["topics"][0]["partitions"][0] for event in (first, second, again)]
    assert [row.get("previous_offset") for row in before] == [None, 5, -1]


def test_after_a_tombstone_there_is_nothing_to_replace() -> None:
    *_, again = events(
        record(offset_key(), an_offset(5)),
        record(offset_key()),
        record(offset_key(), an_offset(6)),
    )
    assert again["topics"][0]["partitions"][0]["previous_offset"] == -1


def test_events_are_numbered_and_their_time_never_steps_back() -> None:
    found = events(
        record(offset_key(), an_offset(1), ts_ms=100),
        record(offset_key(), an_offset(2), ts_ms=50),
        record(offset_key(), an_offset(3), ts_ms=120),
    )
    assert [event["seq"] for event in found] == [1, 2, 3]
    assert [event["ts_ms"] for event in found] == [100, 100, 120]
    assert [event.get("clock_ms") for event in found] == [None, 50, None]
    assert {(event["log_id"], event["shard"]) for event in found} == {("import-1-7", 7)}


def test_a_commit_in_a_group_with_members_is_of_the_member_that_has_the_partition() -> None:
    created, assignment, mine, nobodys, after = events(
        record(group_key(), a_group(3, "a", "b")),
        record(offset_key(partition=1), an_offset(1)),
        record(offset_key(partition=9), an_offset(1)),
        record(group_key(), a_group(4)),
        record(offset_key(partition=1), an_offset(0)),
    )
    assert created["kind"] == "group_created"
    assert assignment["partitions"] == {"a": {"orders": [0]}, "b": {"orders": [1]}}
    assert (mine["generation"], mine["member_id"], mine["client_id"]) == (3, "b", "client-b")
    assert (nobodys["generation"], nobodys["member_id"]) == (3, "")
    assert (after["generation"], after["member_id"]) == (-1, "")


def test_a_commit_that_counts_with_a_transaction_is_told_by_its_api() -> None:
    sent = record(offset_key(), an_offset(5))
    counts = msgspec.structs.replace(sent, is_transactional=True)
    gone = record(group_key(), a_group(4))
    _, within, plain = events(gone, counts, record(offset_key(), an_offset(6)))
    assert (within["api"], within["generation"], within["member_id"]) == ("TxnOffsetCommit", -1, "")
    assert plain["api"] == "OffsetCommit"


def test_the_assignments_of_other_protocols_stay_opaque() -> None:
    _, assignment = events(record(group_key(), a_group(1, "a", protocol_type="connect")))
    assert assignment["partitions"] is None
    assert assignment["opaque_bytes"] == {"a": len(encode_assignment_of_one())}


def encode_assignment_of_one() -> bytes:
    return encode_assignment(ConsumerAssignment(0, {"orders": [0]}))


def test_a_group_goes_and_comes_again() -> None:
    found = events(
        record(group_key(), a_group(1)), record(group_key()), record(group_key(), a_group(0))
    )
    assert [event["kind"] for event in found] == ["group_created", "group_deleted", "group_created"]


def test_commits_of_the_consumer_protocol_are_no_resets() -> None:
    consumer_group_metadata = RawRecord(0, 1, b"\0\3\0\1g", b"\0\0\0\0\0\1")
    (commit,) = events(consumer_group_metadata, record(offset_key(), an_offset(1)))
    assert (commit["group_type"], commit["member_id"]) == ("consumer", NOT_TOLD)


def test_every_record_of_a_real_broker_makes_events_that_the_schema_knows() -> None:
    from groupkeeper.storage.event_log.event_kinds import KINDS

    rows = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    of_broker = [
        RawRecord(
            number,
            1,
            bytes.fromhex(row["key"]),
            None if row["value"] is None else bytes.fromhex(row["value"]),
        )
        for number, row in enumerate(rows)
        if row["from"] == "a broker"
    ]
    found = events(*of_broker)
    assert len(found) >= 20
    assert {event["kind"] for event in found} <= set(kind_names(KINDS))


def kind_names(kinds: Any) -> set[str]:
    return {getattr(kind, "name", kind) for kind in kinds}
