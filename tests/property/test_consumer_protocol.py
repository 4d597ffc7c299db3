"""The consumer protocol's subscriptions and assignments against kio's, and on any bytes."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.schema.index import schema_name_map
from kio.serial import entity_reader
from kio.static.constants import EntityType

from groupkeeper.protocol.consumer_protocol import (
    MAX_COMPARED,
    MAX_LISTED,
    MAX_NAME_BYTES,
    MAX_NAMES,
    MAX_PARTS,
    NAMES_PER_PART,
    REMEMBERED_LISTS,
    ConsumerAssignment,
    ConsumerProtocolError,
    MembersReader,
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


def subscribing(topics: list[str], user_data: bytes | None = None) -> bytes:
    return encode_subscription(Subscription(0, topics, user_data))


def shuffled(names: list[str], at: int) -> list[str]:
    return random.Random(at).sample(names, len(names))


NAMES = st.sampled_from(["a", "b", "ab", "a\0b", "", "x" * 255, "x" * 256, "\u65e5", "\0", "\1a"])


@SOME
@given(members=st.lists(st.lists(NAMES, max_size=5), max_size=12))
def test_a_list_in_another_order_is_the_same_list(members: list[list[str]]) -> None:
    """Names that are empty, long or contain a zero are no names of topics for Kafka, and are read
    in another way.
    """
    reader = MembersReader()
    known: dict[frozenset[str], list[str]] = {}
    for at, topics in enumerate(members):
        user_data = bytes(at)
        subscription = reader.subscription(subscribing(topics, user_data))
        assert subscription.user_data == user_data, "the bytes behind the list are read"
        assert set(subscription.topics) == set(topics)
        assert known.setdefault(frozenset(topics), subscription.topics) is subscription.topics
    assert len({id(topics) for topics in known.values()}) == len(known)


@SOME
@given(data=st.binary(max_size=60) | st.binary(max_size=40).map(b"\0\1\0\0\0\1".__add__))
def test_what_a_reader_of_members_refuses_is_what_one_subscription_refuses(data: bytes) -> None:
    try:
        expected = set(decode_subscription(data).topics)
    except ConsumerProtocolError:
        with pytest.raises(ConsumerProtocolError):
            MembersReader().subscription(data)
    else:
        reader = MembersReader()
        assert [set(reader.subscription(data).topics) for _ in range(2)] == [expected] * 2


def test_a_name_is_not_taken_for_another_one_with_its_length() -> None:
    name = "x" * 255
    long_name = b"\xff" + name.encode()
    reader = MembersReader()
    for raw in (b"\0\0\0\0\0\1\1\0" + long_name + b"\xff" * 4, subscribing([name])):
        assert reader.subscription(raw).topics == decode_subscription(raw).topics


def test_many_members_may_send_the_same_topics_in_orders_of_their_own() -> None:
    names = [f"topic-{number}" for number in range(100)]
    raws = [subscribing(shuffled(names, at)) for at in range(MAX_COMPARED // 100)]
    reader = MembersReader()
    assert len({id(reader.subscription(raw).topics) for raw in raws}) == 1
    assert all_subscribed_topics(raws) == {*names}
    with pytest.raises(ConsumerProtocolError, match="more than"):
        reader.subscription(subscribing(shuffled(names, -1)))
    with pytest.raises(ConsumerProtocolError, match="more than"):
        all_subscribed_topics([*raws, subscribing(shuffled(names, -1))])


def test_members_may_have_more_lists_than_are_remembered_by_their_bytes() -> None:
    lists = [[f"{at}-{number}" for number in range(100)] for at in range(REMEMBERED_LISTS + 1)]
    reader = MembersReader()
    for _ in range(MAX_COMPARED // 100 // len(lists)):
        for names in lists:
            assert reader.subscription(subscribing(names)).topics == names


def test_a_list_is_remembered_from_its_last_use_on() -> None:
    usual = [f"topic-{number}" for number in range(MAX_COMPARED // 10)]
    reader = MembersReader()
    for at in range(100):
        assert reader.subscription(subscribing(usual, bytes(at))).topics == usual
        assert reader.subscription(subscribing([f"own-{at}"])).topics == [f"own-{at}"]


def test_only_new_names_count() -> None:
    names = [f"topic-{number}" for number in range(MAX_NAMES)]
    halves = [names[: MAX_NAMES // 2], names[MAX_NAMES // 2 :]]
    reader = MembersReader()
    for topics in (*halves, names[1 : MAX_LISTED - MAX_NAMES]):
        assert reader.subscription(subscribing(topics)).topics == topics
    with pytest.raises(ConsumerProtocolError, match="more than"):
        reader.subscription(subscribing(["one-more"]))


def test_different_lists_of_known_names_have_a_limit_too() -> None:
    names = [f"topic-{number}" for number in range(10_000)]
    most = MAX_LISTED // (len(names) - 1)
    raws = [subscribing(names[:at] + names[at + 1 :]) for at in range(most + 1)]
    assert len(all_subscribed_topics(raws[:most])) == len(names)
    with pytest.raises(ConsumerProtocolError, match="more than"):
        all_subscribed_topics(raws)


def test_names_that_are_compared_count_as_partitions() -> None:
    names = [f"topic-{number}" for number in range(9_000)]
    for others, parts in (
        ([*reversed(names)], len(names) // NAMES_PER_PART),
        (names[1:], len(names) - 1),
    ):
        for assigned, fits in ((MAX_PARTS - 2 - parts, True), (MAX_PARTS - 1 - parts, False)):
            reader = MembersReader()
            reader.subscription(subscribing(names))
            reader.subscription(subscribing(others))
            data = encode_assignment(ConsumerAssignment(0, {"x": [0] * assigned}))
            if fits:
                assert len(reader.assignment(data).partitions["x"]) == assigned
            else:
                with pytest.raises(ConsumerProtocolError, match="too many"):
                    reader.assignment(data)


@pytest.mark.parametrize("size", [250, 300])
def test_the_bytes_of_the_different_names_have_a_limit(size: int) -> None:
    names = [f"{number:0{size}}" for number in range(MAX_NAME_BYTES // (size + 1))]
    raws = [subscribing(names), subscribing(names, b"x")]
    assert all_subscribed_topics(raws) == {*names}
    with pytest.raises(ConsumerProtocolError, match="more than"):
        all_subscribed_topics([*raws, subscribing(["y" * 5_000])])
