"""A row as lines of a segment: the same events, to the last field, as readers of rows get."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.records import (
    COMMIT_API,
    TXN_COMMIT_API,
    CommittedTopic,
    OffsetsCommitted,
)
from groupkeeper.storage.base import Batch, ShardAppend
from groupkeeper.storage.codec.events import Stamp
from groupkeeper.storage.codec.records import decode_payload, encode_payload, payload_events
from groupkeeper.storage.event_log import lines as event_lines
from groupkeeper.storage.event_log.lines import KEPT_ID_BYTES, row_lines
from groupkeeper.storage.segment_lines import decode_line, encode_line
from tests.helpers.core.sample_events import SAMPLES

INTEGERS = st.integers(-1, 2**63 - 1)
TEXTS = st.text(max_size=20)


def row_of(stamp: Stamp, *batches: Batch) -> bytes:
    items = [ShardAppend(shard, 3, batches, lambda _: None) for shard in (-1, 7)]
    return encode_payload(stamp, 0, items)


def assert_same(row: bytes) -> None:
    read = row_lines(11, row)
    payload = decode_payload(row)
    assert (read.log_id, read.first_seq, read.ts_ms) == (payload.log_id, 11, payload.ts_ms)
    events = list(payload_events(11, payload))
    groups, lines = zip(*read.lines, strict=True)
    assert all(line.count(b"\n") == 1 for line in lines)
    in_file = [msgspec.json.decode(line) for line in lines]
    assert in_file == [msgspec.json.decode(encode_line(event)) for event in events]
    assert [decode_line(line) for line in lines] == events
    assert list(groups) == [event["group"] for event in events]


@pytest.mark.parametrize("stamp", [Stamp("log", 2_000, 2_000), Stamp("log", 2_000, 1_000)])
def test_every_kind_is_the_same_event(stamp: Stamp) -> None:
    commit, *events = SAMPLES
    assert_same(row_of(stamp, Batch([commit], []), Batch([commit], events), Batch([], events)))  # type: ignore[list-item]


@given(
    group=TEXTS,
    texts=st.tuples(TEXTS, TEXTS, TEXTS, TEXTS, TEXTS),
    instance=st.none() | TEXTS,
    rows=st.lists(st.tuples(INTEGERS, INTEGERS, INTEGERS, INTEGERS, TEXTS), max_size=3),
    topics=st.integers(0, 3),
    times=st.tuples(INTEGERS, INTEGERS),
    group_type=st.sampled_from(GroupType),
    api=st.sampled_from([COMMIT_API, TXN_COMMIT_API]),
)
def test_any_commit_is_the_same_event(
    group: str,
    texts: tuple[str, str, str, str, str],
    instance: str | None,
    rows: list[tuple[int, int, int, int, str]],
    topics: int,
    times: tuple[int, int],
    group_type: GroupType,
    api: str,
) -> None:
    member, client, host, principal, topic = texts
    parts = [tuple(row) for row in rows]
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
        group_type=group_type if group else GroupType.CLASSIC,  # no other type may have this id
        api=api,
    )
    assert_same(row_of(Stamp("log", 5, 5), Batch([commit], [])))


def test_a_long_id_of_a_group_is_not_kept() -> None:
    event_lines._named.cache_clear()
    for length in (KEPT_ID_BYTES - 2, KEPT_ID_BYTES - 1):  # with its two quotes
        commit = msgspec.structs.replace(SAMPLES[0], group_id="g" * length)  # type: ignore[type-var]
        assert_same(row_of(Stamp("log", 1, 1), Batch([commit], [])))  # type: ignore[list-item]
    assert event_lines._named.cache_info().currsize == 1
