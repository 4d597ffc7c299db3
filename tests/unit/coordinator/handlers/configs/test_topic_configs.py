"""Names and types of topic configs are Kafka's."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.handlers.configs.topic_configs import (
    TOPIC_CONFIGS,
    topic_config_error,
)
from tests.helpers.wire.topic_config_values import KAFKAS_ALONE, OURS_ALONE, REFUSED, TAKEN


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


@pytest.mark.parametrize(("name", "value"), OURS_ALONE)
def test_a_value_of_the_right_type_is_taken(name: str, value: str) -> None:
    assert topic_config_error({name: value}) is None


@pytest.mark.parametrize(("name", "value"), KAFKAS_ALONE)
def test_a_number_has_plain_digits(name: str, value: str) -> None:
    assert topic_config_error({name: value})
