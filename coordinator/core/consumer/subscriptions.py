"""What the members of a consumer group subscribe to: names and patterns, each counted once.

See docs/spec/consumer-groups.md#heartbeat, step 6, and #regex. Only ``ConsumerGroup`` changes it,
from records.
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

_HASH_BYTES: Final = 8
_NO_TOPICS: Final[frozenset[str]] = frozenset()


class Subscribed(NamedTuple):
    """What one member subscribes to."""

    names: tuple[str, ...]
    pattern: str | None


def names_bytes(names: tuple[str, ...]) -> int:
    """Return an upper bound of the size of a list of names in a record."""
    return text_bytes("".join(names)) + 8 * len(names)


def pattern_bytes(pattern: str, topics: PatternTopics) -> int:
    """Return an upper bound of the size of a resolved pattern in a record."""
    return text_bytes(pattern) + names_bytes(topics.topics) + 128


def subscription_of(fields: ConsumerMemberFields) -> Subscribed:
    """Return what a member subscribes to."""
    return Subscribed(fields.subscribed_topic_names, fields.subscribed_topic_regex)


class Subscriptions:
    """The subscriptions of one group, and the topics of its patterns."""

    def __init__(self, group_id: str, subscribers: Subscribers) -> None:
        self._group_id = group_id
        self._subscribers = subscribers
        self._members: dict[Subscribed, int] = {}
        """Subscription -> how many members have it."""
        self._lists: dict[tuple[str, ...], tuple[tuple[str, ...], int]] = {}
        """List of names -> the one copy of it, and how many subscriptions have it."""
        self._patterns: Counter[str] = Counter()
        """Pattern -> how many members have it."""
        self._uses: Counter[str] = Counter()
        """Topic -> how many lists and patterns name it."""
        self.resolved: dict[str, PatternTopics] = {}
        self.size_bytes = 0
        """An upper bound of the size of all lists and resolved patterns in a record."""
        self._ids: dict[Subscribed, frozenset[str]] = {}
        self._ids_image: TopicImage | None = None

    # --- changes ---

    def add(self, subscription: Subscribed) -> Subscribed:
        """Count a member's subscription. Return it with the one copy of its names."""
        names, pattern = subscription
        count = self._members.get(subscription, 0)
        if not count:
            copy, uses = self._lists.get(names, (names, 0))
            self._lists[names] = copy, uses + 1
            if not uses:
                self._use(names)
                self.size_bytes += names_bytes(names)
        self._members[subscription] = count + 1
        if pattern is not None:
            self._patterns[pattern] += 1
        return Subscribed(self._lists[names][0], pattern)

    def remove(self, subscription: Subscribed) -> None:
        """Forget a member's subscription."""
        names, pattern = subscription
        count = self._members[subscription] - 1
        self._members[subscription] = count
        if pattern is not None:
            self._patterns[pattern] -= 1
            if not self._patterns[pattern]:
                del self._patterns[pattern]
        if not count:
            del self._members[subscription]
            self._ids.pop(subscription, None)
            copy, uses = self._lists[names]
            self._lists[names] = copy, uses - 1
            if uses == 1:
                del self._lists[names]
                self._disuse(names)
                self.size_bytes -= names_bytes(names)

    def resolve(self, pattern: str, topics: PatternTopics | None) -> None:
        """Set the topics of a pattern, or forget them."""
        self._ids.clear()
        known = self.resolved.pop(pattern, None)
        if topics is not None:
            self.resolved[pattern] = topics
            self._use(topics.topics)
            self.size_bytes += pattern_bytes(pattern, topics)
        if known is not None:
            self._disuse(known.topics)
            self.size_bytes -= pattern_bytes(pattern, known)

    def clear(self) -> None:
        """Forget everything."""
        self._subscribers.change(self._group_id, self._uses.keys(), _NO_TOPICS)
        for counts in (self._members, self._lists, self._patterns, self._uses, self._ids):
            counts.clear()
        self.resolved.clear()
        self.size_bytes = 0

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

    def topics(self) -> Set[str]:
        """Return every topic that a member subscribes to, whether it exists or not."""
        return self._uses.keys()

    def different(self) -> Iterator[Subscribed]:
        """Yield each different subscription."""
        return iter(self._members)

    def pattern_count(self, pattern: str) -> int:
        """Return how many members have a pattern."""
        return self._patterns.get(pattern, 0)

    def has_patterns(self) -> bool:
        """Return whether a member has a pattern."""
        return bool(self._patterns)

    def pattern_total(self) -> int:
        """Return the number of different patterns."""
        return len(self._patterns)

    def patterns(self) -> list[str]:
        """Return every pattern of the members, sorted."""
        return sorted(self._patterns)

    def topics_of(self, subscription: Subscribed) -> Set[str]:
        """Return the topics of a subscription, those of its pattern included if it is resolved."""
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
        """Return a digest of the subscribed topics that exist, with their numbers of partitions; 0
        if there are none.
        """
        known = [image.by_name.get(topic) for topic in sorted(self._uses)]
        lines = [f"{t.name}\0{t.topic_id}\0{t.partitions}\n" for t in known if t is not None]
        if not lines:
            return 0
        digest = blake2b("".join(lines).encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES)
        return int.from_bytes(digest.digest(), "big", signed=True)
