"""OffsetCommit and OffsetFetch, every version, against kio's classes
(docs/spec/admission.md#placement, docs/spec/offsets.md#commit, #fetch).
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.offsets import (
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchResult,
)
from tests.helpers.wire.handling import (
    CLIENT_HOST,
    CLIENT_ID,
    ORDERS,
    ORDERS_UUID,
    FakeCoordinator,
    ask,
    asked,
    begin,
    begin_frame,
    decode,
    make_services,
    versions_of,
)

CLIENT = Client(CLIENT_ID, CLIENT_HOST)


def name_of(version: int) -> tuple[str, str]:
    """(name, id) of the topic as a request of this version has it."""
    return ("", ORDERS.topic_id) if version >= 10 else ("orders", "")


def named(version: int, topic: dict[str, Any]) -> bool:
    if version >= 10:
        return topic["topic_id"] == str(ORDERS_UUID)
    return topic["name"] == "orders"


COMMIT = {
    "group_id": "g",
    "generation_id_or_member_epoch": 4,
    "member_id": "m-1",
    "group_instance_id": "i-1",
    "retention_time": 3_600_000,
    "topics": [
        {
            "name": "orders",
            "topic_id": ORDERS_UUID,
            "partitions": [
                {
                    "partition_index": 0,
                    "committed_offset": 100,
                    "committed_leader_epoch": 2,
                    "committed_metadata": "note",
                },
                {
                    "partition_index": 2,
                    "committed_offset": -7,
                    "committed_leader_epoch": -1,
                    "committed_metadata": None,
                },
            ],
        }
    ],
}


@pytest.mark.parametrize("version", versions_of("offset_commit"))
def test_commit_of_every_version_becomes_one_request(version: int) -> None:
    epoch = 2 if version >= 6 else -1
    assert asked("offset_commit", version, **COMMIT) == OffsetCommit(
        "g",
        4,
        "m-1",
        "i-1" if version >= 7 else None,
        [(*name_of(version), [(0, 100, epoch, "note"), (2, -7, -1, None)])],
        version >= 10,
        3_600_000 if version <= 4 else -1,
        ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION,
        CLIENT,
    )


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


@pytest.mark.parametrize("version", [0, 1])
def test_commits_that_kafka_dropped_are_served(version: int) -> None:
    """Layouts: docs/spec/wire.md#old-versions."""
    body = _text("g")
    if version == 1:
        body += struct.pack(">i", 4) + _text("m-1")
    body += struct.pack(">i", 1) + _text("orders") + struct.pack(">i", 1)
    body += struct.pack(">iq", 2, 100)
    if version == 1:
        body += struct.pack(">q", 1_700_000_000_000)
    body += _text("note")
    header = struct.pack(">hhi", 8, version, 77) + _text(CLIENT_ID)
    frame = struct.pack(">i", len(header + body)) + header + body
    results: Any = [("orders", "", [(2, ErrorCode.NONE)])]
    services = make_services(lambda _: OffsetCommitResult(ErrorCode.NONE, results))
    _, channel = begin_frame(services, frame)
    (request,) = services.coordinator.requests  # type: ignore[attr-defined]
    assert request.generation_id == (4 if version else -1)
    assert request.member_id == ("m-1" if version else "")
    assert request.topics == [("orders", "", [(2, 100, -1, "note")])]
    assert request.retention_ms == -1
    reply = decode("offset_commit", version, channel.replies[0])
    assert reply["topics"][0]["partitions"] == [{"partition_index": 2, "error_code": 0}]


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE])
@pytest.mark.parametrize("version", versions_of("offset_commit"))
def test_commit_reply_lists_the_partitions_as_the_core_does(version: int, error: ErrorCode) -> None:
    rows = [(2, error), (0, ErrorCode.NONE)]
    result = OffsetCommitResult(ErrorCode.NONE, [(*name_of(version), rows)])
    reply = ask("offset_commit", version, lambda _: result, **COMMIT)
    (topic,) = reply["topics"]
    assert named(version, topic)
    assert [(p["partition_index"], p["error_code"]) for p in topic["partitions"]] == [
        (2, error),
        (0, 0),
    ]


@pytest.mark.parametrize("version", versions_of("offset_commit"))
def test_commit_error_of_the_whole_is_copied_to_every_partition(version: int) -> None:
    result = OffsetCommitResult(ErrorCode.ILLEGAL_GENERATION)
    reply = ask("offset_commit", version, lambda _: result, **COMMIT)
    (topic,) = reply["topics"]
    assert named(version, topic)
    assert [(p["partition_index"], p["error_code"]) for p in topic["partitions"]] == [
        (0, 22),
        (2, 22),
    ]


def fetch_values(version: int, topics: list[int] | None) -> dict[str, Any]:
    wire = None
    if topics is not None:
        wire = [{"name": "orders", "topic_id": ORDERS_UUID, "partition_indexes": topics}]
    group = {"group_id": "g", "member_id": "m-1", "member_epoch": 6, "topics": wire}
    return {**group, "require_stable": True, "groups": [group]}


