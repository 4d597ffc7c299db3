"""The subscriptions of a consumer group: lists of topic names, and patterns. Equal ones are kept
once.

See docs/spec/consumer-groups.md#heartbeat, step 6, and #regex. Only ``ConsumerGroup`` changes them,
when it applies a record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from hashlib import blake2b
from typing import Final, NamedTuple

from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.consumer.numbered_topics import NumberedTopics
from groupkeeper.coordinator.core.consumer_records import ConsumerMemberFields, PatternTopics
from groupkeeper.coordinator.core.groups.group import text_bytes
from groupkeeper.coordinator.core.groups.subscribers import Subscribers

MAX_NAMES: Final = 50_000
"""The largest number of topic names in all different lists and resolved patterns of one group. With
more names, the step of a new member or of a new target would block the loop for longer than 100 ms.
"""
KEPT_TOPICS: Final = 1_000
"""The least number of topics for which the tables that ``numbered`` returns are kept until the
topics change. It takes 10 ms to make them for 50,000 topics. Smaller tables are made again each
time, because 100,000 groups may each have one.
"""
_HASH_BYTES: Final = 8
_NO_TOPICS: Final[frozenset[str]] = frozenset()


class Subscribed:
    """The topic names and the pattern to which one member subscribes. It never changes.

    Python computes the hash of a tuple again each time: 0.1 ms for 20,000 names. 10,000 members may
    have such a list, so its hash is kept here.
    """

    __slots__ = ("_hash", "names", "pattern")

    def __init__(self, names: tuple[str, ...], pattern: str | None) -> None:
        self.names = names
        self.pattern = pattern
        self._hash = hash((names, pattern))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Subscribed)
            and self.pattern == other.pattern
            and (self.names is other.names or self.names == other.names)
        )


_NOTHING: Final = Subscribed((), None)


class Room(NamedTuple):
    """The room that a list of names needs within the limits."""

    names: int
    size_bytes: int


_NO_ROOM: Final = Room(0, 0)


def names_bytes(names: tuple[str, ...]) -> int:
    """Return an upper bound of the size of a list of names in a record."""
    return text_bytes("".join(names)) + 8 * len(names)


def pattern_bytes(pattern: str, topics: PatternTopics) -> int:
    """Return an upper bound of the size of a resolved pattern in a record."""
    return text_bytes(pattern) + names_bytes(topics.topics) + 128


def subscription_of(fields: ConsumerMemberFields) -> Subscribed:
    """Return the subscription in the stored fields of a member."""
    return Subscribed(fields.subscribed_topic_names, fields.subscribed_topic_regex)


class Subscriptions:
    """The subscriptions of one group, and the topics of its patterns."""

    def __init__(self, group_id: str, subscribers: Subscribers) -> None:
        self._group_id = group_id
        self._subscribers = subscribers
        self._members: dict[Subscribed, tuple[Subscribed, int]] = {}
        """Subscription -> (the object that all members with it share, the number of these
        members).
        """
        self._last = _NOTHING
        """The subscription that ``add`` returned last. Often the next member of a saved group has
        the same subscription, and shares its list of names.
        """
        self._lists: dict[tuple[str, ...], tuple[tuple[str, ...], int]] = {}
        """List of names -> (the tuple that all subscriptions with it share, the number of these
        subscriptions).
        """
        self.pattern_counts: Counter[str] = Counter()
        """Pattern -> the number of members that have it."""
        self._uses: dict[str, int] = {}
        """Topic name -> the number of lists and resolved patterns that contain it."""
        self.resolved: dict[str, PatternTopics] = {}
        """Pattern -> the topics that match it."""
        self.name_count = 0
        """The number of names in all lists and resolved patterns."""
        self.size_bytes = 0
        """An upper bound of the size of all lists and resolved patterns in a record."""
        self._ids: dict[Subscribed, frozenset[str]] = {}
        self._ids_image: TopicImage | None = None
        self._existing: list[TopicInfo] = []
        self._numbered: NumberedTopics | None = None
        """The tables of ``_existing``, if they were made and are kept."""
        self._hash = 0
        self._existing_image: TopicImage | None = None
        """The image from which ``_existing``, ``_numbered`` and ``_hash`` were computed; None if
        the subscribed topics have changed since.
        """

    # --- changes ---

    def add(self, fields: ConsumerMemberFields) -> Subscribed:
        """Count the subscription in the fields of a member, and return it. Equal subscriptions
        share one object and one list of names.
        """
        pattern, subscription = fields.subscribed_topic_regex, self._last
        is_last = fields.subscribed_topic_names is subscription.names
        if not is_last or pattern != subscription.pattern:
            subscription = subscription_of(fields)
        if pattern is not None:
            self.pattern_counts[pattern] += 1
        known = self._members.get(subscription)
        if known is not None:
            shared, count = known
            self._members[shared] = shared, count + 1
            self._last = shared
            return shared
        names = subscription.names
        copy, uses = self._lists.get(names, (names, 0))
        self._lists[names] = copy, uses + 1
        if not uses:
            self._use(names)
            self.name_count += len(names)
            self.size_bytes += names_bytes(names)
        shared = subscription if copy is names else Subscribed(copy, pattern)
        self._members[shared] = shared, 1
        self._last = shared
        return shared

    def remove(self, subscription: Subscribed) -> None:
        """Count one member less for a subscription, and forget it with its last member."""
        names, pattern = subscription.names, subscription.pattern
        if pattern is not None:
            self.pattern_counts[pattern] -= 1
            if not self.pattern_counts[pattern]:
                del self.pattern_counts[pattern]
        shared, count = self._members[subscription]
        if count > 1:
            self._members[shared] = shared, count - 1
            return
        del self._members[shared]
        self._ids.pop(shared, None)
        self._last = _NOTHING
        copy, uses = self._lists[names]
        self._lists[names] = copy, uses - 1
        if uses == 1:
            del self._lists[names]
            self._disuse(names)
            self.name_count -= len(names)
            self.size_bytes -= names_bytes(names)

    def resolve(self, pattern: str, topics: PatternTopics | None) -> None:
        """Set the topics of a pattern. None forgets them."""
        self._ids.clear()
        known = self.resolved.pop(pattern, None)
        if topics is not None:
            self.resolved[pattern] = topics
            self._use(topics.topics)
            self.name_count += len(topics.topics)
            self.size_bytes += pattern_bytes(pattern, topics)
        if known is not None:
            self._disuse(known.topics)
            self.name_count -= len(known.topics)
            self.size_bytes -= pattern_bytes(pattern, known)

    def clear(self) -> None:
        """Forget everything."""
        self._subscribers.change(self._group_id, self._uses.keys(), _NO_TOPICS)
        for counts in (self._members, self._lists, self.pattern_counts, self._uses, self._ids):
            counts.clear()
        self.resolved.clear()
        self.name_count = self.size_bytes = 0
        self._existing_image = None
        self._existing = []
        self._numbered = None
        self._last = _NOTHING

    def _use(self, topics: tuple[str, ...]) -> None:
        uses = self._uses
        new = frozenset(topics).difference(uses)
        uses.update(dict.fromkeys(new, 0))
        for topic in topics:
            uses[topic] += 1
        if new:
            self._existing_image = None
            self._subscribers.change(self._group_id, _NO_TOPICS, new)

    def _disuse(self, topics: tuple[str, ...]) -> None:
        uses = self._uses
        gone = {topic for topic in topics if uses[topic] == 1}
        for topic in topics:
            uses[topic] -= 1
        for topic in gone:
            del uses[topic]
        if gone:
            self._existing_image = None
            self._subscribers.change(self._group_id, gone, _NO_TOPICS)

    # --- questions ---

    def admits(self, added_names: int) -> bool:
        """Return True if the lists of names may grow by this number of names."""
        return added_names <= 0 or self.name_count + added_names <= MAX_NAMES

    def needed(self, names: tuple[str, ...]) -> Room:
        """Return the room that a list of names needs. It is 0 if the group already has the list."""
        return _NO_ROOM if names in self._lists else Room(len(names), names_bytes(names))

    def given_back(self, subscription: Subscribed, names: tuple[str, ...]) -> Room:
        """Return the room that becomes free if a member had this subscription, and now subscribes
        to ``names``. There is none if another member has the same list, or if the list stays.
        """
        old = subscription.names
        if old == names or self.is_shared(subscription) or self._lists[old][1] > 1:
            return _NO_ROOM
        return Room(len(old), names_bytes(old))

    def topics(self) -> Set[str]:
        """Return the name of every topic that a member subscribes to, even if the topic does not
        exist.
        """
        return self._uses.keys()

    def different(self) -> Iterator[Subscribed]:
        """Yield each different subscription once, even if many members have it."""
        return iter(self._members)

    def is_shared(self, subscription: Subscribed) -> bool:
        """Return True if several members have this subscription. If one of these members leaves,
        the topics of the group stay the same.
        """
        return self._members[subscription][1] > 1

    def pattern_count(self, pattern: str) -> int:
        """Return how many members have a pattern."""
        return self.pattern_counts.get(pattern, 0)

    def patterns(self) -> list[str]:
        """Return every pattern of the members, sorted."""
        return sorted(self.pattern_counts)

    def topics_of(self, subscription: Subscribed) -> Sequence[str]:
        """Return the sorted topics of a subscription, including those of a resolved pattern."""
        resolved = self.resolved.get(subscription.pattern or "")
        if resolved is None:
            return subscription.names
        return sorted({*subscription.names, *resolved.topics})

    def ids_of(self, subscription: Subscribed, image: TopicImage) -> Set[str]:
        """Return the ids of those topics of a subscription that exist."""
        if image is not self._ids_image:
            self._ids.clear()
            self._ids_image = image
        ids = self._ids.get(subscription)
        if ids is None:
            found = [image.by_name.get(topic) for topic in self.topics_of(subscription)]
            ids = frozenset([topic.topic_id for topic in found if topic is not None])
            if subscription in self._members:
                self._ids[subscription] = ids
        return ids

    def existing(self, image: TopicImage) -> Sequence[TopicInfo]:
        """Return the subscribed topics that exist, sorted by name."""
        self._look_up(image)
        return self._existing

    def numbered(self, image: TopicImage) -> NumberedTopics:
        """Return the tables that number the topics of ``existing``, for an assignor."""
        self._look_up(image)
        if self._numbered is not None:
            return self._numbered
        numbered = NumberedTopics(self._existing)
        if len(self._existing) >= KEPT_TOPICS:
            self._numbered = numbered
        return numbered

    def metadata_hash(self, image: TopicImage) -> int:
        """Return a hash of the subscribed topics that exist, with their numbers of partitions; 0 if
        none exists.
        """
        self._look_up(image)
        return self._hash

    def _look_up(self, image: TopicImage) -> None:
        """Update ``_existing`` and the values computed from it, unless nothing has changed since
        the last call. A step may remove many members, and each of them begins an epoch with the
        hash of all topics.
        """
        if image is self._existing_image:
            return
        known = [image.by_name.get(topic) for topic in sorted(self._uses)]
        self._existing = [topic for topic in known if topic is not None]
        self._numbered = None
        self._hash = _hash_of(self._existing)
        self._existing_image = image


def _hash_of(topics: Sequence[TopicInfo]) -> int:
    if not topics:
        return 0
    lines = "".join([f"{name}\0{topic_id}\0{count}\n" for name, topic_id, count in topics])
    digest = blake2b(lines.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES)
    return int.from_bytes(digest.digest(), "big", signed=True)
