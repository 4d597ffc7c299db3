"""Names and values of topic configs are Kafka's."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.handlers.configs.topic_configs import (
    TOPIC_CONFIGS,
    appended,
    topic_config_error,
)
from tests.helpers.topic_config_values import REFUSED, TAKEN


def test_there_are_as_many_topic_configs_as_kafka_has() -> None:
    """Kafka 4.3.1: LogConfig, with the one that it keeps for tests of its own."""
    assert len(TOPIC_CONFIGS) == 34


@pytest.mark.parametrize(("name", "value"), TAKEN)
def test_a_value_that_kafka_takes_is_taken(name: str, value: str) -> None:
    assert topic_config_error({name: value}) is None


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_a_name_or_a_value_that_kafka_refuses_is_refused(name: str, value: str) -> None:
    error = topic_config_error({"retention.bytes": "5", name: value})
    assert error


@pytest.mark.parametrize(("shortest", "longest", "fits"), [(5, 5, True), (5, 4, False)])
def test_what_may_not_be_compacted_yet_must_not_have_to_be(
    shortest: int, longest: int, fits: bool
) -> None:
    configs = {"min.compaction.lag.ms": str(shortest), "max.compaction.lag.ms": str(longest)}
    assert (topic_config_error(configs) is None) is fits


@pytest.mark.parametrize("name", ["min.compaction.lag.ms", "max.compaction.lag.ms"])
def test_either_lag_of_compaction_may_stand_alone(name: str) -> None:
    assert topic_config_error({name: "9223372036854775807"}) is None


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("compact", "delete,compact"),
        ("delete", "delete"),
        ("compact,delete,,", "delete,compact"),
        (",compact", "delete,,compact"),
        (",,", "delete"),
        ("", "delete,"),
    ],
)
def test_what_is_appended_to_a_list_comes_once_and_without_empty_ends(
    text: str, whole: str
) -> None:
    """ConfigurationControlManager, with String.split."""
    assert appended("cleanup.policy", text) == whole


def test_a_list_without_a_default_begins_empty() -> None:
    assert appended("leader.replication.throttled.replicas", "0:1,") == ",0:1"