@pytest.mark.parametrize("version", versions_of("offset_fetch"))
def test_fetch_of_every_version_becomes_one_request(version: int) -> None:
    assert asked("offset_fetch", version, **fetch_values(version, [0, 2])) == OffsetFetch(
        "g",
        [(*name_of(version), [0, 2])],
        version >= 10,
        version >= 7,
        "m-1" if version >= 9 else None,
        6 if version >= 9 else -1,
    )


@pytest.mark.parametrize("version", [v for v in versions_of("offset_fetch") if v >= 2])
def test_null_topics_ask_for_everything(version: int) -> None:
    assert asked("offset_fetch", version, **fetch_values(version, None)).topics is None


@pytest.mark.parametrize("version", versions_of("offset_fetch"))
def test_fetch_reply_of_every_version(version: int) -> None:
    rows = [(0, 100, 2, "note", ErrorCode.NONE), (2, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)]
    result = OffsetFetchResult(ErrorCode.NONE, [("orders", ORDERS.topic_id, rows)])
    services = make_services(lambda _: result)
    _, channel = begin(services, "offset_fetch", version, **fetch_values(version, [0, 2]))
    reply = decode("offset_fetch", version, channel.replies[0])
    if version >= 8:
        (reply,) = reply["groups"]
        assert reply["group_id"] == "g"
    assert reply.get("error_code", 0) == 0
    (topic,) = reply["topics"]
    assert named(version, topic)
    first, second = topic["partitions"]
    assert (first["committed_offset"], first["metadata"], first["error_code"]) == (100, "note", 0)
    assert first.get("committed_leader_epoch", 2) == 2
    assert (second["committed_offset"], second["error_code"]) == (-1, 88)


@pytest.mark.parametrize("groups", [1, 2])
def test_topic_id_that_is_not_known_is_told_and_counted(groups: int) -> None:
    known = ("orders", ORDERS.topic_id, [(0, 100, 2, "", ErrorCode.NONE)])
    empty = ("orders", ORDERS.topic_id, [])
    unknown = ("", ORDERS.topic_id, [(0, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)])
    result = OffsetFetchResult(ErrorCode.NONE, [known, empty, unknown])
    asked_for = fetch_values(10, [0])["groups"] * groups
    reply = ask("offset_fetch", 10, lambda _: result, groups=asked_for)
    codes = [t["partitions"][0]["error_code"] for g in reply["groups"] for t in g["topics"][::2]]
    assert codes == [0, 100] * groups


@pytest.mark.parametrize("version", versions_of("offset_fetch"))
def test_fetch_error_of_a_group_is_placed_by_version(version: int) -> None:
    result = OffsetFetchResult(ErrorCode.NOT_COORDINATOR, [])
    reply = ask("offset_fetch", version, lambda _: result, **fetch_values(version, [0, 2]))
    if version >= 8:
        (reply,) = reply["groups"]
    if version >= 2:
        assert (reply["error_code"], reply["topics"]) == (16, [])
    else:
        (topic,) = reply["topics"]
        assert [
            (p["partition_index"], p["committed_offset"], p["metadata"], p["error_code"])
            for p in topic["partitions"]
        ] == [(0, -1, "", 16), (2, -1, "", 16)]


def test_offset_fetch_v0_means_v1() -> None:
    services = make_services(lambda _: OffsetFetchResult(ErrorCode.NONE, []))
    body = _text("g") + struct.pack(">i", 1) + _text("orders") + struct.pack(">ii", 1, 2)
    header = struct.pack(">hhi", 9, 0, 77) + _text(CLIENT_ID)
    _, channel = begin_frame(services, struct.pack(">i", len(header + body)) + header + body)
    (request,) = services.coordinator.requests  # type: ignore[attr-defined]
    assert request.topics == [("orders", "", [2])]
    assert decode("offset_fetch", 0, channel.replies[0]) == {"topics": []}


