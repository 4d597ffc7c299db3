"""ApiVersions, Metadata, DescribeCluster and FindCoordinator (docs/spec/wire.md#api-versions,
docs/spec/cluster.md#find-coordinator, #metadata, #describe-cluster).
"""

from __future__ import annotations

import struct
import tracemalloc
import uuid
from typing import Any

import pytest

from groupkeeper.coordinator.core.cluster.image import TopicInfo
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.topics import (
    ChangeTopics,
    ChangeTopicsResult,
    TopicChange,
)
from groupkeeper.coordinator.handlers import api_versions
from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.coordinator.handlers.services import Endpoint
from groupkeeper.protocol.last_requests import LastRequests
from groupkeeper.protocol.versions import API_BY_KEY, APIS
from tests.helpers.wire.handling import (
    NEW_UUID,
    ORDERS,
    ORDERS_UUID,
    FakeChannel,
    FakeTopics,
    ask,
    begin,
    decode,
    make_services,
    versions_of,
)
from tests.helpers.wire.raw_client import encode_request

SOFTWARE = {"client_software_name": "apache-kafka-java", "client_software_version": "4.3.1"}
NO_OPERATIONS = -(2**31)

# --- ApiVersions


@pytest.mark.parametrize("version", versions_of("api_versions"))
def test_api_versions_lists_exactly_what_is_advertised(version: int) -> None:
    reply = ask("api_versions", version, **SOFTWARE)
    assert reply["error_code"] == 0
    assert [(k["api_key"], k["min_version"], k["max_version"]) for k in reply["api_keys"]] == [
        (api.key, api.advertised_min, api.max_version) for api in APIS
    ]


def test_offset_commit_and_fetch_advertise_what_kafka_does_and_produce_starts_at_0() -> None:
    keys = {k["api_key"]: k for k in ask("api_versions", 4, **SOFTWARE)["api_keys"]}
    assert (keys[8]["min_version"], keys[9]["min_version"], keys[0]["min_version"]) == (2, 1, 0)
    assert not keys.keys() & set(range(22, 29))


def test_group_version_is_finalized_and_supported_from_v4() -> None:
    v3, v4 = (ask("api_versions", version, **SOFTWARE) for version in (3, 4))
    finalized = [{"name": "group.version", "max_version_level": 1, "min_version_level": 1}]
    assert v3["finalized_features"] == v4["finalized_features"] == finalized
    assert v3["supported_features"] == []  # its minimum is 0
    assert v4["supported_features"] == [
        {"name": "group.version", "min_version": 0, "max_version": 1}
    ]


@pytest.mark.parametrize(
    "software",
    [
        {"client_software_name": "", "client_software_version": "1"},
        {"client_software_name": "x", "client_software_version": ""},
        {"client_software_name": "-x", "client_software_version": "1"},
        {"client_software_name": "x.", "client_software_version": "1"},
        {"client_software_name": "x y", "client_software_version": "1"},
        {"client_software_name": "x", "client_software_version": "1\n"},
    ],
)
@pytest.mark.parametrize("version", [3, 4])
def test_a_bad_software_name_or_version_is_an_invalid_request(
    version: int, software: dict[str, str]
) -> None:
    reply = ask("api_versions", version, **software)
    assert (reply["error_code"], reply["api_keys"]) == (ErrorCode.INVALID_REQUEST, [])


def test_api_versions_above_ours_is_answered_in_v0_with_our_range() -> None:
    channel = FakeChannel()
    exchange = Exchange(channel, 18, 9, 77, Client("app", "/10.0.0.7"), b"", 0, LastRequests())
    api_versions.handle_unsupported(exchange, make_services())
    assert exchange.error == ErrorCode.UNSUPPORTED_VERSION, "what the metrics count"
    assert decode("api_versions", 0, channel.replies[0]) == {
        "error_code": ErrorCode.UNSUPPORTED_VERSION,
        "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}],
    }


# --- FindCoordinator


@pytest.mark.parametrize("version", versions_of("find_coordinator"))
def test_every_group_is_ours_at_the_address_the_client_came_in_on(version: int) -> None:
    reply = ask("find_coordinator", version, key="", coordinator_keys=["a", "", "a"])
    if version >= 4:
        assert [c["key"] for c in reply["coordinators"]] == ["a", "", "a"]
        (found,) = {
            tuple((k, v) for k, v in c.items() if k != "key") for c in reply["coordinators"]
        }
        reply = dict(found)
    assert (reply["error_code"], reply["node_id"]) == (0, 1)
    assert (reply["host"], reply["port"]) == ("192.0.2.1", 9092)
    if version >= 1:
        assert reply["error_message"] == ("" if version >= 4 else "NONE")


