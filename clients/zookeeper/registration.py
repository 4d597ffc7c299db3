"""The registration of an instance in ZooKeeper: one line of JSON (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Self

from groupkeeper.clients.zookeeper.errors import BrokenNode, InvalidName
from groupkeeper.clients.zookeeper.names import (
    MAX_PARTITION,
    checked_name,
    checked_number,
    number_of,
    text_of,
)

VERSION: Final = 1


class SubscriptionPattern(StrEnum):
    """The meaning of the keys of a subscription."""

    STATIC = "static"
    """The keys are names of topics."""
    WHITE_LIST = "white_list"
    """The key is a regular expression. The instance reads the topics that match it."""
    BLACK_LIST = "black_list"
    """The key is a regular expression. The instance reads the topics that do not match it."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The subscription of an instance, and the time when the instance registered it."""

    pattern: SubscriptionPattern
    subscription: Mapping[str, int]
    """Topic or regular expression -> the number of streams with which this instance reads it."""
    timestamp: int
    """Seconds since 1970. Kafka's classic consumers in Java write milliseconds. ``decode`` returns
    their number unchanged."""
    version: int = VERSION

    @classmethod
    def static(cls, topics: Iterable[str] | Mapping[str, int], timestamp: int) -> Self:
        """Return a registration for topics, by default with one stream each. Raises InvalidName if
        the name of a topic or its number of streams is invalid.
        """
        if isinstance(topics, str):
            raise InvalidName("topics must be a list of names, not one text")
        named = topics.items() if isinstance(topics, Mapping) else ((each, 1) for each in topics)
        subscription = {
            checked_name("topic", topic): checked_number("streams", streams, MAX_PARTITION)
            for topic, streams in named
        }
        return cls(SubscriptionPattern.STATIC, subscription, timestamp)

    @classmethod
    def matching(
        cls, pattern: SubscriptionPattern, expression: str, streams: int, timestamp: int
    ) -> Self:
        """Return a registration for the topics that a regular expression selects.

        The syntax of the expression is not checked, because each program that reads the
        registration uses its own syntax. Raises InvalidName if the expression is empty or
        ``streams`` is out of range.
        """
        checked_number("streams", streams, MAX_PARTITION)
        if not expression:
            raise InvalidName("the expression is empty")
        return cls(pattern, {expression: streams}, timestamp)

    def at(self, timestamp: int) -> Self:
        """Return a copy with this timestamp."""
        return replace(self, timestamp=timestamp)

    def encode(self) -> bytes:
        """Return the JSON that kazoo-go writes: fields in the same order, without spaces."""
        fields = {
            "pattern": str(self.pattern),
            "subscription": dict(sorted(self.subscription.items())),
            "timestamp": self.timestamp,
            "version": self.version,
        }
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, path: str, data: bytes) -> Self:
        """Decode a registration. Unknown fields are skipped. Raises BrokenNode, with the path, if
        the data are invalid.
        """
        try:
            found = json.loads(text_of(path, data))
        except (ValueError, RecursionError) as error:
            raise BrokenNode(path, f"a registration is JSON, and this is not: {error}") from None
        if not isinstance(found, dict):
            raise BrokenNode(path, "a registration is a JSON object")
        return cls(
            _pattern(path, found.get("pattern", "")),
            _subscription(path, found.get("subscription")),
            _integer(path, "timestamp", found.get("timestamp", 0)),
            _integer(path, "version", found.get("version", VERSION)),
        )


def _pattern(path: str, value: Any) -> SubscriptionPattern:
    try:
        return SubscriptionPattern(value)
    except ValueError:
        known = ", ".join(SubscriptionPattern)
        raise BrokenNode(path, f"pattern {value!r} is none of {known}") from None


def _subscription(path: str, value: Any) -> dict[str, int]:
    if value is None:
        return {}  # Go encodes a nil map as null
    if not isinstance(value, dict):
        raise BrokenNode(path, "the subscription is not an object of topics and numbers")
    return {topic: _integer(path, f"subscription of {topic!r}", n) for topic, n in value.items()}


def _integer(path: str, what: str, value: Any) -> int:
    if isinstance(value, str):  # Java's consumers write the timestamp as a string
        return number_of(path, value)
    if type(value) is not int:
        raise BrokenNode(path, f"{what} {value!r} is not a whole number")
    return value
