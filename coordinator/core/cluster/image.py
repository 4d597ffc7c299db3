"""The image of topics against which a shard checks requests. It is replaced as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

ANY_PARTITION = 2**31
"""The partition count of every topic if the host keeps no topics: every index exists."""


class TopicInfo(NamedTuple):
    """A topic that exists."""

    name: str
    topic_id: str
    """Kafka's printed form, 22 characters of URL-safe base64. Empty if ids are not kept."""
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicImage:
    """All topics at one moment."""

    by_name: dict[str, TopicInfo]
    by_id: dict[str, TopicInfo] = field(default_factory=dict)
    accepts_any: bool = False
    """True if there is no source of topics (embedded use). Every topic and partition then exists,
    without an id.
    """

    @classmethod
    def of(cls, *topics: TopicInfo) -> TopicImage:
        """Return the image of exactly these topics."""
        return cls({t.name: t for t in topics}, {t.topic_id: t for t in topics if t.topic_id})

    @classmethod
    def any(cls) -> TopicImage:
        """Return the image of a host without topics, in which every topic exists."""
        return cls({}, {}, accepts_any=True)
