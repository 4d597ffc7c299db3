"""Topics, the cluster, and which versions are served: spec sections 1 and 5."""

from __future__ import annotations

import uuid
from typing import Any

from tests.conformance.kafka.case import Case, edge
from tests.conformance.kafka.settings import TOPIC
from tests.helpers.raw_client import API_KEYS

BATCH = bytes.fromhex(
    "0000000000000000 00000039 ffffffff 02 156266bb 0000 00000000 0000000000000001"
    "0000000000000001 ffffffffffffffff ffff ffffffff 00000001 0e000000010278 00"
)
"""One record (``DefaultRecordBatch`` of Kafka, magic 2)."""
FETCHED, PRODUCED_TO = 9, 10
"""Partitions that no other case has a strange offset in, or looks into."""


@edge()
def ends_of_partitions(case: Case) -> None:
    partitions = [
        {"partition_index": p, "timestamp": -2, "current_leader_epoch": -1} for p in (0, 11, 12, 99)
    ]
    absent = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]
    case.reset(case.person("a"))  # LATEST is beyond it
    for time in (-2, -1, -3, -4, -5, -6, -7, 0, 1):
        asked = [{**p, "timestamp": time} for p in partitions]
        topics = [{"name": TOPIC, "partitions": asked}, {"name": "absent", "partitions": absent}]
        case.pair.ask("list_offsets", case.v("list_offsets"), replica_id=-1, topics=topics)


@edge()
def records_are_refused(case: Case) -> None:
    version = case.v("produce", 3)
    data = [{"index": PRODUCED_TO, "records": BATCH}, {"index": 99, "records": BATCH}]
    topics = [{"name": TOPIC, "topic_id": case.pair.topic_id, "partition_data": data}]
    how = {"transactional_id": None, "timeout": 5_000}
    case.pair.ask("produce", version, topic_data=topics, acks=-1, **how)


@edge()
def nothing_is_fetched(case: Case) -> None:
    version = case.v("fetch")
    case.reset(case.person("a"), topics=[case.offsets(partitions=(FETCHED,))])
    for offset in (0, 2**62 - 1, -1):
        partitions = [
            {
                "partition": p,
                "current_leader_epoch": -1,
                "fetch_offset": offset,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": 1_000,
            }
            for p in (FETCHED, 99)
        ]
        topics = [{"topic": TOPIC, "topic_id": case.pair.topic_id, "partitions": partitions}]
        case.pair.ask(
            "fetch",
            version,
            replica_id=-1,
            max_wait=10,
            min_bytes=1,
            max_bytes=1_000,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=topics,
            forgotten_topics_data=[],
            rack_id="",
        )


@edge(small=True)
def a_topic_that_metadata_creates(case: Case) -> None:
    version = case.v("metadata", 4)
    asked = [{"name": f"{case.group}-{n}", "topic_id": None} for n in "ab"]
    case.pair.ask("metadata", version, topics=asked[:1], allow_auto_topic_creation=False)
    case.pair.ask("metadata", version, topics=asked, allow_auto_topic_creation=True)
    case.wait(500)
    case.pair.ask("metadata", version, topics=asked, allow_auto_topic_creation=True)


@edge()
def metadata(case: Case) -> None:
    names = [TOPIC, "absent-topic", "bad name", "", "x" * 250, "..", TOPIC]
    version = case.v("metadata", 4)  # below 4 a client cannot say that nothing is to be created

    def mine(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "topics": [t for t in answer["topics"] if t["name"] in names]}

    for asked in (names, [], None):
        topics = None if asked is None else [{"name": n, "topic_id": None} for n in asked]
        case.pair.ask("metadata", version, mine, topics=topics, allow_auto_topic_creation=False)
    for version in (10, 12, 13):
        strange = [{"topic_id": uuid.UUID(int=5), "name": None}]
        case.pair.ask("metadata", version, topics=strange)
        known = [{"topic_id": case.pair.topic_id, "name": None}]
        case.pair.ask("metadata", version, topics=known)


@edge()
def the_cluster(case: Case) -> None:
    version = case.v("describe_cluster")
    for kind in (1, 2, 3):
        if kind == 1 or version >= 1:
            case.pair.ask("describe_cluster", version, endpoint_type=kind)
            case.pair.ask(
                "describe_cluster",
                version,
                endpoint_type=kind,
                include_cluster_authorized_operations=True,
            )


@edge()
def topics_are_created(case: Case) -> None:
    version = case.v("create_topics")
    for n, more in enumerate(
        (
            {},
            {},
            {"configs": [{"name": "no.such.config", "value": "1"}]},
            {"num_partitions": -1},
            {"num_partitions": 0},
            {"replication_factor": 3},
            {"replication_factor": 0},
            {"name": "bad name"},
            {"name": ""},
            {"name": TOPIC},
            {"configs": [{"name": "retention.ms", "value": "100000"}]},
            {"assignments": [{"partition_index": 0, "broker_ids": [1]}]},
        )
    ):
        for name in (case.group, f"{case.group}-fresh-{n}"):
            new = {"name": name, "num_partitions": 2, "replication_factor": 1, **more}
            for validate_only in (True, False):
                case.pair.ask(
                    "create_topics",
                    version,
                    topics=[new],
                    timeout=20_000,
                    validate_only=validate_only,
                )
    same = {"name": f"{case.group}-twice", "num_partitions": 1, "replication_factor": 1}
    case.pair.ask("create_topics", version, topics=[same, same], timeout=20_000)


@edge()
def topics_grow_and_go(case: Case) -> None:
    for n in range(3):
        new = {"name": f"{case.group}-{n}", "num_partitions": 2, "replication_factor": 1}
        case.pair.ask("create_topics", 4, topics=[new], timeout=20_000)
    for name, count in (
        (f"{case.group}-0", 4),
        (f"{case.group}-0", 4),
        (f"{case.group}-0", 1),
        ("absent", 4),
        (f"{case.group}-0", -1),
    ):
        case.pair.ask(
            "create_partitions",
            case.v("create_partitions"),
            timeout=20_000,
            validate_only=False,
            topics=[{"name": name, "count": count, "assignments": None}],
        )
    case.wait(500)
    names = [f"{case.group}-1", "absent"]
    by_name = [{"name": name, "topic_id": None} for name in names]
    case.pair.ask(
        "delete_topics",
        case.v("delete_topics"),
        topic_names=names,
        topics=[*by_name, {"name": None, "topic_id": uuid.UUID(int=3)}],
        timeout_ms=20_000,
        timeout=20_000,
    )


@edge(109)
def served_versions(case: Case) -> None:
    served = set(API_KEYS.values())

    def mine(answer: dict[str, Any]) -> dict[str, Any]:
        keys = [k for k in answer["api_keys"] if k["api_key"] in served]
        return {"error_code": answer["error_code"], "api_keys": keys}

    version = case.v("api_versions")
    software = {"client_software_name": "raw", "client_software_version": "1.0"}
    case.pair.ask("api_versions", version, mine, **software)
    case.pair.ask("api_versions", version, **software)
    for name, number in (("", "1"), ("raw", ""), ("-raw", "1"), ("r w", "1"), ("raw", "1.")):
        if version >= 3:
            case.pair.ask(
                "api_versions", version, client_software_name=name, client_software_version=number
            )
