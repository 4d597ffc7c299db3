"""Names of topic configs are Kafka's."""

from __future__ import annotations

from coordinator.handlers.topic_configs import TOPIC_CONFIG_NAMES


def test_there_are_as_many_topic_configs_as_kafka_has() -> None:
    """Kafka 4.3.1: TopicConfig, and the two of QuotaConfig that throttle replicas."""
    assert len(TOPIC_CONFIG_NAMES) == 33
