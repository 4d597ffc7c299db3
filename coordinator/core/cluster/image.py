"""The image of topics that a shard checks requests against: a value, replaced as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

_ANY_PARTITION = 2**31
"""As the number of partitions of a host that keeps no topics: every index exists."""


class TopicInfo(NamedTuple):
    """A topic that exists."""

    name: str
    topic_id: str
    """Kafka's printed form, 22 characters of URL-safe base64; "" where ids are not kept."""
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicImage:
    """All topics at one moment."""

    by_name: dict[str, TopicInfo]
    by_id: dict[str, TopicInfo] = field(default_factory=dict)
    accepts_any: bool = False
    """No source of topics (embedded use): every topic and partition is taken to exist, without an
    id.
    """

    def find(self, name: str, topic_id: str, *, by_id: bool) -> TopicInfo | None:
        """Look a topic up as a client named it; None: it does not exist."""
        if self.accepts_any:
            return TopicInfo(name or topic_id, "", _ANY_PARTITION)
        return self.by_id.get(topic_id) if by_id else self.by_name.get(name)

    @classmethod
    def of(cls, *topics: TopicInfo) -> TopicImage:
        """Build the image of exactly these topics."""
        return cls({t.name: t for t in topics}, {t.topic_id: t for t in topics if t.topic_id})

    @classmethod
    def any(cls) -> TopicImage:
        """Build the image of a host without topics: everything exists."""
        return cls({}, {}, accepts_any=True)
