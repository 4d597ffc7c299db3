"""Odd values in requests to a group that there is: of its only member, and of nobody.

``bodies`` asks for a group that there is not, so that most is refused for that. Here the good
request is accepted, and what it does to the group is compared as well as its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.conformance.kafka import requests
from tests.conformance.kafka.asked import ASKED
from tests.conformance.kafka.bodies import compare, odd_requests, of_both
from tests.conformance.kafka.case import Case, edge, versions_of
from tests.conformance.kafka.pair import Ref
from tests.conformance.kafka.requests import Values
from tests.conformance.kafka.sent import Answer

LEAVE_THE_GROUP_AS_IT_IS = ("heartbeat", "sync_group", "offset_fetch", "describe_groups")
NEED_AN_EMPTY_GROUP = ("offset_delete", "delete_groups")
APIS = (
    *LEAVE_THE_GROUP_AS_IT_IS,
    *NEED_AN_EMPTY_GROUP,
    "join_group",
    "leave_group",
    "offset_commit",
)
STEP = 1 if ASKED.all_versions else 4
"""So many odd values further is the next one that a level is asked with."""

INSTANCE = "i"
MEMBER_ID_REQUIRED = 79

Setup = Callable[[Case, str, list[str]], Values]


def with_a_member(case: Case, group: str, ids: list[str]) -> Values:
    """Make a Stable group of one static member with offsets, whose id each side gives; returns what
    its requests say.
    """
    member_id = Ref(ids.__getitem__, "<the member>")
    own: Values = {
        "member_id": member_id,
        "group_instance_id": INSTANCE,
        "generation_id": 1,
        "generation_id_or_member_epoch": 1,
        "assignments": [{"member_id": member_id, "assignment": b"ab"}],
        "members": [{"member_id": member_id, "group_instance_id": INSTANCE, "reason": "r"}],
    }
    ids[:] = ["", ""]
    joined = _good(case, "join_group", 5, group, own)
    ids[:] = [answer["member_id"] for answer in joined]
    _good(case, "sync_group", 3, group, own)
    _good(case, "offset_commit", 7, group, own)
    return own


def without_members(case: Case, group: str, _: list[str]) -> Values:
    """Make an Empty group with offsets; returns what an administrator's requests say."""
    own: Values = {"member_id": "", "generation_id": -1, "generation_id_or_member_epoch": -1}
    _good(case, "offset_commit", 7, group, own)
    return own


def _good(case: Case, api: str, version: int, group: str, own: Values) -> list[Answer]:
    bodies = of_both(api, version, {**requests.of_group(api, group), **own})
    return compare(case, api, version, f"for {group}", bodies)


SETUPS: tuple[Setup, ...] = (with_a_member, without_members)


def _put(case: Case, api: str, version: int, setup: Setup) -> None:
    ids: list[str] = []
    name = f"{case.group}-{setup.__name__}"
    group = f"{name}-0"
    own = setup(case, group, ids)
    good = {**requests.of_group(api, group, case.pair.topic_id), **own}
    answer = _ask(case, api, version, "as it is", good)
    if setup is (without_members if api in NEED_AN_EMPTY_GROUP else with_a_member):
        assert set(_error_codes(answer)) == {0}, "then all is refused, and nothing is seen"
    odd = list(odd_requests(api, version, good, group))
    for number, (what, values) in enumerate(odd[case.level % STEP :: STEP], 1):
        if api in LEAVE_THE_GROUP_AS_IT_IS:
            _ask(case, api, version, what, values)
            continue
        of_its_own = f"{name}-{number}"
        setup(case, of_its_own, ids)
        _ask(case, api, version, what, _renamed(values, group, of_its_own))
        case.observe(of_its_own)
    case.observe(group)


def _ask(case: Case, api: str, version: int, what: str, values: Values) -> Answer:
    """Compare the answers; returns Kafka's."""
    answers = compare(case, api, version, what, of_both(api, version, values))
    if all(answer.get("error_code") == MEMBER_ID_REQUIRED for answer in answers):
        given = Ref(lambda side: answers[side]["member_id"], "<the id that was given>")
        again = of_both(api, version, {**values, "member_id": given})
        answers = compare(case, api, version, f"{what}, with the id that was given", again)
    return answers[0]


def _error_codes(answer: Any) -> Iterator[int]:
    if isinstance(answer, list):
        for item in answer:
            yield from _error_codes(item)
    if isinstance(answer, dict):
        for name, item in answer.items():
            yield from [item] if name == "error_code" else _error_codes(item)


def _renamed(value: Any, group: str, name: str) -> Any:
    """The value with another group."""
    if isinstance(value, dict):
        return {key: _renamed(item, group, name) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, group, name) for item in value]
    return name if value == group else value


def _register(api: str) -> None:
    def script(case: Case) -> None:
        versions = versions_of(api)
        if case.level < len(versions):
            for setup in SETUPS:
                _put(case, api, versions[case.level], setup)

    script.__name__ = f"odd_values_of_{api}"
    edge()(script)


for _api in APIS:
    _register(_api)
