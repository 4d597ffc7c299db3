"""What the comparison calls a difference, on answers made by hand (part of `make test`)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.serial import entity_reader

from tests.conformance.kafka import requests
from tests.conformance.kafka.allowed import decision_of
from tests.conformance.kafka.bodies import (
    GROUP_APIS,
    TOPIC_APIS,
    encoded,
    odd_bytes,
    odd_values,
)
from tests.conformance.kafka.case import versions_of
from tests.conformance.kafka.comparison import CLOSED, PARKED, Comparison
from tests.conformance.kafka.sent import Answer, Sent
from tests.conformance.kafka.settings import TOPIC
from tests.helpers.wire.raw_client import API_KEYS, to_plain

OWN = "case-a1b2c3"
A, B, C = (f"x-{n * 8}-0000-0000-0000-000000000000" for n in "abc")
PORTS = (1111, 2222)


def fields(kafka: Any, ours: Any, api: str = "heartbeat") -> list[str]:
    comparison = Comparison("case", OWN, PORTS)
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
    comparison = Comparison("case", OWN, PORTS)
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


def listed(*groups: tuple[str, str]) -> dict[str, Any]:
    found = [{"group_id": name, "group_state": state} for name, state in groups]
    return {"error_code": 0, "groups": found}


@pytest.mark.parametrize(
    ("kafka", "ours"),
    [
        (listed((OWN, "Empty")), listed((OWN, "Empty"), ("other-1", "Empty"))),
        (listed(("other-1", "Stable"), (OWN, "Empty")), listed((OWN, "Empty"))),
        (listed(("other-1", "Stable"), ("", "Empty")), listed(("other-1", "Dead"))),
        (listed(), listed(("other-1", "Empty"))),
    ],
)
def test_of_a_listing_other_cases_groups_are_not_compared(kafka: Any, ours: Any) -> None:
    assert not fields(kafka, ours, "list_groups")


@pytest.mark.parametrize(
    ("kafka", "ours", "field"),
    [
        (listed((OWN, "Empty")), listed(("other-1", "Empty")), "groups"),
        (listed(), listed((f"{OWN}-2", "Empty")), "groups"),
        (listed((OWN, "Empty")), listed((OWN, "Dead")), "groups.group_state"),
        (listed(), {**listed(), "error_code": 15}, "error_code"),
        (listed(), CLOSED, ""),
    ],
)
def test_of_a_listing_the_cases_own_groups_are(kafka: Any, ours: Any, field: str) -> None:
    assert fields(kafka, ours, "list_groups") == [field]


def configured(*resources: tuple[str, int]) -> dict[str, Any]:
    found = [{"resource_name": name, "resource_type": kind} for name, kind in resources]
    return {"config_resources": found}


def test_of_listed_configs_other_cases_groups_alone_are_not_compared() -> None:
    api, others = "list_config_resources", ("other-1", 32)
    assert not fields(configured((OWN, 32), others), configured((OWN, 32)), api)
    assert fields(configured((OWN, 32), others), configured(others), api)
    assert fields(configured(("1", 4)), configured(), api)
    assert fields(configured((OWN, 16)), configured(), api)
    unversioned = {"config_resources": [{"resource_name": OWN}]}
    assert fields(unversioned, configured(), api)


def named_groups(api: str, version: int, body: bytes) -> list[Any]:
    """The groups that a request is about, as far as it can be read."""
    schema = load_request_schema(API_KEYS[api], version)
    try:
        _, size = entity_reader(schema.__header_schema__)(body, 0)
        request = to_plain(entity_reader(schema)(body, size)[0])
    except Exception:  # noqa: BLE001  it is odd; a server closes the connection
        return []
    assert isinstance(request, dict)
    many = [*(request.get("groups") or ()), *(request.get("groups_names") or ())]
    found = [one["group_id"] if isinstance(one, dict) else one for one in many]
    return [*found, request["group_id"]] if "group_id" in request else found


@pytest.mark.parametrize("api", sorted(set(GROUP_APIS) - {"find_coordinator", "list_groups"}))
def test_no_odd_body_names_a_group_that_other_cases_name_too(api: str) -> None:
    for version in versions_of(api):
        values = requests.of_group(api, OWN)
        good = encoded(api, version, values)
        bodies = dict(odd_bytes(api, version, good, (OWN.encode(),)))
        bodies |= {what: body for what, (body, _) in odd_values(api, version, values, OWN)}
        assert OWN in named_groups(api, version, bodies["as it is"])
        for what, body in bodies.items():
            assert "" not in named_groups(api, version, body), (version, what)


def sent(api: str, member_id: str, answer: Answer | None = None, **more: Any) -> Sent:
    """A request of the case's group; by a LeaveGroup one member leaves."""
    one = {"member_id": member_id, "group_instance_id": more.get("group_instance_id")}
    values = {"group_id": OWN, "member_id": member_id, "members": [one], **more}
    made = Sent(api, 3, 1, "request", values)
    made.answer = answer
    return made


