"""The image of topics: all topics at one moment. Shards check requests against it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

ANY_PARTITION = 2**31
"""The partition count of every topic if the host keeps no topics: every index exists."""


class TopicInfo(NamedTuple):
    """The name, id and size of a topic."""

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


MAX_DELETED_NAMES = 1_000
"""The largest number of names of deleted topics that a shard keeps for events. They take 100 kB. A
name is needed only until members have given up the deleted topic, which takes seconds.
"""

NO_DIFFERENCE = TopicDifference(frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class TopicImage:
    """All topics with their partitions, as they were at one moment. An image never changes."""

    by_name: dict[str, TopicInfo]
    by_id: dict[str, TopicInfo] = field(default_factory=dict)
    accepts_any: bool = False
    """True if there is no source of topics (embedded use). Every topic and partition then exists,
    without an id.
    """
    version: int = field(default=0, compare=False)
    """The number of the image, counted from the start of the process. 0 if no image came before."""
    created_version: int = field(default=0, compare=False)
    """The version of the newest image, up to this one, in which a topic was created."""
    difference: TopicDifference = field(default=NO_DIFFERENCE, compare=False)
    """The difference from the image before this one."""

    @classmethod
    def of(cls, *topics: TopicInfo) -> TopicImage:
        """Return the image of exactly these topics."""
        return cls({t.name: t for t in topics}, {t.topic_id: t for t in topics if t.topic_id})

    @classmethod
    def any(cls) -> TopicImage:
        """Return an image for a host without a list of topics: every topic exists."""
        return cls({}, {}, accepts_any=True)

    def followed_by(self, topics: Iterable[TopicInfo]) -> TopicImage:
        """Return the image of exactly these topics as the next version.

        The new image contains its difference from this one, so that the difference is computed once
        for all shards.
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
        """Return the difference from an earlier image of the same process. Versions may lie between
        the two, because a shard gets no images while it is loaded.
        """
        if was.version == self.version - 1:
            return self.difference
        return NO_DIFFERENCE if was is self else self._compare(was)

    def _compare(self, was: TopicImage) -> TopicDifference:
        """Return the difference from an earlier image.

        ``deleted`` also has the earlier name of each topic id that does not exist any more, because
        a new topic may have the same name.
        """
        changed = {name for name, _ in was.by_name.items() ^ self.by_name.items()}
        deleted = was.by_name.keys() - self.by_name.keys()
        deleted |= {was.by_id[gone].name for gone in was.by_id.keys() - self.by_id.keys()}
        return TopicDifference(frozenset(changed), frozenset(deleted))


def keep_names(names: dict[str, str], was: TopicImage, deleted: Iterable[str]) -> None:
    """Add deleted topics of the image ``was`` to ``names`` (topic id -> name). Drop the oldest
    names if there are too many.
    """
    for name in sorted(deleted):
        topic = was.by_name.get(name)
        if topic is not None and topic.topic_id:
            names[topic.topic_id] = name
    while len(names) > MAX_DELETED_NAMES:
        del names[next(iter(names))]
