"""The image of topics against which a shard checks requests. It is replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterable
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


class TopicDifference(NamedTuple):
    """The topics in which two images differ."""

    changed: frozenset[str]
    """Names of topics that were created, deleted, created again, or got partitions."""
    deleted: frozenset[str]
    """Names of topics that were deleted, or deleted and created again."""


NO_DIFFERENCE = TopicDifference(frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class TopicImage:
    """All topics at one moment."""

    by_name: dict[str, TopicInfo]
    by_id: dict[str, TopicInfo] = field(default_factory=dict)
    accepts_any: bool = False
    """True if there is no source of topics (embedded use). Every topic and partition then exists,
    without an id.
    """
    version: int = field(default=0, compare=False)
    """Counts the images of this process. 0: this image follows no other."""
    created_version: int = field(default=0, compare=False)
    """The version that last had a topic which the one before had not."""
    difference: TopicDifference = field(default=NO_DIFFERENCE, compare=False)
    """From the image with the version before."""

    @classmethod
    def of(cls, *topics: TopicInfo) -> TopicImage:
        """Return the image of exactly these topics."""
        return cls({t.name: t for t in topics}, {t.topic_id: t for t in topics if t.topic_id})

    @classmethod
    def any(cls) -> TopicImage:
        """Return the image of a host without topics, in which every topic exists."""
        return cls({}, {}, accepts_any=True)

    def followed_by(self, topics: Iterable[TopicInfo]) -> TopicImage:
        """Return the image of exactly these topics, as the next version. What changed is found here
        once, for all shards.
        """
        image = TopicImage.of(*topics)
        difference = image._compare(self)
        version = self.version + 1
        was_created = any(
            name in image.by_name and (name not in self.by_name or name in difference.deleted)
            for name in difference.changed
        )
        return TopicImage(
            image.by_name,
            image.by_id,
            version=version,
            created_version=version if was_created else self.created_version,
            difference=difference,
        )

    def difference_from(self, was: TopicImage) -> TopicDifference:
        """Return how this image differs from an earlier one of the same process. A shard that was
        loaded has missed images.
        """
        if was.version == self.version - 1:
            return self.difference
        return NO_DIFFERENCE if was is self else self._compare(was)

    def _compare(self, was: TopicImage) -> TopicDifference:
        """Find the difference. Its names include those of a topic id that is now another topic's or
        nobody's.
        """
        changed = {name for name, _ in was.by_name.items() ^ self.by_name.items()}
        deleted = was.by_name.keys() - self.by_name.keys()
        deleted |= {was.by_id[gone].name for gone in was.by_id.keys() - self.by_id.keys()}
        return TopicDifference(frozenset(changed), frozenset(deleted))
