"""A good request of each API that is served, and odd ones that differ from it in one value.

What is odd is made of the values by their types alone, so that no field is forgotten: an array that
is empty, null, or holds an element twice; a number just below and above what means something; a
text that is empty or null; an id that is nobody's.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from tests.conformance.kafka.case import UNKNOWN_TOPIC
from tests.conformance.kafka.pair import Ref
from tests.conformance.kafka.settings import LONG_MS, TOPIC

NUMBERS = (-2, -1, 0, 1, 2, 5, 127, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
"""Instead of any other: all that a byte, a level, an epoch or a kind of resource may mean, and the
ends of what there is; a field that is too short for one is not asked with it.
"""

TIMEOUT_MS = 0x01010101
"""Still long enough where one of its bytes is nothing."""

Values = dict[str, Any]


def of_group(api: str, group: str, topic_id: Ref | None = None) -> Values:
    """A request of an API of groups; of an unknown member where it has one: nothing parks."""
    topic = {"name": TOPIC, "topic_id": topic_id}
    member = {"member_id": "m", "group_instance_id": None, "reason": "r"}
    values: Values = {
        "group_id": group,
        "member_id": "m",
        "group_instance_id": None,
        "generation_id": 7,
        "generation_id_or_member_epoch": 7,
        "session_timeout": LONG_MS,
        "rebalance_timeout": LONG_MS,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "protocols": [{"name": "range", "metadata": b"ab"}],
        "assignments": [{"member_id": "m", "assignment": b"ab"}],
        "members": [member],
        "key": f"x{group}",
        "key_type": 0,
        "coordinator_keys": [f"x{group}", group],
        "groups_names": [group],
        "states_filter": ["Empty"],
        "types_filter": ["classic"],
        "retention_time": -1,
        "topics": [{**topic, "partitions": [{"partition_index": 0}]}],
    }
    part = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    if api == "offset_commit":
        values["topics"] = [{**topic, "partitions": [part]}]
    if api == "offset_fetch":
        topics = [{**topic, "partition_indexes": [0]}]
        values["topics"] = topics
        values["groups"] = [
            {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}
        ]
    if api == "describe_groups":
        values["groups"] = [group]
    return values


def of_topic(api: str, name: str, topic_id: Ref | uuid.UUID) -> Values:
    """A request of any other API. Where it can, it names that topic, which has two partitions, or
    the group of that name; it makes nothing, and deletes nothing that is there.
    """
    end = {"partition_index": 1, "timestamp": -2, "current_leader_epoch": -1}
    part = {
        "partition": 1,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000,
    }
    new = {
        "name": f"{name}-new",
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": "retention.ms", "value": "100000"}],
    }
    key = "consumer.session.timeout.ms"
    config = {"name": key, "config_operation": 0, "value": "46000"}
    records = {"index": 0, "records": b""}
    absent = {"name": f"{name}-absent", "topic_id": UNKNOWN_TOPIC}
    of_api: Mapping[str, Values] = {
        "produce": {
            "transactional_id": None,
            "acks": -1,
            "topic_data": [{**absent, "partition_data": [records]}],
        },
        "fetch": {
            "replica_id": -1,
            "max_wait": 1,
            "min_bytes": 0,
            "max_bytes": 1_000,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": name, "topic_id": topic_id, "partitions": [part]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        },
        "list_offsets": {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": name, "partitions": [end]}],
        },
        "metadata": {
            "topics": [{"name": name, "topic_id": None}],
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        },
        "api_versions": {"client_software_name": "raw", "client_software_version": "1.0"},
        "create_topics": {"topics": [new], "validate_only": True},
        "create_partitions": {
            "topics": [{"name": name, "count": 3, "assignments": [{"broker_ids": [1]}]}],
            "validate_only": True,
        },
        "delete_topics": {
            "topic_names": [absent["name"]],
            "topics": [{"name": absent["name"], "topic_id": None}],
        },
        "describe_configs": {
            "resources": [{"resource_type": 32, "resource_name": name, "configuration_keys": [key]}]
        },
        "incremental_alter_configs": {
            "resources": [{"resource_type": 32, "resource_name": name, "configs": [config]}],
            "validate_only": True,
        },
        "describe_cluster": {"endpoint_type": 1},
        "list_config_resources": {"resource_types": [32]},
    }
    return {"timeout": TIMEOUT_MS, **of_api[api]}


def odd(value: Any, kept: str) -> Iterator[tuple[str, Any]]:
    """What is said of it, and a value that differs from this one in one place. Texts that begin
    with ``kept`` are the case's own names, and stay.
    """
    match value:
        case dict():
            for name, item in value.items():
                for what, other in odd(item, kept):
                    yield f"{name}{what}", {**value, name: other}
        case list():
            yield from _odd_list(value, kept)
        case bool():
            yield f" is {not value}", not value
        case int():
            yield from ((f" is {number}", number) for number in NUMBERS if number != value)
        case str() if not value.startswith(kept):
            yield from ((f" is {text!r}", text) for text in ("", None, "a b"))
        case bytes():
            yield from ((f" is {other}", other) for other in (b"", None) if other != value)
        case Ref() | uuid.UUID():
            others = ("", "a b", None, uuid.UUID(int=3))
            yield from ((f" is {other!r}", other) for other in others)


def _odd_list(value: list[Any], kept: str) -> Iterator[tuple[str, Any]]:
    yield " is empty", []
    yield " is null", None
    for at, item in enumerate(value):
        yield f"[{at}] comes twice", [*value, item]
        for what, other in odd(item, kept):
            yield f"[{at}].{what}", [*value[:at], other, *value[at + 1 :]]
            yield f"[{at}].{what}, beside the other", [*value, other]
