"""Topics, the cluster, and which versions are served: spec sections 1 and 5."""

from __future__ import annotations

import uuid
from typing import Any

from tests.conformance.kafka.case import Case, edge
from tests.conformance.kafka.settings import TOPIC
from tests.helpers.raw_client import API_KEYS


@edge()
def ends_of_partitions(case: Case) -> None:
    partitions = [
        {"partition_index": p, "timestamp": -2, "current_leader_epoch": -1} for p in (0, 11, 12, 99)
    ]
    absent = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]
    for time in (-2, -1, -3, 0, 1):
        asked = [{**p, "timestamp": time} for p in partitions]
        topics = [{"name": TOPIC, "partitions": asked}, {"name": "absent", "partitions": absent}]
        case.pair.ask("list_offsets", case.v("list_offsets"), replica_id=-1, topics=topics)


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
