"""Which differences chance of time explains, on differences made by hand (part of `make test`)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.kafka.by_chance import explained
from tests.conformance.kafka.comparison import CLOSED, ON_TIME, PARKED, Difference


def found(api: str, field: str, kafka: Any, ours: Any, answer: int = 1) -> Difference:
    return Difference("case", "request", api, 4, field, kafka, ours, answer=answer)


@pytest.mark.parametrize(
    ("api", "field", "kafka", "ours"),
    [
        ("join_group", "", ON_TIME, {"ours is late": 0}),
        ("join_group", "", ON_TIME, {"Kafka is late": 0}),
        ("join_group", "", PARKED, {"error_code": 27}),
        ("offset_commit", "", {"topics": []}, PARKED),
        ("join_group", "error_code", 0, 25),
        ("join_group", "generation_id", 3, 2),
        ("join_group", "members", [1, 2], [1]),
        ("heartbeat", "error_code", 27, 0),
        ("offset_commit", "topics.partitions.error_code", 22, 16),
        ("describe_groups", "groups.group_state", "Stable", "Empty"),
    ],
)
def test_chance_of_time_explains(api: str, field: str, kafka: Any, ours: Any) -> None:
    assert explained([found(api, field, kafka, ours)])


@pytest.mark.parametrize(
    ("api", "field", "kafka", "ours"),
    [
        ("offset_fetch", "groups.topics.partitions.committed_offset", 5, -1),
        ("offset_fetch", "topics.partitions.committed_offset", 5, 70),
        ("offset_fetch", "topics.partitions.committed_leader_epoch", -1, 0),
        ("offset_fetch", "topics.partitions.metadata", "", "x"),
        ("offset_fetch", "topics", [1], []),
        ("offset_commit", "topics.partitions.error_code", 0, 28),
        ("offset_commit", "topics.name", "orders", "order"),
        ("describe_configs", "results.configs.value", "1", "77"),
        ("describe_groups", "groups.group_state", "Empty", "Dead"),
        ("describe_groups", "groups.members.client_id", "a", "b"),
        ("join_group", "error_code", 0, 23),
        ("join_group", "members.metadata", b"1", b""),
        ("join_group", "protocol_name", "range", "sticky"),
        ("sync_group", "assignment", b"1", b""),
        ("heartbeat", "error_code", 0, 82),
        ("heartbeat", "", CLOSED, PARKED),
        ("heartbeat", "", {"error_code": 0}, CLOSED),
        ("heartbeat", "", {"error_code": 0}, {"other": 0}),
        ("join_group", "", PARKED, {"error_code": -1}),
    ],
)
def test_it_does_not_explain(api: str, field: str, kafka: Any, ours: Any) -> None:
    one = found(api, field, kafka, ours)
    assert not explained([one])
    late = found("join_group", "", ON_TIME, {"ours is late": 0})
    assert not explained([late, one]), "one that is explained excuses no other"


def test_an_assignment_may_differ_where_one_side_was_refused_in_the_same_answer() -> None:
    refused = found("sync_group", "error_code", 25, 0)
    assert explained([refused, found("sync_group", "assignment", b"", b"1")])
    assert not explained([refused, found("sync_group", "assignment", b"", b"1", answer=2)])
    fatal = found("sync_group", "error_code", -1, 0)
    assert not explained([fatal, found("sync_group", "assignment", b"", b"1")])
