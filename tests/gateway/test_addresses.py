"""The answers through the gateway beside those of the broker: the same, but for addresses."""

from __future__ import annotations

import struct
import time
import uuid
from io import BytesIO
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.daemon.upstream_settings import UpstreamSettings
from groupkeeper.coordinator.gateway.apis import TABLE
from groupkeeper.protocol.versions import API_BY_KEY
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.daemon.recorded_gateway import OUTSIDE, RecordedGateway, names_upstream
from tests.helpers.wire.raw_client import RawClient, from_plain, to_plain

pytestmark = [pytest.mark.gateway, pytest.mark.slow, pytest.mark.java]

ENOUGH_S = 30.0
OWN_NODE = 1_000_000
JOURNAL = UpstreamSettings().journal_topic
BROKER = 1

VALUES: dict[int, dict[str, Any]] = {
    0: {"acks": -1},
    3: {"topics": None, "include_topic_authorized_operations": True},
    29: {
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
    },
    24: {  # Kafka never answers a batch of no transactions
        "transactions": [{"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}],
    },
    10: {"key_type": 1, "key": "t", "coordinator_keys": ["t"]},
    32: {
        "resources": [
            {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
            {"resource_type": 32, "resource_name": "app", "configuration_keys": None},
        ],
        "include_synonyms": True,
        "include_documentation": False,  # Kafka's own texts have examples with localhost
    },
    60: {"endpoint_type": 1, "include_cluster_authorized_operations": True},
}
"""Content of requests, where an empty one would have no answer or a dull one."""


def values_of(key: int, version: int) -> dict[str, Any]:
    if (key, version) == (3, 0):
        return {"topics": ()}  # all topics, as null later
    return VALUES.get(key, {})


PASSED_READS = (2, 23, 29, 43, 46, 48, 50, 61, 65, 66)
"""APIs without effect whose empty requests have the same answer each time."""


class Asker:
    """One connection that asks any API in any version."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._client = RawClient(port, host=host)

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(self, key: int, version: int, /, newer_by: int = 0, **values: Any) -> bytes:
        """Return the reply, without its length. Raises ConnectionError if there is none.

        The header names a version that is newer than the content by ``newer_by``.
        """
        schema = load_request_schema(key, version)
        buffer = BytesIO()
        header = {
            "request_api_key": key,
            "request_api_version": version + newer_by,
            "correlation_id": 7,
            "client_id": "asker",
        }
        kind = schema.__header_schema__
        entity_writer(kind)(buffer, from_plain(kind, header))
        entity_writer(schema)(buffer, from_plain(schema, values))
        self._client.socket.sendall(struct.pack(">i", buffer.tell()) + buffer.getvalue())
        return self._client.receive_frame()


def decoded(key: int, version: int, reply: bytes) -> dict[str, Any]:
    schema = load_response_schema(key, version)
    _, size = entity_reader(schema.__header_schema__)(reply, 0)
    entity, _ = entity_reader(schema)(reply, size)
    plain = to_plain(entity)
    assert isinstance(plain, dict)
    return plain


@pytest.fixture(scope="module")
def topic(kafka: RealKafka) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with RawClient(kafka.port) as raw:
        topics = [{"name": name, "num_partitions": 3, "replication_factor": 1}]
        raw.call("create_topics", 5, topics=topics)
        end_s = time.monotonic() + ENOUGH_S
        while not _is_led(raw, name):  # a broker knows a new topic a moment later
            assert time.monotonic() < end_s, "the broker does not know its topic"
            time.sleep(0.1)
    return name


def _is_led(raw: RawClient, name: str) -> bool:
    topics = [{"name": name}]
    answer = raw.call("metadata", 4, topics=topics, allow_auto_topic_creation=False)
    (found,) = answer["topics"]
    errors = [part["error_code"] for part in found["partitions"]]
    return not found["error_code"] and errors == [0, 0, 0]


def listed(asker: Asker) -> dict[int, tuple[int, int]]:
    """The versions that ApiVersions lists."""
    values = {"client_software_name": "asker", "client_software_version": "1"}
    rows = decoded(18, 3, asker.ask(18, 3, **values))["api_keys"]
    return {row["api_key"]: (row["min_version"], row["max_version"]) for row in rows}


def asked(recorded: RecordedGateway, key: int, version: int) -> tuple[Any, Any]:
    """The answer through us, and that of the broker."""
    values = values_of(key, version)
    answers = []
    for port in (recorded.broker_port, recorded.upstream.port):
        with Asker(port) as asker:
            answers.append(decoded(key, version, asker.ask(key, version, **values)))
    return answers[0], answers[1]


def with_our_brokers(recorded: RecordedGateway, brokers: Any, id_name: str) -> list[Any]:
    """What a list of brokers becomes."""
    ours = [{**b, "host": OUTSIDE, "port": recorded.broker_port} for b in brokers]
    own = {**ours[0], id_name: OWN_NODE, "port": recorded.port, "rack": None}
    return [{name: node[name] for name in ours[0]} for node in (*ours, own)]


@pytest.mark.parametrize("version", range(14))
def test_metadata_differs_only_in_the_brokers_and_our_journal(
    recorded: RecordedGateway, topic: str, version: int
) -> None:
    ours, theirs = asked(recorded, 3, version)
    theirs["brokers"] = with_our_brokers(recorded, theirs["brokers"], "node_id")
    assert JOURNAL not in {each["name"] for each in ours["topics"]}
    theirs["topics"] = [each for each in theirs["topics"] if each["name"] != JOURNAL]
    for answer in (ours, theirs):
        answer["topics"].sort(key=lambda each: each["name"])
        for each in answer["topics"]:
            each["partitions"].sort(key=lambda part: part["partition_index"])
    assert topic in {each["name"] for each in ours["topics"]}
    assert without_controller(ours) == without_controller(theirs)


def without_controller(answer: Any) -> Any:
    """An answer without the controller: a broker of KRaft names any broker."""
    return {name: value for name, value in answer.items() if name != "controller_id"}


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described_with_our_brokers(recorded: RecordedGateway, version: int) -> None:
    ours, theirs = asked(recorded, 60, version)
    theirs["brokers"] = with_our_brokers(recorded, theirs["brokers"], "broker_id")
    assert without_controller(ours) == without_controller(theirs)


def first_error(answer: dict[str, Any]) -> int:
    error: int = answer["coordinators"][0]["error_code"]
    return error


@pytest.mark.parametrize("version", range(1, 7))
def test_the_coordinator_of_a_transaction_is_the_broker_at_our_address(
    recorded: RecordedGateway, version: int
) -> None:
    with Asker(recorded.upstream.port) as asker:
        while first_error(decoded(10, 4, asker.ask(10, 4, **VALUES[10]))):
            time.sleep(0.1)  # the broker creates its topic of transactions
    ours, theirs = asked(recorded, 10, version)
    for found in theirs.get("coordinators", [theirs]):
        assert found["error_code"] == 0
        found |= {"host": OUTSIDE, "port": recorded.broker_port}
    assert ours == theirs


@pytest.mark.parametrize("version", range(1, 5))
def test_configs_of_brokers_and_of_groups_come_from_their_sides(
    recorded: RecordedGateway, version: int
) -> None:
    ours, theirs = asked(recorded, 32, version)
    broker, group = ours["results"]
    assert [broker["resource_type"], group["resource_type"]] == [4, 32]
    assert {"consumer.session.timeout.ms"} <= {config["name"] for config in group["configs"]}
    shown = {config["name"]: config["value"] for config in broker["configs"]}
    true = {config["name"]: config["value"] for config in theirs["results"][0]["configs"]}
    changed = {name for name in true if shown[name] != true[name]}
    assert changed == {"listeners", "advertised.listeners", "controller.quorum.voters"}
    assert {shown[name] for name in changed} == {""}


@pytest.mark.parametrize("key", PASSED_READS)
def test_what_is_passed_is_answered_as_by_the_broker(recorded: RecordedGateway, key: int) -> None:
    with Asker(recorded.broker_port) as asker:
        lowest, highest = listed(asker)[key]
    for version in range(lowest, highest + 1):
        ours, theirs = asked(recorded, key, version)
        assert ours == theirs, version


def test_a_broker_lists_its_versions_within_the_table(recorded: RecordedGateway) -> None:
    with Asker(recorded.broker_port) as ours, Asker(recorded.upstream.port) as theirs:
        through, direct = listed(ours), listed(theirs)
    assert through.keys() <= TABLE.keys()
    assert direct.keys() - through.keys() <= {25, 28, *range(76, 93)}
    capped = {key for key in through if through[key] != direct[key]}
    assert capped == {1, 55}


def test_a_client_that_is_newer_than_we_learns_our_versions(recorded: RecordedGateway) -> None:
    """As franz-go does: it asks for ApiVersions in its newest version first."""
    newest = API_BY_KEY[18].max_version
    for port in (recorded.broker_port, recorded.port):
        with Asker(port) as asker:
            reply = asker.ask(18, newest, newer_by=1)
        answer = decoded(18, 0, reply)
        assert answer["error_code"] == ErrorCode.UNSUPPORTED_VERSION
        assert answer["api_keys"] == [{"api_key": 18, "min_version": 0, "max_version": newest}]


def test_no_answer_to_any_request_names_the_upstream(recorded: RecordedGateway) -> None:
    """Every listed API in every version, at the broker's listener and at our own node."""
    answered = set()
    silent: list[tuple[int, int, int]] = []
    for port in (recorded.broker_port, recorded.port):
        with Asker(port) as asker:
            ranges = listed(asker)
        for key, (lowest, highest) in ranges.items():
            for version in range(max(lowest, least_of(key)), highest + 1):
                try:
                    with Asker(port) as asker:
                        reply = asker.ask(key, version, **values_of(key, version))
                except ConnectionError:
                    continue  # the broker closes the connection too
                except TimeoutError:
                    silent.append((port, key, version))
                    continue
                answered.add(key)
                assert not names_upstream(reply, recorded.upstream), (port, key, version)
    assert silent == []
    unanswered = listed_keys(recorded) - answered
    assert unanswered <= {17, 36}, "a login on a port without logins"


def least_of(key: int) -> int:
    """The lowest version that has a schema in Kafka 4.3.1."""
    return {0: 3}.get(key, 0)


def listed_keys(recorded: RecordedGateway) -> set[int]:
    with Asker(recorded.broker_port) as asker:
        return set(listed(asker))
