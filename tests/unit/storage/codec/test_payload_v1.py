"""Rows of format version 1, as 0.1.0 wrote them: the same records, events and lines."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.events import GroupCreated
from groupkeeper.coordinator.core.records import (
    CommittedTopic,
    GroupRemoved,
    OffsetsCommitted,
)
from groupkeeper.storage.base import Batch, ShardAppend, StorageError
from groupkeeper.storage.codec.events import Stamp
from groupkeeper.storage.codec.records import decode_payload, encode_payload, is_version_1
from groupkeeper.storage.event_log.lines import row_lines
from groupkeeper.storage.segment_lines import decode_line

OLD = (
    b'{"version":1,"log_id":"log","ts_ms":5,"clock_ms":4,"folded_row":2,"items":[{"shard":7,'
    b'"lease_epoch":3,"batches":[{"records":[{"record":"commit","group_id":"g\\"1","generation_id":'
    b'4,"member_id":"m","group_instance_id":null,"client_id":"c","client_host":"/127.0.0.1",'
    b'"principal":"User:ANONYMOUS","commit_time_ms":1,"expire_time_ms":-1,"topics":[["orders","id",'
    b'[[0,10,-1,-1,""],[1,20,15,3,"note"]]]]},{"record":"group_removed","group_id":"h"}],"events":'
    b'[{"kind":"group_created","group":"g\\"1"}]}]}]}'
)
COMMIT = OffsetsCommitted(
    "g\"1", 4, "m", None, "c", "/127.0.0.1", "User:ANONYMOUS", 1, -1,
    [
        CommittedTopic(
            "orders",
            "id",
            [(0, 10, -1, -1, ""), (1, 20, 15, 3, "note")],
        )
    ],
)  # fmt: skip
BATCH = Batch([COMMIT, GroupRemoved("h")], [GroupCreated(group_id='g"1')])
NEW = encode_payload(Stamp("log", 5, 4), 2, [ShardAppend(7, 3, [BATCH], lambda _: None)])


def test_it_holds_what_was_written() -> None:
    assert is_version_1(OLD)
    assert not is_version_1(NEW)
    old, new = decode_payload(OLD), decode_payload(NEW)
    assert old.items == new.items
    assert old.items[0].batches == [BATCH]
    assert (old.log_id, old.ts_ms, old.clock_ms, old.folded_row) == ("log", 5, 4, 2)


def test_it_is_sealed_as_the_same_events() -> None:
    old, new = row_lines(9, OLD), row_lines(9, NEW)
    assert (old.log_id, old.first_seq, old.ts_ms) == (new.log_id, new.first_seq, new.ts_ms)
    told = [[(g, decode_line(line)) for g, line in row.lines] for row in (old, new)]
    assert told[0] == told[1]
    assert [event["kind"] for _, event in told[0]] == ["group_created", "commit"]


def test_one_that_is_damaged_is_refused() -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        decode_payload(OLD.replace(b'"generation_id":4', b'"generation_id":""'))
    with pytest.raises(StorageError, match="cannot be read"):
        decode_payload(OLD[:-1])
