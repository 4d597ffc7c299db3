"""The rules for topic names (Kafka: org.apache.kafka.common.internals.Topic)."""

from __future__ import annotations

import re

MAX_TOPIC_NAME_LENGTH = 249
"""Kafka's limit: a directory named ``<topic>-<partition>`` must fit into 255 bytes."""

OFFSETS_TOPIC = "__consumer_offsets"
CLUSTER_TOPIC = "__cluster_metadata"
RESERVED_TOPICS = frozenset({OFFSETS_TOPIC, CLUSTER_TOPIC})
"""Kafka's internal topics. Their data is in the storage here, so the topics do not exist. Every
tool that knows these names would mistake a topic with such a name for Kafka's.
"""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_error(name: str) -> str | None:
    """Return the reason why Kafka would refuse a topic of this name, or None if the name is
    valid.
    """
    if name == "":
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return "Topic name is invalid: '.' or '..' is not allowed"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return f"Topic name is invalid: longer than {MAX_TOPIC_NAME_LENGTH} characters"
    if _LEGAL.fullmatch(name) is None:
        return "Topic name is invalid: only ASCII letters, digits, '.', '_' and '-' are allowed"
    return None


def metric_name(name: str) -> str:
    """Return a topic's name as metrics print it. No two topics may have the same name there (Kafka:
    Topic.hasCollision).
    """
    return name.replace(".", "_")
