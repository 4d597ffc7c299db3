"""What the allow-list takes of whole arrays, on arrays made by hand (part of `make test`)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.kafka.arrays import (
    NOT_SERVED,
    configs_and,
    configs_are,
    no_configs,
    no_loggers,
    our_features,
    served_keys,
)
from tests.helpers.wire.raw_client import API_KEYS


def key(number: int, most: int = 4) -> dict[str, int]:
    return {"api_key": number, "min_version": 0, "max_version": most}


KEYS = [key(number) for number in sorted({*API_KEYS.values(), *NOT_SERVED})]
SERVED = [one for one in KEYS if one["api_key"] in API_KEYS.values()]


def test_no_key_that_is_served_is_among_those_that_are_not() -> None:
    assert not NOT_SERVED & set(API_KEYS.values())
    assert served_keys(KEYS, SERVED)


@pytest.mark.parametrize("api", sorted(API_KEYS))
def test_no_key_that_is_served_may_be_missing_or_have_other_versions(api: str) -> None:
    number = API_KEYS[api]
    missing = [one for one in SERVED if one["api_key"] != number]
    other = [key(number, 3) if one["api_key"] == number else one for one in SERVED]
    assert not served_keys(KEYS, missing)
    assert not served_keys(KEYS, other)


def test_no_keys_at_all_and_more_than_are_served_are_not_taken() -> None:
    assert not served_keys(KEYS, [])
    assert not served_keys(KEYS, KEYS)


def test_of_features_ours_are_those_that_we_have() -> None:
    kafka = [{"name": "group.version", "max": 1}, {"name": "share.version", "max": 1}]
    assert our_features(kafka, kafka[:1])
    assert not our_features(kafka, [])
    assert not our_features(kafka, kafka)
    assert not our_features(kafka, [{"name": "group.version", "max": 2}])


def config(name: str, value: str, *, source: int = 5) -> dict[str, Any]:
    return {"name": name, "value": value, "config_source": source}


KAFKAS = [config("a", "x:1234", source=4), config("b", "2"), config("c", "3")]
TOLD = configs_are({"a": {"value": ("x:*", "y:*"), "config_source": (4, 5)}, "b": {}})


def test_configs_that_are_told_are_as_kafkas_but_for_what_is_named() -> None:
    assert TOLD(KAFKAS, [config("a", "y:77"), config("b", "2")])


@pytest.mark.parametrize(
    "ours",
    [
        [],
        [config("b", "2")],
        [config("a", "y:77"), config("b", "77")],
        [config("a", "y:77"), config("b", "2", source=4)],
        [config("a", "y:77", source=4), config("b", "2")],
        [config("a", "z:77"), config("b", "2")],
        [config("a", "y:77"), config("b", "2"), config("b", "2")],
        [config("a", "y:77"), config("b", "2"), config("c", "3")],
    ],
)
def test_other_configs_are_not_taken(ours: list[dict[str, Any]]) -> None:
    assert not TOLD(KAFKAS, ours)


def test_configs_of_our_own_come_on_top_of_all_of_kafkas_as_they_are() -> None:
    holds, own = configs_and(frozenset({"own"})), config("own", "1")
    assert holds(KAFKAS, [own, *KAFKAS])
    assert not holds(KAFKAS, KAFKAS)
    assert not holds(KAFKAS, [own, *KAFKAS[1:]])
    assert not holds(KAFKAS, [own, config("a", "x:77", source=4), *KAFKAS[1:]])
    assert not holds(KAFKAS, [own, config("more", "1"), *KAFKAS])


def test_configs_are_explained_in_words_of_our_own_where_kafka_explains_them():
    holds, own = configs_and(frozenset({"own"})), config("own", "1")
    kafka = {**config("a", "1"), "documentation": "a timeout"}
    assert holds([kafka], [own, {**kafka, "documentation": "how long it takes"}])
    assert not holds([kafka], [own, {**kafka, "documentation": ""}])


def test_nothing_is_told_of_loggers_alone() -> None:
    assert no_configs([config("root", "INFO")], [])
    assert not no_configs([config("node.id", "1"), config("b", "2")], [])
    assert not no_configs([config("root", "INFO")], [config("root", "INFO")])


def test_of_resources_with_configs_the_loggers_alone_may_be_missing() -> None:
    broker, logger, group = ({"resource_name": "1", "resource_type": kind} for kind in (4, 8, 32))
    assert no_loggers([logger, broker, group], [group, broker])
    assert not no_loggers([logger, broker, group], [group])
    assert not no_loggers([broker], [broker])
    assert not no_loggers([logger], [logger])