def test_the_advertised_address_wins_in_every_answer() -> None:
    services = make_services(advertised=Endpoint("broker.example", 19092), node_id=7)
    found = ask("find_coordinator", 0, services=services, key="g")
    brokers = [
        ask("metadata", 0, services=services, topics=[])["brokers"][0],
        {
            k.replace("broker_id", "node_id"): v
            for k, v in ask("describe_cluster", 0, services=services)["brokers"][0].items()
        },
    ]
    for broker in (found, *brokers):
        assert (broker["node_id"], broker["host"], broker["port"]) == (7, "broker.example", 19092)


@pytest.mark.parametrize(
    ("key_type", "key", "version", "code"),
    [
        (1, "tx", 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (1, "tx", 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, f"g:{ORDERS.topic_id}:0", 5, ErrorCode.INVALID_REQUEST),
        (2, f"g:{ORDERS.topic_id}:0", 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, "g", 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (3, "g", 4, ErrorCode.INVALID_REQUEST),
        (-1, "g", 3, ErrorCode.INVALID_REQUEST),
    ],
)
def test_keys_that_we_do_not_coordinate(
    key_type: int, key: str, version: int, code: ErrorCode
) -> None:
    reply = ask("find_coordinator", version, key=key, key_type=key_type, coordinator_keys=[key])
    if version >= 4:
        (reply,) = reply["coordinators"]
    assert reply["error_code"] == code
    assert (reply["node_id"], reply["host"], reply["port"]) == (-1, "", -1)
    knows_no_words = version >= 4 and key_type in (1, 2)  # as Kafka 4.3.1 does
    assert bool(reply["error_message"]) != knows_no_words


# --- DescribeCluster


@pytest.mark.parametrize("version", versions_of("describe_cluster"))
@pytest.mark.parametrize("asked_for", [False, True])
def test_describe_cluster_shows_one_broker(version: int, asked_for: bool) -> None:
    reply = ask(
        "describe_cluster",
        version,
        include_cluster_authorized_operations=asked_for,
        endpoint_type=1,
    )
    assert (reply["error_code"], reply["cluster_id"], reply["controller_id"]) == (
        0,
        "groupkeeper",
        1,
    )
    assert [(b["broker_id"], b["host"], b["port"]) for b in reply["brokers"]] == [
        (1, "192.0.2.1", 9092)
    ]
    assert reply["cluster_authorized_operations"] == (8096 if asked_for else NO_OPERATIONS)


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_we_are_no_controller(endpoint_type: int, code: ErrorCode) -> None:
    reply = ask("describe_cluster", 1, endpoint_type=endpoint_type)
    assert (reply["error_code"], reply["cluster_id"], reply["brokers"]) == (code, "", [])
    assert reply["endpoint_type"] == 1


# --- Metadata


def asked_names(*names: str | None) -> list[dict[str, Any]]:
    return [{"name": name, "topic_id": None} for name in names]


@pytest.mark.parametrize("version", versions_of("metadata"))
def test_metadata_shows_a_topic_with_us_as_the_leader_of_every_partition(version: int) -> None:
    reply = ask("metadata", version, topics=asked_names("orders", "orders"))
    (topic,) = reply["topics"]
    assert (topic["error_code"], topic["name"]) == (0, "orders")
    assert topic.get("topic_id", str(ORDERS_UUID)) == str(ORDERS_UUID)
    assert topic.get("is_internal", False) is False
    assert [p["partition_index"] for p in topic["partitions"]] == [0, 1, 2]
    for partition in topic["partitions"]:
        assert (partition["error_code"], partition["leader_id"]) == (0, 1)
        assert partition["replica_nodes"] == partition["isr_nodes"] == [1]
        assert partition.get("leader_epoch", 0) == 0
        assert partition.get("offline_replicas", []) == []
    assert topic.get("topic_authorized_operations", NO_OPERATIONS) == NO_OPERATIONS
    (broker,) = reply["brokers"]
    assert (broker["node_id"], broker["host"], broker["port"]) == (1, "192.0.2.1", 9092)
    assert reply.get("controller_id", 1) == 1
    assert reply.get("cluster_id", "groupkeeper") == "groupkeeper"
    assert reply.get("cluster_authorized_operations", NO_OPERATIONS) == NO_OPERATIONS
    assert reply.get("error_code", 0) == 0


def test_nothing_is_kept_of_the_answers_for_a_topic_of_many_partitions() -> None:
    """The topic may be gone the next moment; what was kept for it would not be."""
    versions = versions_of("metadata")
    services = make_services(topics=FakeTopics(TopicInfo("huge", ORDERS.topic_id, 20_000)))
    for version in versions:  # what is loaded once is no matter
        begin(make_services(), "metadata", version, topics=asked_names("orders"))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for version in versions:
            exchange, _ = begin(services, "metadata", version, topics=asked_names("huge"))
            assert len(exchange.reply or b"") > 20_000 * 18
        del exchange, _
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 100_000


# Each layout of a partition, and the newest version. To decode one takes a second.
@pytest.mark.parametrize("version", [0, 5, 7, 9, versions_of("metadata")[-1]])
def test_every_partition_of_a_large_topic_has_its_own_index(version: int) -> None:
    services = make_services(topics=FakeTopics(TopicInfo("huge", ORDERS.topic_id, 70_000)))
    (topic,) = ask("metadata", version, services=services, topics=asked_names("huge"))["topics"]
    assert [p["partition_index"] for p in topic["partitions"]] == list(range(70_000))


def test_the_metrics_count_metadata_by_its_first_error_and_by_none_where_all_is_well() -> None:
    for names, error in (
        (["orders"], ErrorCode.NONE),
        (["orders", "nope", "a b"], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        exchange, _ = begin(make_services(), "metadata", 9, topics=asked_names(*names))
        assert exchange.error == error


@pytest.mark.parametrize("version", versions_of("metadata"))
def test_empty_means_all_in_v0_and_none_after_where_null_means_all(version: int) -> None:
    assert len(ask("metadata", version, topics=[])["topics"]) == (1 if version == 0 else 0)
    if version >= 1:
        assert len(ask("metadata", version, topics=None)["topics"]) == 1


@pytest.mark.parametrize("version", versions_of("metadata"))
def test_unknown_and_illegal_names(version: int) -> None:
    names = ["nope", "a b", "..", "x" * 250, ""]
    reply = ask("metadata", version, topics=asked_names(*names))
    assert [(t["name"], t["error_code"], t["partitions"]) for t in reply["topics"]] == [
        ("nope", 3, []),
        *[(name, 17, []) for name in names[1:]],
    ]


@pytest.mark.parametrize("version", [8, 9, 10, 11, 13])
def test_authorized_operations_are_filled_when_asked_for(version: int) -> None:
    reply = ask(
        "metadata",
        version,
        topics=asked_names("orders"),
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert reply["topics"][0]["topic_authorized_operations"] == 3576
    assert reply.get("cluster_authorized_operations", 8096) == 8096


@pytest.mark.parametrize("version", [12, 13])
def test_look_up_by_id_ignores_names_and_echoes_an_unknown_id(version: int) -> None:
    unknown = uuid.UUID(int=5)
    topics = [
        {"name": "nope", "topic_id": None},
        {"name": None, "topic_id": unknown},
        {"name": None, "topic_id": ORDERS_UUID},
    ]
    shown = ask("metadata", version, topics=topics)["topics"]
    assert [(t["name"], t["topic_id"], t["error_code"]) for t in shown] == [
        (None, str(unknown), ErrorCode.UNKNOWN_TOPIC_ID),
        ("orders", str(ORDERS_UUID), 0),
    ]


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("name", [None, "orders"])
def test_a_null_name_or_an_id_below_v12_is_an_invalid_request(
    version: int, name: str | None
) -> None:
    topics = [{"name": name, "topic_id": ORDERS_UUID if name else None}]
    reply = ask("metadata", version, topics=topics)
    assert [t["error_code"] for t in reply["topics"]] == [ErrorCode.INVALID_REQUEST]
    assert reply["brokers"] == []


@pytest.mark.parametrize("version", [12, 13])
@pytest.mark.parametrize("named", [[None], ["orders", None, None]])
def test_a_topic_named_by_nothing_from_v12_on_is_told_as_kafka_that_stumbles_over_it(
    version: int, named: list[str | None]
) -> None:
    topics = [{"name": name, "topic_id": None} for name in named]
    reply = ask("metadata", version, topics=topics)
    assert [(t["name"], t["error_code"]) for t in reply["topics"]] == [
        (name or "", ErrorCode.UNKNOWN_SERVER_ERROR) for name in named
    ]
    assert (reply["brokers"], reply["cluster_id"], reply["controller_id"]) == ([], None, -1)
    assert reply.get("error_code", -1) == ErrorCode.UNKNOWN_SERVER_ERROR


def test_names_are_overlooked_where_an_id_is_given() -> None:
    topics = [{"name": None, "topic_id": None}, {"name": None, "topic_id": ORDERS_UUID}]
    shown = ask("metadata", 13, topics=topics)["topics"]
    assert [(t["name"], t["error_code"]) for t in shown] == [("orders", 0)]


@pytest.mark.parametrize(
    ("name", "is_internal"),
    [
        ("__consumer_offsets", True),
        ("__transaction_state", True),
        ("__share_group_state", True),
        ("__orders", False),
    ],
)
def test_internal_topics_are_marked(name: str, is_internal: bool) -> None:
    """Kafka: Topic.INTERNAL_TOPICS and __share_group_state."""
    services = make_services(topics=FakeTopics(TopicInfo(name, "", 1)))
    (topic,) = ask("metadata", 1, services=services, topics=None)["topics"]
    assert topic["is_internal"] is is_internal


def created(request: Any) -> ChangeTopicsResult:
    assert isinstance(request, ChangeTopics)
    return ChangeTopicsResult(
        ErrorCode.NONE,
        created=tuple(
            TopicChange(t.name, t.topic_id, t.partitions, ErrorCode.NONE, None)
            for t in request.create
        ),
    )


@pytest.mark.parametrize("version", [0, 3, 4, 12])
def test_missing_topics_are_created_where_config_and_client_allow_it(version: int) -> None:
    services = make_services(created, auto_create_topics=True, num_partitions=2)
    reply = ask(
        "metadata",
        version,
        services=services,
        topics=asked_names("new", "a b", "orders"),
        allow_auto_topic_creation=True,
    )
    (request,) = services.coordinator.requests  # type: ignore[attr-defined]
    (topic,) = request.create
    assert (topic.name, topic.partitions, len(topic.topic_id)) == ("new", 2, 22)
    shown = reply["topics"]
    assert [(t["name"], t["error_code"], len(t["partitions"])) for t in shown] == [
        ("new", 0, 2),
        ("a b", 17, 0),
        ("orders", 0, 3),
    ]
    if version >= 10:
        assert shown[0]["topic_id"] == str(NEW_UUID)


@pytest.mark.parametrize(
    ("auto_create", "allowed", "version"),
    [(False, True, 12), (True, False, 12), (True, False, 4)],
)
def test_nothing_is_created_where_config_or_client_forbids_it(
    auto_create: bool, allowed: bool, version: int
) -> None:
    services = make_services(created, auto_create_topics=auto_create)
    reply = ask(
        "metadata",
        version,
        services=services,
        topics=asked_names("new"),
        allow_auto_topic_creation=allowed,
    )
    assert reply["topics"][0]["error_code"] == 3
    assert services.coordinator.requests == []  # type: ignore[attr-defined]


def test_a_topic_that_could_not_be_created_stays_unknown_and_is_retried_by_the_client() -> None:
    for answer in (
        lambda _: ChangeTopicsResult(ErrorCode.NOT_CONTROLLER),
        lambda r: ChangeTopicsResult(
            ErrorCode.NONE,
            created=(TopicChange("new", "", -1, ErrorCode.POLICY_VIOLATION, "too many"),),
        ),
    ):
        services = make_services(answer, auto_create_topics=True)
        reply = ask("metadata", 9, services=services, topics=asked_names("new"))
        assert [(t["name"], t["error_code"]) for t in reply["topics"]] == [("new", 3)]


def test_a_name_that_is_repeated_is_shown_once_however_often() -> None:
    services = make_services(max_request_elements=40_000)
    reply = ask("metadata", 9, services=services, topics=asked_names(*["orders"] * 20_000))
    assert len(reply["topics"]) == 1


def test_metadata_waits_for_the_creation() -> None:
    services = make_services(auto_create_topics=True)
    exchange, channel = begin(services, "metadata", 9, topics=asked_names("new"))
    assert exchange.blocks
    assert channel.replies == []
    services.coordinator.tickets[0].resolve(created(services.coordinator.requests[0]))  # type: ignore[attr-defined]
    (topic,) = decode("metadata", 9, channel.replies[0])["topics"]
    assert (topic["name"], topic["error_code"]) == ("new", 0)


def test_every_version_that_is_served_has_a_request_of_kio_to_check_it_with() -> None:
    for api in APIS:
        served = range(api.lowest_served, api.max_version + 1)
        name = "".join("_" + c.lower() if c.isupper() else c for c in api.name).strip("_")
        assert set(versions_of(name)) == {v for v in served if v >= api.min_version}
        for version in versions_of(name):
            frame = encode_request(name, version, {}, 1, "c")
            assert struct.unpack_from(">hh", frame, 4) == (api.key, version)
            assert API_BY_KEY[api.key] is api