def left(error_code: int) -> Answer:
    return {"error_code": 0, "members": [{"error_code": error_code}]}


def decision_on(error_code: int, waits: Sent, *others: Sent, before: tuple[Sent, ...] = ()) -> Any:
    """Which decision allows that we answer what waits in Kafka, given what else was sent."""
    waits.answer = {"error_code": error_code}
    by = waits.given_up_by([*before, waits, *others])
    comparison = Comparison("case", OWN, PORTS)
    comparison.compare("request", waits.api, waits.version, PARKED, waits.answer, given_up_by=by)
    return decision_of(comparison.differences[0])


@pytest.mark.parametrize("api", ["join_group", "sync_group"])
def test_a_request_that_waits_is_given_up_for_a_later_one_of_its_member_alone(api: str) -> None:
    other = "sync_group" if api == "join_group" else "join_group"
    assert decision_on(27, sent(api, A), sent(api, A)) == 1
    assert decision_on(27, sent(api, A), sent(api, B), sent(api, A, {"error_code": 0})) == 1
    assert decision_on(27, sent(api, A)) is None
    assert decision_on(27, sent(api, A), before=(sent(api, A),)) is None
    assert decision_on(27, sent(api, A), sent(api, B)) is None
    assert decision_on(27, sent(api, A), sent(other, A)) is None
    assert decision_on(27, sent(api, A), sent("leave_group", A, left(0))) is None
    assert decision_on(27, sent(api, A), sent(api, A, group_id="other")) is None
    assert decision_on(27, sent(api, A), sent(api, A, {"error_code": 22})) is None
    assert decision_on(27, sent(api, ""), sent(api, "")) is None


def test_a_sync_that_waits_is_given_up_when_its_member_is_taken_out_alone() -> None:
    def sync() -> Sent:
        return sent("sync_group", A)

    joined = sent("join_group", "", {"error_code": 0, "member_id": A}, group_instance_id="i")
    by_instance = sent("leave_group", "", left(0), group_instance_id="i")
    another = sent("leave_group", "", left(0), group_instance_id="j")
    assert decision_on(25, sync(), sent("leave_group", A, left(0))) == 1
    assert decision_on(25, sync(), by_instance, before=(joined,)) == 1
    assert decision_on(25, sync()) is None
    assert decision_on(25, sync(), sync()) is None
    assert decision_on(25, sync(), before=(sent("leave_group", A, left(0)),)) is None
    assert decision_on(25, sync(), sent("leave_group", B, left(0))) is None
    assert decision_on(25, sync(), sent("leave_group", A, left(25))) is None
    assert decision_on(25, sync(), sent("leave_group", A)) is None
    assert decision_on(25, sync(), another, before=(joined,)) is None
    assert decision_on(25, sync(), by_instance) is None


@pytest.mark.parametrize("api", TOPIC_APIS)
def test_of_every_other_api_odd_requests_are_made_that_name_no_other_topic(api: str) -> None:
    values = requests.of_topic(api, OWN, uuid.UUID(int=5))
    for version in versions_of(api):
        made = dict(odd_values(api, version, values, OWN))
        assert made or api in ("api_versions", "list_config_resources", "describe_cluster")
        assert not any(TOPIC.encode() in body for bodies in made.values() for body in bodies)


def test_a_value_is_odd_in_one_place_and_names_stay() -> None:
    values = {"name": OWN, "level": 0, "parts": [{"index": 1}], "flag": True, "id": None}
    made = [changed for _, changed in requests.odd(values, OWN)]
    assert {**values, "parts": []} in made
    assert {**values, "parts": [{"index": 1}, {"index": 1}]} in made
    assert {**values, "parts": [{"index": 1}, {"index": -1}]} in made
    assert {**values, "level": 2} in made
    assert {**values, "flag": False} in made
    assert all(one["name"] == OWN and one["id"] is None for one in made)
