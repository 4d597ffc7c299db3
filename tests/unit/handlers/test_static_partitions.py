"""ListOffsets, Fetch and Produce of static mode, every version (design 1)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from coordinator.core.errors import ErrorCode
from coordinator.core.topic_image import TopicImage
from coordinator.handlers.fetch import MAX_WAIT_MS
from tests.helpers.handling import (
    ORDERS,
    ORDERS_UUID,
    FakeTopics,
    ask,
    begin,
    decode,
    make_services,
    versions_of,
)


def services_with_end(end: int = 41) -> Any:
    topics = FakeTopics(ORDERS)
    topics.ends[ORDERS.topic_id, 1] = end
    return make_services(topics=topics)


# --- ListOffsets


def offsets_of(version: int, *partitions: tuple[int, int], **values: Any) -> list[Any]:
    reply = ask(
        "list_offsets",
        version,
        services=services_with_end(),
        topics=[
            {
                "name": values.pop("name", "orders"),
                "partitions": [
                    {"partition_index": index, "timestamp": timestamp, **values}
                    for index, timestamp in partitions
                ],
            }
        ],
    )
    (topic,) = reply["topics"]
    return [
        (p["error_code"], p["offset"], p["timestamp"], p.get("leader_epoch", 0))
        for p in topic["partitions"]
    ]


@pytest.mark.parametrize("version", versions_of("list_offsets"))
def test_earliest_is_0_latest_the_end_and_anything_else_unknown(version: int) -> None:
    assert offsets_of(version, (1, -1), (0, -1), (2, -2)) == [
        (0, 41, -1, 0),
        (0, 0, -1, 0),
        (0, 0, -1, 0),
    ]
    for timestamp in (0, 1_700_000_000_000):
        ((code, offset, time, _),) = offsets_of(version, (1, timestamp))
        assert (code, offset, time) == (0, -1, -1)


@pytest.mark.parametrize("version", versions_of("list_offsets"))
@pytest.mark.parametrize(
    ("timestamp", "since", "offset"),
    [(-2, 1, 0), (-3, 7, -1), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1), (-7, 99, -1)],
)
def test_a_special_timestamp_is_refused_below_the_version_that_brought_it(
    version: int, timestamp: int, since: int, offset: int
) -> None:
    refused = ErrorCode.UNSUPPORTED_VERSION
    for index in (1, 99):  # before anybody looks whether there is such a partition
        ((code, found, time, _),) = offsets_of(version, (index, timestamp))
        assert (code == refused) == (version < since)
        if index == 1 and version >= since:
            assert (code, found, time) == (0, offset, -1)


@pytest.mark.parametrize("version", versions_of("list_offsets"))
def test_unknown_partitions_have_no_offsets(version: int) -> None:
    for index in (3, -1):
        assert offsets_of(version, (index, -1))[0][:2] == (3, -1)
    assert offsets_of(version, (0, -1), name="nope")[0][:2] == (3, -1)


def test_a_partition_that_comes_twice_is_an_invalid_request_the_second_time() -> None:
    assert [row[0] for row in offsets_of(7, (1, -1), (1, -1))] == [0, 42]


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 0), (1, 75)])
def test_a_leader_epoch_above_ours_is_unknown(epoch: int, code: int) -> None:
    assert offsets_of(4, (1, -1), current_leader_epoch=epoch)[0][0] == code


# --- Fetch


def fetch_values(*partitions: tuple[int, int], **values: Any) -> dict[str, Any]:
    defaults = {
        "max_wait": 500,
        "min_bytes": 1,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": "orders",
                "topic_id": ORDERS_UUID,
                "partitions": [
                    {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1_000_000}
                    for index, offset in partitions
                ],
            }
        ],
    }
    return {**defaults, **values}


@pytest.mark.parametrize("version", versions_of("fetch"))
def test_fetch_waits_as_long_as_asked_and_returns_nothing(version: int) -> None:
    services = services_with_end()
    exchange, channel = begin(services, "fetch", version, **fetch_values((1, 41), (0, 0)))
    assert channel.replies == []
    assert exchange.holds
    assert [delay for delay, _ in channel.timers] == [0.5]
    channel.run_timers()
    reply = decode("fetch", version, channel.replies[0])
    assert reply.get("error_code", 0) == 0
    assert reply.get("session_id", 0) == 0
    (topic,) = reply["responses"]
    assert topic.get("topic_id") == str(ORDERS_UUID) or topic["topic"] == "orders"
    for partition, end in zip(topic["partitions"], (41, 0), strict=True):
        assert partition["error_code"] == 0
        assert partition["high_watermark"] == partition["last_stable_offset"] == end
        assert partition.get("log_start_offset", 0) == 0
        assert partition.get("preferred_read_replica", -1) == -1
        assert partition["records"] == b""
        assert partition["aborted_transactions"] is None


@pytest.mark.parametrize("version", versions_of("fetch"))
def test_fetch_above_the_end_is_out_of_range_at_once(version: int) -> None:
    for offset in (42, -1):
        _, channel = begin(services_with_end(), "fetch", version, **fetch_values((1, offset)))
        reply = decode("fetch", version, channel.replies[0])
        (partition,) = reply["responses"][0]["partitions"]
        assert (partition["error_code"], partition["high_watermark"]) == (1, -1)
        assert channel.timers == []


@pytest.mark.parametrize("version", versions_of("fetch"))
def test_fetch_of_what_is_not_there_fails_at_once(version: int) -> None:
    values = fetch_values((9, 0))
    values["topics"].append(
        {
            "topic": "nope",
            "topic_id": uuid.UUID(int=9),
            "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}],
        }
    )
    reply = ask("fetch", version, services=services_with_end(), **values)
    known, unknown = (t["partitions"][0] for t in reply["responses"])
    assert known["error_code"] == 3
    assert unknown["error_code"] == (100 if version >= 13 else 3)
    assert known["aborted_transactions"] == unknown["aborted_transactions"] == []


@pytest.mark.parametrize("values", [{"max_wait": 0}, {"min_bytes": 0}, {"topics": []}])
def test_fetch_that_has_nothing_to_wait_for_is_answered_at_once(values: dict[str, Any]) -> None:
    request = fetch_values((1, 0), **values)
    assert ask("fetch", 12, services=services_with_end(), **request)["error_code"] == 0


def test_fetch_waits_no_longer_than_the_limit() -> None:
    _, channel = begin(
        services_with_end(), "fetch", 12, **fetch_values((1, 0), max_wait=2_000_000_000)
    )
    assert [delay for delay, _ in channel.timers] == [MAX_WAIT_MS / 1000]


def test_fetch_reports_the_end_and_the_topics_as_they_are_when_it_is_answered() -> None:
    services = services_with_end(5)
    _, channel = begin(services, "fetch", 12, **fetch_values((1, 5)))
    services.topics.ends[ORDERS.topic_id, 1] = 9
    channel.run_timers()
    (partition,) = decode("fetch", 12, channel.replies[0])["responses"][0]["partitions"]
    assert partition["high_watermark"] == 9
    _, channel = begin(services, "fetch", 12, **fetch_values((1, 5)))
    services.topics.image = TopicImage.of()
    channel.run_timers()
    (partition,) = decode("fetch", 12, channel.replies[0])["responses"][0]["partitions"]
    assert partition["error_code"] == 3


def test_a_waiting_fetch_lets_go_of_its_timer_when_the_connection_goes() -> None:
    exchange, channel = begin(services_with_end(), "fetch", 12, **fetch_values((1, 0)))
    assert exchange.on_closed is not None
    exchange.on_closed()
    assert channel.timers == []


@pytest.mark.parametrize("version", [v for v in versions_of("fetch") if v >= 7])
@pytest.mark.parametrize(
    ("session_id", "epoch", "code"), [(5, 1, 70), (0, 1, 70), (0, 0, 0), (5, -1, 0)]
)
def test_there_are_no_fetch_sessions(version: int, session_id: int, epoch: int, code: int) -> None:
    values = fetch_values((1, 0), session_id=session_id, session_epoch=epoch, max_wait=0)
    reply = ask("fetch", version, services=services_with_end(), **values)
    assert (reply["error_code"], reply["session_id"]) == (code, 0)
    assert bool(reply["responses"]) is (code == 0)


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 0), (1, 75)])
def test_fetch_checks_the_leader_epoch(epoch: int, code: ErrorCode) -> None:
    values = fetch_values((1, 0), max_wait=0)
    values["topics"][0]["partitions"][0]["current_leader_epoch"] = epoch
    reply = ask("fetch", 9, services=services_with_end(), **values)
    assert reply["responses"][0]["partitions"][0]["error_code"] == code


# --- Produce

PRODUCE = {
    "acks": -1,
    "topic_data": [
        {
            "name": "orders",
            "topic_id": ORDERS_UUID,
            "partition_data": [{"index": 0, "records": b"x" * 70}, {"index": 1, "records": None}],
        }
    ],
}


@pytest.mark.parametrize("version", versions_of("produce"))
def test_produce_is_refused_on_every_partition_with_a_message(version: int) -> None:
    reply = ask("produce", version, **PRODUCE)
    (topic,) = reply["responses"]
    assert topic.get("topic_id") == str(ORDERS_UUID) or topic["name"] == "orders"
    assert [
        (p["index"], p["error_code"], p["base_offset"]) for p in topic["partition_responses"]
    ] == [
        (0, 44, -1),
        (1, 44, -1),
    ]
    if version >= 8:
        assert "no records" in topic["partition_responses"][0]["error_message"]


@pytest.mark.parametrize("version", versions_of("produce"))
def test_a_producer_that_wants_no_acknowledgement_learns_by_the_end_of_its_connection(
    version: int,
) -> None:
    _, channel = begin(make_services(), "produce", version, **{**PRODUCE, "acks": 0})
    assert channel.replies == []
    assert channel.refusals == ["produce_without_acks"]
