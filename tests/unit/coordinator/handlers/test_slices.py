"""Replies that grow with what there is: made a slice a turn, and the same bytes as at once."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.records import SavedOffset
from groupkeeper.coordinator.core.requests.admin import ListedGroup, ListGroupsResult
from groupkeeper.coordinator.core.requests.offsets import OffsetFetchResult
from groupkeeper.coordinator.core.stored_topics import StoredTopics
from groupkeeper.coordinator.handlers.slices import SLICE_BYTES, SlicedReply, Slices
from groupkeeper.protocol.packing import printed_topic_id
from tests.helpers.wire.handling import FakeChannel, FakeTopics, begin, make_services, versions_of

WIDE = 7_000
NARROW = 3_000
IMAGE = TopicImage.of(
    TopicInfo("wide", printed_topic_id(bytes(range(16))), WIDE),
    *(TopicInfo(f"t{i}", printed_topic_id(i.to_bytes(16, "big")), 1) for i in range(1, NARROW)),
)
MOST_A_SLICE = SLICE_BYTES + 1_000 * 200
"""A slice ends with the piece that fills it."""


def stored(metadata: str = "") -> dict[str, dict[int, SavedOffset]]:
    """What a large group stores of the image's topics."""
    return {
        topic.name: {
            p: SavedOffset(p + 7, -1, metadata if p % 2 else "", 0, -1, topic.topic_id)
            for p in range(topic.partitions)
        }
        for topic in IMAGE.by_name.values()
    }


def large(version: int, metadata: str = "") -> StoredTopics:
    return StoredTopics(IMAGE, stored(metadata), by_id=version >= 10)


def as_lists(topics: StoredTopics) -> list[Any]:
    return [(name, topic_id, list(rows)) for name, topic_id, rows in topics]


def fetch(version: int) -> dict[str, Any]:
    if version >= 8:
        return {"groups": [{"group_id": "g", "topics": None}]}
    return {"group_id": "g", "topics": None}


def run(channel: FakeChannel) -> int:
    """Run to the end; return the number of turns."""
    turns = 1
    while channel.timers:
        channel.run_timers()
        turns += 1
    return turns


@pytest.mark.parametrize("version", [v for v in versions_of("offset_fetch") if v >= 2])
def test_all_offsets_of_a_large_group_are_told_in_slices(version: int) -> None:
    topics = large(version, "m" * 100)
    at_once = make_services(lambda _: OffsetFetchResult(ErrorCode.NONE, as_lists(topics)))
    _, whole = begin(at_once, "offset_fetch", version, **fetch(version))
    services = make_services(lambda _: OffsetFetchResult(ErrorCode.NONE, topics))
    _, channel = begin(services, "offset_fetch", version, **fetch(version))
    assert channel.replies == []
    assert run(channel) >= 3
    assert channel.replies == whole.replies


@pytest.mark.parametrize("version", [8, 10])
def test_large_groups_among_many_are_asked_for_and_told_one_at_a_time(version: int) -> None:
    topics = large(version)
    groups = [{"group_id": f"g{i}", "topics": None} for i in range(3)]
    at_once = make_services(lambda _: OffsetFetchResult(ErrorCode.NONE, as_lists(topics)))
    _, whole = begin(at_once, "offset_fetch", version, groups=groups)
    run(whole)
    services = make_services(lambda _: OffsetFetchResult(ErrorCode.NONE, topics))
    _, channel = begin(services, "offset_fetch", version, groups=groups)
    assert len(services.coordinator.requests) == 1  # type: ignore[attr-defined]
    assert run(channel) >= 6
    assert channel.replies == whole.replies


def test_a_reply_that_becomes_too_large_ends_before_the_rest_is_made() -> None:
    topics = large(7, "m" * 1_000)
    services = make_services(
        lambda _: OffsetFetchResult(ErrorCode.NONE, topics), max_reply_bytes=600_000
    )
    exchange, channel = begin(services, "offset_fetch", 7, **fetch(7))
    run(channel)
    assert channel.refusals == ["reply_too_large"]
    assert channel.replies == []
    made_bytes = exchange.cost_bytes - topics.held_bytes()
    assert made_bytes < 600_000 < 1_000 * WIDE / 2, "the rest was made"


def test_nothing_more_is_made_for_a_connection_that_has_closed() -> None:
    services = make_services(lambda _: OffsetFetchResult(ErrorCode.NONE, large(7)))
    exchange, channel = begin(services, "offset_fetch", 7, **fetch(7))
    exchange.detach()
    assert channel.timers == []
    assert channel.replies == []


def test_each_slice_counts_as_held_until_the_rest_is_made() -> None:
    def slices() -> Slices:
        yield b"one"
        yield b"three"
        return b"end"

    services = make_services()
    made = bytearray()
    exchange, channel = begin(services, "offset_fetch", 7, **fetch(7))
    SlicedReply(exchange, services, slices(), made.extend).advance()
    assert exchange.cost_bytes == len(b"one")
    channel.run_timers()
    assert exchange.cost_bytes == len(b"onethree")
    channel.run_timers()
    assert made == b"onethreeend"
    assert exchange.cost_bytes == 2 * len(b"onethreeend"), "the copy in the reply is not counted"


