"""Lines of segments: commits without names of their partitions, whatever the reader is given."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.storage.segment_lines import decode_line, encode_line
from tests.helpers.core.sample_events import rendered, rendered_snapshot

EVENTS = [*rendered(), *rendered_snapshot()]
COMMIT = next(event for event in EVENTS if event["kind"] == "commit")

COMMON = b'{"log_id": "l", "seq": 1, "ts_ms": 1, "group": "g", '


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event["kind"])
def test_a_line_is_read_as_the_event_that_was_written(event: dict[str, object]) -> None:
    before = msgspec.json.encode(event)
    line = encode_line(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_line(line) == event
    assert msgspec.json.encode(event) == before, "the caller's event was changed"


@given(metadata=st.text(max_size=30), offset=st.integers(-1, 2**63 - 1))
def test_partitions_of_a_commit_are_rows_in_the_file(metadata: str, offset: int) -> None:
    partition = {
        "partition": 3,
        "offset": offset,
        "previous_offset": 5,
        "leader_epoch": -1,
        "metadata": metadata,
    }
    event = COMMIT | {"topics": [{"topic": "orders", "topic_id": "id", "partitions": [partition]}]}
    written = msgspec.json.decode(encode_line(event))
    assert written == event | {
        "topics": [{"topic": "orders", "topic_id": "id", "rows": [[3, offset, 5, -1, metadata]]}]
    }
    assert decode_line(encode_line(event)) == event


def test_a_commit_of_schema_version_1_has_names_already() -> None:
    assert decode_line(msgspec.json.encode(COMMIT) + b"\n") == COMMIT


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b'{"kind": "commit"',
        b"{}",
        b'{"log_id": "l", "seq": 1, "ts_ms": "abc", "kind": "group_created", "group": "g"}',
        b'{"log_id": "l", "seq": null, "ts_ms": 1, "kind": "group_created", "group": "g"}',
        COMMON + b'"kind": "commit"}',
        COMMON + b'"kind": "commit", "topics": 3}',
        COMMON + b'"kind": "commit", "topics": [{"rows": []}]}',
        COMMON + b'"kind": "commit", "topics": [{"topic": "t", "topic_id": "", "rows": [[1]]}]}',
    ],
)
def test_what_is_no_event_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_line(line)