@pytest.mark.parametrize("version", [8, 9, 10])
def test_many_groups_are_answered_in_request_order_however_late_each_is(version: int) -> None:
    services = make_services()
    topics = [{"name": "orders", "topic_id": ORDERS_UUID, "partition_indexes": [0]}]
    groups = [{"group_id": name, "topics": topics} for name in ("a", "b", "a")]
    exchange, channel = begin(services, "offset_fetch", version, groups=groups)
    coordinator = services.coordinator
    assert isinstance(coordinator, FakeCoordinator)
    assert exchange.blocks
    errors = [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    for index in (2, 1, 0):
        assert channel.replies == []
        rows = [(index, index * 10, -1, "", ErrorCode.NONE)]
        found = [] if errors[index] else [("orders", ORDERS.topic_id, rows)]
        coordinator.tickets[index].resolve(OffsetFetchResult(errors[index], found))
    reply = decode("offset_fetch", version, channel.replies[0])
    assert [(g["group_id"], g["error_code"]) for g in reply["groups"]] == [
        ("a", 0),
        ("b", 25),
        ("a", 0),
    ]
    assert reply["groups"][2]["topics"][0]["partitions"][0]["committed_offset"] == 20
    assert exchange.error == ErrorCode.UNKNOWN_MEMBER_ID, "the first error is what is counted"


def test_no_groups_at_all_is_answered_with_none() -> None:
    assert ask("offset_fetch", 8, groups=[]) == {"throttle_time": 0, "groups": []}


def test_a_large_number_of_groups_is_asked_for_in_windows() -> None:
    services = make_services(lambda _: OffsetFetchResult(ErrorCode.NONE, []))
    groups = [{"group_id": f"g{i}", "topics": None} for i in range(150)]
    _, channel = begin(services, "offset_fetch", 9, groups=groups)
    asked_for = []
    while not channel.replies:
        asked_for.append(len(services.coordinator.requests))  # type: ignore[attr-defined]
        channel.run_timers()
    assert asked_for == [64, 128]
    reply = decode("offset_fetch", 9, channel.replies[0])
    assert [g["group_id"] for g in reply["groups"]] == [f"g{i}" for i in range(150)]


def test_nothing_more_is_asked_once_the_connection_has_closed() -> None:
    services = make_services(lambda _: OffsetFetchResult(ErrorCode.NONE, []))
    groups = [{"group_id": f"g{i}", "topics": None} for i in range(150)]
    exchange, channel = begin(services, "offset_fetch", 9, groups=groups)
    exchange.detach()
    assert channel.timers == [], "the next window is not waited for"
    channel.run_timers()
    assert len(services.coordinator.requests) == 64  # type: ignore[attr-defined]


def test_answers_that_come_after_the_connection_has_closed_are_heard_by_nobody() -> None:
    services = make_services()
    topics = [{"name": "orders", "partition_indexes": [0]}]
    groups = [{"group_id": f"g{i}", "topics": topics} for i in range(70)]
    exchange, channel = begin(services, "offset_fetch", 9, groups=groups)
    exchange.detach()
    coordinator = services.coordinator
    assert isinstance(coordinator, FakeCoordinator)
    for ticket in coordinator.tickets:
        ticket.resolve(OffsetFetchResult(ErrorCode.NONE, []))
    assert (channel.replies, channel.failures, channel.timers) == ([], [], [])
    assert len(coordinator.requests) == 64


def test_large_answers_end_a_window_early() -> None:
    rows = [(i, i, -1, "x" * 1_000, ErrorCode.NONE) for i in range(100)]
    services = make_services(lambda _: OffsetFetchResult(ErrorCode.NONE, [("orders", "", rows)]))
    groups = [{"group_id": f"g{i}", "topics": None} for i in range(8)]
    _, channel = begin(services, "offset_fetch", 9, groups=groups)
    asked_for = []
    while not channel.replies:
        asked_for.append(len(services.coordinator.requests))  # type: ignore[attr-defined]
        channel.run_timers()
    # The third answer of 100 kB fills the 256 kB of a window.
    assert asked_for == [3, 6]
    reply = decode("offset_fetch", 9, channel.replies[0])
    assert [g["group_id"] for g in reply["groups"]] == [f"g{i}" for i in range(8)]


def test_a_reply_that_would_be_too_large_ends_the_connection_instead() -> None:
    rows = [(i, i, -1, "x" * 100, ErrorCode.NONE) for i in range(100)]
    services = make_services(
        lambda _: OffsetFetchResult(ErrorCode.NONE, [("orders", "", rows)]), max_reply_bytes=50_000
    )
    groups = [{"group_id": "same", "topics": None}] * 1_000
    _, channel = begin(services, "offset_fetch", 9, groups=groups)
    while channel.timers:
        channel.run_timers()
    assert channel.refusals == ["reply_too_large"]
    assert channel.replies == []
    # Not all of them were even asked for.
    assert len(services.coordinator.requests) <= 64  # type: ignore[attr-defined]


def test_commits_and_single_fetches_may_be_pipelined() -> None:
    services = make_services()
    for api, version, values in (
        ("offset_commit", 9, COMMIT),
        ("offset_fetch", 9, fetch_values(9, [0])),
    ):
        exchange, _ = begin(services, api, version, **values)
        assert not exchange.blocks


GROWN = "\ufffd" * 20_000
"""A name of 20,000 bytes that are not UTF-8, as it is read: 60,000 bytes."""


@pytest.mark.parametrize("version", range(2, 10))
def test_a_commit_for_a_name_that_grew_as_it_was_read_is_answered(version: int) -> None:
    rows: list[Any] = [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    result = OffsetCommitResult(ErrorCode.NONE, [(GROWN, "", rows)])
    reply = ask("offset_commit", version, lambda _: result, **COMMIT)
    assert reply["topics"][0]["name"] == GROWN[: 32_767 // 3]


@pytest.mark.parametrize("version", range(1, 10))
def test_a_fetch_for_a_name_that_grew_as_it_was_read_is_answered(version: int) -> None:
    result = OffsetFetchResult(ErrorCode.NONE, [(GROWN, "", [(0, -1, -1, "", ErrorCode.NONE)])])
    reply = ask("offset_fetch", version, lambda _: result, **fetch_values(version, [0]))
    group = reply["groups"][0] if version >= 8 else reply
    assert group["topics"][0]["name"] == GROWN[: 32_767 // 3]