def test_a_connection_that_a_slice_closes_gets_no_further_slice() -> None:
    """The budget may close the connection that reports more memory."""
    made: list[int] = []

    def slices() -> Slices:
        for number in range(3):
            made.append(number)
            yield b"slice"
        return b"end"

    services = make_services()
    exchange, channel = begin(services, "offset_fetch", 7, **fetch(7))
    channel.grew = lambda exchange, _: exchange.detach()  # type: ignore[method-assign]
    SlicedReply(exchange, services, slices(), lambda _: None).advance()
    run(channel)
    assert made == [0]


@pytest.mark.parametrize("version", [7, 8])
def test_between_two_slices_a_reply_holds_little_beside_them(version: int) -> None:
    """Its encoded rows, or a piece that is far larger than a slice, would be held for every client
    that asks at the same time, and are not counted.
    """
    text = "m" * 4_000
    few = {p: SavedOffset(p, -1, text + str(p), 0, -1, "") for p in range(2_000)}
    topics = StoredTopics(IMAGE, {"wide": few}, by_id=False)
    services = make_services(lambda _: OffsetFetchResult(ErrorCode.NONE, topics))
    tracemalloc.start()
    try:
        exchange, channel = begin(services, "offset_fetch", version, **fetch(version))
        for _ in range(3):
            channel.run_timers()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert channel.replies == []
    assert held < 1.5 * exchange.cost_bytes


def test_a_bug_in_a_later_slice_is_told_and_ends_the_reply() -> None:
    def slices() -> Slices:
        yield b"one"
        raise ValueError

    services = make_services()
    exchange, channel = begin(services, "offset_fetch", 7, **fetch(7))
    SlicedReply(exchange, services, slices(), lambda _: None).advance()
    channel.run_timers()
    assert [type(error) for error in channel.failures] == [ValueError]
    assert (channel.timers, channel.replies) == ([], [])


def test_what_is_stored_shows_as_it_was_in_one_moment() -> None:
    offsets = stored()
    topics = StoredTopics(IMAGE, offsets, by_id=False)
    before = as_lists(topics)
    offsets["wide"][0] = SavedOffset(99, -1, "", 0, -1, "")
    del offsets["wide"][1], offsets["t1"]
    assert as_lists(topics) == before
    assert len(topics) == len(before) == NARROW


def test_by_id_nothing_is_told_of_topics_that_are_gone_or_were_made_again() -> None:
    offsets = stored()
    offsets["gone"] = {0: SavedOffset(1, -1, "", 0, -1, "x")}
    offsets["t1"] = {
        0: SavedOffset(1, -1, "", 0, -1, "another"),
        1: SavedOffset(2, -1, "", 0, -1, ""),
    }
    topics = {name: list(rows) for name, _, rows in StoredTopics(IMAGE, offsets, by_id=True)}
    assert "gone" not in topics
    assert topics["t1"] == [(1, 2, -1, "", ErrorCode.NONE)]


@pytest.mark.parametrize("version", [1, 8, 9, 12])
def test_metadata_of_all_topics_is_told_in_slices(version: int) -> None:
    topics = FakeTopics(*IMAGE.by_name.values())
    _, channel = begin(make_services(topics=topics), "metadata", version, topics=None)
    assert channel.replies == []
    assert run(channel) >= 2
    names = [{"name": name} for name in IMAGE.by_name]
    _, named = begin(make_services(topics=topics), "metadata", version, topics=names)
    run(named)
    assert channel.replies == named.replies


@pytest.mark.parametrize("version", versions_of("list_groups"))
def test_a_listing_is_rendered_as_its_groups_come(version: int) -> None:
    groups = [ListedGroup(f"g{i}", "consumer", "Empty", "classic") for i in range(100)]  # type: ignore[arg-type]
    whole = make_services(lambda _: ListGroupsResult(ErrorCode.NONE, tuple(groups)))
    _, at_once = begin(whole, "list_groups", version)
    services = make_services()
    exchange, channel = begin(services, "list_groups", version)
    (ticket,) = services.coordinator.tickets  # type: ignore[attr-defined]
    for start in range(0, 100, 10):
        assert ticket.receive(groups[start : start + 10])
    assert exchange.cost_bytes > 100 * len("g00consumer")
    ticket.resolve(ListGroupsResult(ErrorCode.NONE))
    assert channel.replies == at_once.replies


def test_a_listing_that_fails_in_the_end_shows_no_groups() -> None:
    services = make_services()
    _, channel = begin(services, "list_groups", 4)
    (ticket,) = services.coordinator.tickets  # type: ignore[attr-defined]
    ticket.receive([ListedGroup("g", "consumer", "Empty", "classic")])  # type: ignore[arg-type]
    ticket.resolve(ListGroupsResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    refused = make_services(lambda _: ListGroupsResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    _, at_once = begin(refused, "list_groups", 4)
    assert channel.replies == at_once.replies


def test_a_listing_that_becomes_too_large_wants_no_more() -> None:
    services = make_services(max_reply_bytes=1_000)
    _, channel = begin(services, "list_groups", 4)
    (ticket,) = services.coordinator.tickets  # type: ignore[attr-defined]
    group = ListedGroup("g" * 300, "consumer", "Empty", "classic")  # type: ignore[arg-type]
    assert [ticket.receive([group]) for _ in range(4)] == [True, True, True, False]
    assert channel.refusals == ["reply_too_large"]
