"""What the comparison calls a difference, on answers made by hand (part of `make test`)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.kafka.comparison import CLOSED, PARKED, Comparison

A, B, C = (f"x-{n * 8}-0000-0000-0000-000000000000" for n in "abc")
PORTS = (1111, 2222)


def fields(kafka: Any, ours: Any, api: str = "heartbeat") -> list[str]:
    comparison = Comparison("case", PORTS)
    comparison.compare("request", api, 0, kafka, ours)
    return [difference.field for difference in comparison.differences]


@pytest.mark.parametrize(
    ("kafka", "ours"),
    [
        ({"error_code": 0}, {"error_code": 25}),
        ({"leader": ""}, {"leader": None}),
        ({"members": []}, {"members": None}),
        ({"members": []}, {"members": [1]}),
        ({"skip_assignment": False}, {"skip_assignment": 0}),
        ({"error_message": None}, {"error_message": "why"}),
        ({"error_message": None}, {"error_message": ""}),
        ({"error_message": ""}, {"error_message": "why"}),
        ({"port": 2222}, {"port": 1111}),
        ({"member_id": A}, {"member_id": "y" + B[1:]}),
        (CLOSED, PARKED),
        (PARKED, {"error_code": 0}),
    ],
)
def test_what_differs(kafka: Any, ours: Any) -> None:
    assert fields(kafka, ours)


@pytest.mark.parametrize(
    ("kafka", "ours"),
    [
        ({"error_message": "one text"}, {"error_message": "another"}),
        ({"port": 1111}, {"port": 2222}),
        ({"member_id": A}, {"member_id": B}),
        (CLOSED, CLOSED),
    ],
)
def test_what_does_not(kafka: Any, ours: Any) -> None:
    assert not fields(kafka, ours)


def test_an_id_stands_for_one_id_and_no_other_in_a_whole_case() -> None:
    comparison = Comparison("case", PORTS)
    for kafka, ours in ((A, B), (B, A), (A, B)):
        comparison.compare("request", "heartbeat", 0, {"member_id": kafka}, {"member_id": ours})
    assert not comparison.differences
    comparison.compare("request", "heartbeat", 0, {"member_id": A}, {"member_id": C})
    comparison.compare("request", "heartbeat", 0, {"member_id": C}, {"member_id": B})
    assert len(comparison.differences) == 2


def test_order_counts_but_in_the_arrays_that_come_out_of_a_hash_map() -> None:
    kafka, ours = {"members": [{"n": 1}, {"n": 2}]}, {"members": [{"n": 2}, {"n": 1}]}
    assert fields(kafka, ours, "leave_group") == ["members.n", "members.n"]
    assert not fields(kafka, ours, "join_group")


def test_where_order_does_not_count_the_elements_still_do() -> None:
    kafka, ours = {"members": [{"n": 1}, {"n": 2}]}, {"members": [{"n": 2}, {"n": 2}]}
    assert fields(kafka, ours, "join_group") == ["members.n"]
