"""A row as lines of a segment: the same events, to the last field, as readers of rows get."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.records import (
    CommittedPartition,
    CommittedTopic,
    OffsetsCommitted,
)
from storage.base import Batch, ShardAppend
from storage.event_codec import Stamp
from storage.event_lines import event_lines
from storage.record_codec import Payload, decode_payload, encode_payload, payload_events
from tests.helpers.sample_events import SAMPLES

INTEGERS = st.integers(-1, 2**63 - 1)
TEXTS = st.text(max_size=20)


def payload_of(stamp: Stamp, *batches: Batch) -> Payload:
    items = [ShardAppend(shard, 3, batches, lambda _: None) for shard in (-1, 7)]
    return decode_payload(encode_payload(stamp, 0, items))


def assert_same(payload: Payload) -> None:
    lines = list(event_lines(11, payload))
    assert all(line.line.endswith(b"\n") and line.line.count(b"\n") == 1 for line in lines)
    decoded = [msgspec.json.decode(line.line) for line in lines]
    assert decoded == list(payload_events(11, payload))
    assert [(e["seq"], e["group"]) for e in decoded] == [(e.seq, e.group_id) for e in lines]


@pytest.mark.parametrize("stamp", [Stamp("log", 2_000, 2_000), Stamp("log", 2_000, 1_000)])
def test_every_kind_is_the_same_event(stamp: Stamp) -> None:
    commit, *events = SAMPLES
    assert_same(payload_of(stamp, Batch([commit], []), Batch([commit], events), Batch([], events)))  # type: ignore[list-item]


@given(
    group=TEXTS,
    texts=st.tuples(TEXTS, TEXTS, TEXTS, TEXTS, TEXTS),
    instance=st.none() | TEXTS,
    rows=st.lists(st.tuples(INTEGERS, INTEGERS, INTEGERS, INTEGERS, TEXTS), max_size=3),
    topics=st.integers(0, 3),
    times=st.tuples(INTEGERS, INTEGERS),
)
def test_any_commit_is_the_same_event(
    group: str,
    texts: tuple[str, str, str, str, str],
    instance: str | None,
    rows: list[tuple[int, int, int, int, str]],
    topics: int,
    times: tuple[int, int],
) -> None:
    member, client, host, principal, topic = texts
    parts = [CommittedPartition(*row) for row in rows]
    commit = OffsetsCommitted(
        group_id=group,
        generation_id=4,
        member_id=member,
        group_instance_id=instance,
        client_id=client,
        client_host=host,
        principal=principal,
        commit_time_ms=times[0],
        expire_time_ms=times[1],
        topics=[CommittedTopic(topic, "id", parts)] * topics,
    )
    assert_same(payload_of(Stamp("log", 5, 5), Batch([commit], [])))
