"""The consumer protocol's subscriptions and assignments against kio's, and on any bytes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.schema.index import schema_name_map
from kio.serial import entity_reader
from kio.static.constants import EntityType

from groupkeeper.protocol.consumer_protocol import (
    MAX_NAMES,
    ConsumerAssignment,
    ConsumerProtocolError,
    Subscription,
    all_subscribed_topics,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from tests.helpers.core.examples import examples

SOME = settings(max_examples=examples(100), derandomize=True, deadline=None, database=None)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
INT32 = st.integers(-(2**31), 2**31 - 1)
PARTITIONS = st.dictionaries(TEXT, st.lists(INT32, max_size=4), max_size=3)
USER_DATA = st.none() | st.binary(max_size=20)
VERSIONS = pytest.mark.parametrize(
    "version", sorted(schema_name_map["consumer_protocol_subscription"])
)


def kio_reads(name: str, version: int, data: bytes) -> Any:
    """The entity behind the version number, with nothing left over."""
    entity_type = load_entity_schema(name, version, EntityType.data)
    assert int.from_bytes(data[:2], "big") == version
    entity, size = entity_reader(entity_type)(data[2:], 0)
    assert size == len(data) - 2
    return entity


@VERSIONS
@SOME
@given(data=st.data())
def test_subscriptions(version: int, data: st.DataObject) -> None:
    subscription = Subscription(
        version,
        data.draw(st.lists(TEXT, max_size=4)),
        data.draw(USER_DATA),
        data.draw(PARTITIONS) if version >= 1 else {},
        data.draw(INT32) if version >= 2 else -1,
        data.draw(st.none() | TEXT) if version >= 3 else None,
    )
    raw = encode_subscription(subscription)
    theirs = kio_reads("consumer_protocol_subscription", version, raw)
    assert list(theirs.topics) == subscription.topics
    assert theirs.user_data == subscription.user_data
    owned = {p.topic: list(p.partitions) for p in getattr(theirs, "owned_partitions", ())}
    assert owned == subscription.owned_partitions
    assert getattr(theirs, "generation_id", -1) == subscription.generation_id
    assert getattr(theirs, "rack_id", None) == subscription.rack_id
    assert decode_subscription(raw) == subscription
    assert subscribed_topics(raw) == subscription.topics


@VERSIONS
@SOME
@given(partitions=PARTITIONS, user_data=USER_DATA)
def test_assignments(version: int, partitions: Any, user_data: bytes | None) -> None:
    assignment = ConsumerAssignment(version, partitions, user_data)
    raw = encode_assignment(assignment)
    theirs = kio_reads("consumer_protocol_assignment", version, raw)
    assert {p.topic: list(p.partitions) for p in theirs.assigned_partitions} == partitions
    assert theirs.user_data == user_data
    assert decode_assignment(raw) == assignment


@SOME
@given(data=st.binary(max_size=60) | st.binary(max_size=40).map(b"\0\1\0\0\0\1".__add__))
def test_any_bytes_are_read_or_refused_with_one_error(data: bytes) -> None:
    for decode in (decode_subscription, subscribed_topics, decode_assignment):
        with contextlib.suppress(ConsumerProtocolError):
            assert decode(data) is not None


@SOME
@given(members=st.lists(st.lists(st.sampled_from("abcd"), max_size=3), max_size=12))
def test_the_topics_of_a_group_are_those_of_all_its_members(members: list[list[str]]) -> None:
    raws = [
        encode_subscription(Subscription(at % 4, topics, bytes(at)))
        for at, topics in enumerate(members)
    ]
    assert all_subscribed_topics(raws) == {topic for topics in members for topic in topics}


def test_a_list_of_topics_that_many_members_have_is_read_once() -> None:
    names = [f"topic-{number}" for number in range(MAX_NAMES)]
    raws = [encode_subscription(Subscription(0, names, bytes(at))) for at in range(100)]
    assert len(all_subscribed_topics(raws)) == MAX_NAMES


@pytest.mark.parametrize("list_of", [["x"] * (MAX_NAMES + 1), ["\u65e5" * 10_000] * 40])
def test_more_topics_than_can_be_read_beside_the_work_are_refused(list_of: list[str]) -> None:
    with pytest.raises(ConsumerProtocolError, match="more than"):
        all_subscribed_topics([encode_subscription(Subscription(0, list_of))])
    half = list_of[: len(list_of) // 2]
    others = [encode_subscription(Subscription(0, [f"{at}", *half])) for at in range(4)]
    with pytest.raises(ConsumerProtocolError, match="more than"):
        all_subscribed_topics(others)
