"""ListOffsets, Fetch and Produce of static mode, every version (docs/design.md#static-mode)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.handlers.fetch import MAX_WAIT_MS
from tests.helpers.wire.handling import (
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


def listed(topics: list[tuple[str, tuple[int, ...]]], version: int = 7, **values: Any) -> Any:
    asked = [
        {
            "name": name,
            "partitions": [{"partition_index": index, "timestamp": -2} for index in indexes],
        }
        for name, indexes in topics
    ]
    services = services_with_end()
    reply = ask("list_offsets", version, services=services, topics=asked, **values)
    return [
        (t["name"], [(p["partition_index"], p["error_code"]) for p in t["partitions"]])
        for t in reply["topics"]
    ]


def test_a_partition_that_comes_twice_is_answered_once_as_an_invalid_request() -> None:
    assert [row[0] for row in offsets_of(7, (1, -1), (1, -1))] == [42]
    assert listed([("orders", (0, 1)), ("nope", (0, 0)), ("orders", (1,))]) == [
        ("orders", [(0, 0), (1, 42)]),
        ("nope", [(0, 42)]),
    ]


def test_topics_that_come_twice_are_merged_and_those_without_partitions_left_out() -> None:
    asked: list[Any] = [("orders", (0,)), ("nope", ()), ("orders", ()), ("orders", (1,))]
    assert listed(asked) == [("orders", [(0, 0), (1, 0)])]


@pytest.mark.parametrize("version", [v for v in versions_of("list_offsets") if v >= 2])
@pytest.mark.parametrize("level", [2, -1])
def test_all_is_answered_as_asked_at_an_isolation_level_that_there_is_not(
    version: int, level: int
) -> None:
    asked: list[Any] = [("orders", (0, 0)), ("nope", ()), ("orders", (1,))]
    stumbled = [("orders", [(0, -1), (0, -1)]), ("nope", []), ("orders", [(1, -1)])]
    assert listed(asked, version, isolation_level=level) == stumbled


@pytest.mark.parametrize(("epoch", "code"), [(-2, 74), (-1, 0), (0, 0), (1, 75)])
def test_a_leader_epoch_above_ours_is_unknown_and_one_below_fenced(epoch: int, code: int) -> None:
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
    assert exchange.blocks
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
    rows = [t["partitions"][0] for t in reply["responses"]]
    assert [row["error_code"] for row in rows] == ([100, 3] if version >= 13 else [3, 3])
    assert [row["aborted_transactions"] for row in rows] == [[], []]


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


@pytest.mark.parametrize(("epoch", "code"), [(-2, 0), (-1, 0), (0, 0), (1, 75)])
def test_fetch_checks_the_leader_epoch(epoch: int, code: ErrorCode) -> None:
    values = fetch_values((1, 0), max_wait=0)
    values["topics"][0]["partitions"][0]["current_leader_epoch"] = epoch
    reply = ask("fetch", 9, services=services_with_end(), **values)
    assert reply["responses"][0]["partitions"][0]["error_code"] == code


def fetched(
    version: int, *asked: tuple[str, tuple[int, ...]], offset: int = 0, **values: Any
) -> dict[str, Any]:
    """Fetch these; names are orders, and any other for what is not known."""
    ids = {"orders": ORDERS_UUID, "": None}
    topics = [
        {
            "topic": name,
            "topic_id": ids.get(name, uuid.UUID(int=len(name))),
            "partitions": [
                {"partition": index, "fetch_offset": offset, "current_leader_epoch": -1}
                for index in indexes
            ],
        }
        for name, indexes in asked
    ]
    values = {"max_wait": 0, "session_epoch": -1, "topics": topics, **values}
    return ask("fetch", version, services=services_with_end(), **values)


def rows_of(reply: dict[str, Any]) -> list[tuple[str, list[tuple[int, int]]]]:
    names = {str(ORDERS_UUID): "orders", str(uuid.UUID(int=2)): "no", None: ""}
    return [
        (
            topic.get("topic") or names[topic["topic_id"]],
            [(p["partition_index"], p["error_code"]) for p in topic["partitions"]],
        )
        for topic in reply["responses"]
    ]


@pytest.mark.parametrize("version", versions_of("fetch"))
def test_a_partition_is_fetched_once_and_what_exists_comes_first(version: int) -> None:
    asked = [("no", (6,)), ("orders", (1, 9)), ("no", ()), ("orders", (1, 0)), ("no", (5,))]
    reply = fetched(version, *asked)
    if version >= 13:
        missing = [("no", [(6, 100), (5, 100)]), ("orders", [(9, 3)])]
    else:
        missing = [("no", [(6, 3)]), ("orders", [(9, 3)]), ("no", [(5, 3)])]
    assert rows_of(reply) == [("orders", [(1, 0), (0, 0)]), *missing]


def as_replica(version: int, replica_id: int) -> dict[str, Any]:
    state = {"replica_id": replica_id, "replica_epoch": -1}
    return {"replica_state": state} if version >= 15 else {"replica_id": replica_id}


@pytest.mark.parametrize("version", versions_of("fetch"))
def test_nobody_is_a_replica(version: int) -> None:
    reply = fetched(version, ("no", (6,)), ("orders", (1, 9)), **as_replica(version, 1))
    unknown = ("no", [(6, 100 if version >= 13 else 3)])
    assert rows_of(reply) == [("orders", [(1, 6)]), unknown, ("orders", [(9, 3)])]
    if version >= 16:
        leader = reply["responses"][0]["partitions"][0]["current_leader"]
        assert leader == {"leader_id": make_services().node_id, "leader_epoch": 0}


def test_a_replica_that_names_an_epoch_learns_that_it_is_unknown() -> None:
    values = fetch_values((1, 0), **as_replica(12, 1))
    values["topics"][0]["partitions"][0]["current_leader_epoch"] = 0
    reply = ask("fetch", 12, services=services_with_end(), **values)
    assert rows_of(reply) == [("orders", [(1, 75)])]


@pytest.mark.parametrize("version", versions_of("fetch"))
@pytest.mark.parametrize(
    ("level", "replica_id", "aborted"),
    [(0, -1, None), (1, -1, []), (1, -2, []), (1, -3, None)],
)
def test_consumers_that_read_what_is_committed_learn_that_nothing_was_aborted(
    version: int, level: int, replica_id: int, aborted: Any
) -> None:
    how = {"isolation_level": level, **as_replica(version, replica_id)}
    (topic,) = fetched(version, ("orders", (1,)), **how)["responses"]
    assert topic["partitions"][0]["aborted_transactions"] == aborted
    (topic,) = fetched(version, ("orders", (1,)), offset=99, **how)["responses"]
    assert topic["partitions"][0]["aborted_transactions"] is None


@pytest.mark.parametrize("version", versions_of("fetch"))
def test_an_isolation_level_that_there_is_not_is_told_as_by_kafka(version: int) -> None:
    asked = [("orders", (1, 1)), ("no", (6,)), ("orders", ())]
    reply = fetched(version, *asked, isolation_level=2, session_id=5)
    assert reply.get("error_code", -1) == -1
    assert reply.get("session_id", 5) == 5
    stumbled = [("orders", [(1, -1), (1, -1)]), ("no", [(6, -1)]), ("orders", [])]
    assert rows_of(reply) == ([] if version >= 13 else stumbled)
    unseen = fetched(version, ("no", (6,)), isolation_level=2)
    assert rows_of(unseen) == [("no", [(6, 100 if version >= 13 else 3)])]


def test_what_follows_no_id_is_told_as_by_kafka_that_stumbles_over_it() -> None:
    assert fetched(13, ("", (6, 5)))["error_code"] == -1
    assert fetched(13, ("", (6,)), ("no", (6,)))["error_code"] == -1
    assert rows_of(fetched(13, ("no", (6,)), ("", (6,)))) == [("no", [(6, 100)]), ("", [(6, 100)])]
    assert rows_of(fetched(13, ("", (6,)), ("orders", (1,))))[1] == ("", [(6, 100)])


@pytest.mark.parametrize("index", [0, 9])
def test_a_fetch_waits_whatever_else_does_not_exist(index: int) -> None:
    _, channel = begin(services_with_end(), "fetch", 12, **fetch_values((1, 0), (index, 0)))
    assert channel.replies == []
    assert len(channel.timers) == 1


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


def test_records_of_a_partition_are_refused_once_and_none_where_there_are_none() -> None:
    def topic(*indexes: int) -> dict[str, Any]:
        data = [{"index": index, "records": b""} for index in indexes]
        return {"name": "orders", "topic_id": ORDERS_UUID, "partition_data": data}

    exchange, channel = begin(make_services(), "produce", 12, acks=1, topic_data=[topic()])
    assert decode("produce", 12, channel.replies[0])["responses"] == []
    assert exchange.error == ErrorCode.NONE
    for version in (3, 13):
        topics = [topic(3, 3), topic(), topic(1, 3)]
        (answered,) = ask("produce", version, acks=1, topic_data=topics)["responses"]
        assert [p["index"] for p in answered["partition_responses"]] == [3, 1]


@pytest.mark.parametrize("version", versions_of("produce"))
def test_a_producer_of_nothing_that_wants_no_acknowledgement_gets_none(version: int) -> None:
    exchange, channel = begin(make_services(), "produce", version, acks=0, topic_data=[])
    assert (channel.replies, channel.refusals, exchange.error) == ([b""], [], 0)


@pytest.mark.parametrize("version", versions_of("produce"))
def test_a_producer_that_wants_no_acknowledgement_learns_by_the_end_of_its_connection(
    version: int,
) -> None:
    _, channel = begin(make_services(), "produce", version, **{**PRODUCE, "acks": 0})
    assert channel.replies == []
    assert channel.refusals == ["produce_without_acks"]
