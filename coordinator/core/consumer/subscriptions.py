"""The subscriptions of a consumer group: names and patterns, each counted once.

See docs/spec/consumer-groups.md#heartbeat, step 6, and #regex. Only ``ConsumerGroup`` changes them,
when it applies a record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from hashlib import blake2b
from typing import Final, NamedTuple

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.consumer_records import ConsumerMemberFields, PatternTopics
from groupkeeper.coordinator.core.groups.group import text_bytes
from groupkeeper.coordinator.core.groups.subscribers import Subscribers

MAX_NAMES: Final = 100_000
"""The most names in all different lists and resolved patterns of one group. With more, the
computation of a target would block the loop for longer than 100 ms."""
_HASH_BYTES: Final = 8
_NO_TOPICS: Final[frozenset[str]] = frozenset()


class Subscribed(NamedTuple):
    """The topic names and the pattern to which one member subscribes."""

    names: tuple[str, ...]
    pattern: str | None


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
        self._members: dict[Subscribed, int] = {}
        """The number of members that have each subscription."""
        self._lists: dict[tuple[str, ...], tuple[tuple[str, ...], int]] = {}
        """Each list of names, with its only copy, and the number of subscriptions that have it."""
        self.pattern_counts: Counter[str] = Counter()
        """The number of members that have each pattern."""
        self._uses: Counter[str] = Counter()
        """The number of lists and patterns that contain each topic."""
        self.resolved: dict[str, PatternTopics] = {}
        self.name_count = 0
        """The number of names in all lists and resolved patterns."""
        self.size_bytes = 0
        """An upper bound of the size of all lists and resolved patterns in a record."""
        self._ids: dict[Subscribed, frozenset[str]] = {}
        self._ids_image: TopicImage | None = None

    # --- changes ---

    def add(self, subscription: Subscribed) -> Subscribed:
        """Count the subscription of a member. Return it with a list of names that equal
        subscriptions share.
        """
        names, pattern = subscription
        count = self._members.get(subscription, 0)
        if not count:
            copy, uses = self._lists.get(names, (names, 0))
            self._lists[names] = copy, uses + 1
            if not uses:
                self._use(names)
                self.name_count += len(names)
                self.size_bytes += names_bytes(names)
        self._members[subscription] = count + 1
        if pattern is not None:
            self.pattern_counts[pattern] += 1
        return Subscribed(self._lists[names][0], pattern)

    def remove(self, subscription: Subscribed) -> None:
        """Forget a member's subscription."""
        names, pattern = subscription
        count = self._members[subscription] - 1
        self._members[subscription] = count
        if pattern is not None:
            self.pattern_counts[pattern] -= 1
            if not self.pattern_counts[pattern]:
                del self.pattern_counts[pattern]
        if not count:
            del self._members[subscription]
            self._ids.pop(subscription, None)
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

    def _use(self, topics: tuple[str, ...]) -> None:
        new = {topic for topic in topics if topic not in self._uses}
        self._uses.update(dict.fromkeys(topics, 1))
        self._subscribers.change(self._group_id, _NO_TOPICS, new)

    def _disuse(self, topics: tuple[str, ...]) -> None:
        self._uses.subtract(dict.fromkeys(topics, 1))
        gone = {topic for topic in topics if not self._uses[topic]}
        for topic in gone:
            del self._uses[topic]
        self._subscribers.change(self._group_id, gone, _NO_TOPICS)

    # --- questions ---

    def admits(self, names: tuple[str, ...]) -> bool:
        """Return True if the group has room for this list. A list that it already has needs no
        room.
        """
        return self.name_count + len(names) <= MAX_NAMES or names in self._lists

    def topics(self) -> Set[str]:
        """Return every topic that a member subscribes to, even if it does not exist."""
        return self._uses.keys()

    def different(self) -> Iterator[Subscribed]:
        """Yield each different subscription once, even if many members have it."""
        return iter(self._members)

    def pattern_count(self, pattern: str) -> int:
        """Return how many members have a pattern."""
        return self.pattern_counts.get(pattern, 0)

    def patterns(self) -> list[str]:
        """Return every pattern of the members, sorted."""
        return sorted(self.pattern_counts)

    def topics_of(self, subscription: Subscribed) -> Set[str]:
        """Return the topics of a subscription, including those of a resolved pattern."""
        resolved = self.resolved.get(subscription.pattern or "")
        return {*subscription.names, *(() if resolved is None else resolved.topics)}

    def ids_of(self, subscription: Subscribed, image: TopicImage) -> Set[str]:
        """Return the ids of those topics of a subscription that exist."""
        if image is not self._ids_image:
            self._ids.clear()
            self._ids_image = image
        ids = self._ids.get(subscription)
        if ids is None:
            found = [image.by_name.get(topic) for topic in self.topics_of(subscription)]
            ids = frozenset(topic.topic_id for topic in found if topic is not None)
            if subscription in self._members:
                self._ids[subscription] = ids
        return ids

    def metadata_hash(self, image: TopicImage) -> int:
        """Return a hash of the subscribed topics that exist, with their numbers of partitions; 0 if
        none exists.
        """
        known = [image.by_name.get(topic) for topic in sorted(self._uses)]
        lines = [f"{t.name}\0{t.topic_id}\0{t.partitions}\n" for t in known if t is not None]
        if not lines:
            return 0
        digest = blake2b("".join(lines).encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES)
        return int.from_bytes(digest.digest(), "big", signed=True)
