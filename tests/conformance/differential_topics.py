"""Differential cases: topics, the cluster, and what the wire lets pass (spec 1 and 5)."""

from __future__ import annotations

import socket
import struct
import uuid
from typing import TYPE_CHECKING, Any

from tests.conformance.differential_side import TOPIC, offsets
from tests.helpers.raw_client import API_KEYS, RawClient, encode_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.differential_side import Side


def offsets_of_partitions(side: Side, _: str) -> None:
    for version in range(1, 10):
        side(
            "list_offsets",
            version,
            replica_id=-1,
            topics=[
                {
                    "name": TOPIC,
                    "partitions": [
                        {"partition_index": p, "timestamp": -2, "current_leader_epoch": -1}
                        for p in (0, 11, 12, 99)
                    ],
                },
                {
                    "name": "absent",
                    "partitions": [
                        {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
                    ],
                },
            ],
        )


def metadata(side: Side, _: str) -> None:
    names = [TOPIC, "absent-topic", "bad name", "", "x" * 250, "..", TOPIC]
    for version in range(4, 14):  # below 4 a client cannot say that nothing is to be created
        for asked in (names, [], None):
            topics = None if asked is None else [{"name": name} for name in asked]
            answer = side.client.call(
                "metadata", version, topics=topics, allow_auto_topic_creation=False
            )
            without_addresses(answer)
            answer["topics"] = [t for t in answer["topics"] if t["name"] in names]
            side.keep(f"metadata v{version} {(asked and 'names') or asked}", answer)
    for version in (10, 12, 13):
        strange = [{"topic_id": uuid.UUID(int=5), "name": None}]
        try:
            side.keep(
                f"metadata v{version} by id",
                without_addresses(side.client.call("metadata", version, topics=strange)),
            )
        except ConnectionError:
            side.client = RawClient(side.port, client_id="differential", timeout_s=20)
            side.keep(f"metadata v{version} by id", {"closed": True})


def without_addresses(answer: dict[str, Any]) -> dict[str, Any]:
    """Addresses, cluster and topic ids are each side's own."""
    answer["brokers"] = len(answer["brokers"])
    answer["cluster_id"] = None
    for topic in answer["topics"]:
        topic["topic_id"] = None if topic.get("error_code") == 0 else topic.get("topic_id")
    return answer


def clusters(side: Side, _: str) -> None:
    for version in range(3):
        for kind in (1, 2, 3):
            answer = side.client.call("describe_cluster", version, endpoint_type=kind)
            answer["brokers"] = len(answer["brokers"])
            answer["cluster_id"] = answer["cluster_id"] and "<id>"
            if kind == 1 or version >= 1:
                side.keep(f"describe_cluster v{version} {kind}", answer)


def topics_created(side: Side, group: str) -> None:
    for version in range(2, 8):
        for more in (
            {},
            {"validate_only": True},
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
        ):
            new = {
                "name": f"{group}-{version}",
                "num_partitions": 2,
                "replication_factor": 1,
                **{k: v for k, v in more.items() if k != "validate_only"},
            }
            answer = side.client.call(
                "create_topics",
                version,
                topics=[new],
                timeout=20_000,
                validate_only="validate_only" in more,
            )
            for topic in answer["topics"]:
                topic["topic_id"] = topic["configs"] = None
            side.keep(f"create_topics v{version} {more}", answer)
            if "name" not in more:
                new["name"] = f"{group}-{version}-fresh-{len(side.answers)}"
                fresh = side.client.call("create_topics", version, topics=[new], timeout=20_000)
                for topic in fresh["topics"]:
                    topic["topic_id"] = topic["configs"] = None
                side.keep(f"create_topics v{version} {more} fresh", fresh)


def topics_grown_and_deleted(side: Side, group: str) -> None:
    for version in range(2, 8):
        mine = {"name": f"{group}-{version}", "num_partitions": 2, "replication_factor": 1}
        side.client.call("create_topics", version, topics=[mine], timeout=20_000)
    for version in range(4):
        for name, count in (
            (f"{group}-3", 4),
            (f"{group}-3", 4),
            (f"{group}-3", 1),
            ("absent", 4),
            (f"{group}-3", -1),
        ):
            side(
                "create_partitions",
                version,
                timeout=20_000,
                validate_only=False,
                topics=[{"name": name, "count": count, "assignments": None}],
            )
    same = {"name": f"{group}-twice", "num_partitions": 1, "replication_factor": 1}
    side("create_topics", 4, topics=[same, same], timeout=20_000)
    side(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=offsets(f"{group}-2"),
    )
    for version in range(1, 7):
        name = f"{group}-{version + 1}"
        if version < 6:
            answer = side.client.call(
                "delete_topics",
                version,
                topic_names=[name, "absent"],
                timeout_ms=20_000,
                timeout=20_000,
            )
        else:
            answer = side.client.call(
                "delete_topics",
                6,
                timeout_ms=20_000,
                timeout=20_000,
                topics=[
                    {"name": name, "topic_id": None},
                    {"name": "absent", "topic_id": None},
                    {"name": None, "topic_id": uuid.UUID(int=3)},
                ],
            )
        for entry in answer["responses"]:
            if entry["error_code"] == 0:
                entry["topic_id"] = None
        side.keep(f"delete_topics v{version}", answer)


def refused(side: Side, group: str) -> None:
    """What closes the connection, and what does not."""
    good = encode_request(
        "heartbeat", 4, {"group_id": group, "generation_id": 1, "member_id": "m"}, 1, "differential"
    )
    flexible = encode_request("list_groups", 4, {"states_filter": []}, 1, "differential")
    empty_list = encode_request("list_groups", 4, {"states_filter": ["Dead"]}, 1, "differential")
    bodies = {
        "as it is": good,
        "trailing bytes": good[4:] + b"more",
        "ends early": good[4:-3],
        "unknown key": b"\x7f\x00" + good[6:],
        "unknown version": good[4:6] + b"\x00\x63" + good[8:],
        "negative version": good[4:6] + b"\xff\xff" + good[8:],
        "api versions 9": b"\x00\x12\x00\x09" + good[8:],
        "not utf-8": good[4:].replace(group.encode()[:3], b"\xff\xfe\xfd"),
        "unknown tag": empty_list[4:-1] + b"\x01\x63\x02hi",
        "count beyond the end": flexible[4:-2] + b"\x7f\x00",
        "null array": flexible[4:-2] + b"\x00\x00",
        "empty": b"",
        "one byte": b"\x00",
    }
    bodies["as it is"] = good[4:]
    for what, body in bodies.items():
        with socket.create_connection(("127.0.0.1", side.port), timeout=20) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            head = connection.recv(4, socket.MSG_WAITALL)
            if len(head) < 4:
                side.keep(what, {"closed": True})
                continue
            (length,) = struct.unpack(">i", head)
            side.keep(what, {"answer": connection.recv(length, socket.MSG_WAITALL)[:40].hex()})


def api_versions(side: Side, _: str) -> None:
    served = set(API_KEYS.values())
    for version in range(5):
        answer = side.client.call(
            "api_versions", version, client_software_name="raw", client_software_version="1.0"
        )
        keys = [k for k in answer["api_keys"] if k["api_key"] in served]
        side.keep(f"api_versions v{version}", {"error_code": answer["error_code"], "keys": keys})
    for name, number in (("", "1"), ("raw", ""), ("-raw", "1"), ("r w", "1"), ("raw", "1.")):
        side("api_versions", 3, client_software_name=name, client_software_version=number)


CASES: list[Callable[[Side, str], None]] = [
    offsets_of_partitions,
    metadata,
    clusters,
    topics_created,
    topics_grown_and_deleted,
    refused,
    api_versions,
]
