"""What the runtime needs of a shard: ``Shard``, ``ClusterShard`` and the fakes of tests fit it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.cluster.settings import GroupOverrides
from groupkeeper.coordinator.core.cluster.shard import ClusterShard
from groupkeeper.coordinator.core.groups.census import Census
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.records import Record, SavedGroup
from groupkeeper.coordinator.core.requests import Now
from groupkeeper.coordinator.core.shard import Shard
from groupkeeper.coordinator.core.step import Step, Ticket


class AnyShard(Protocol):
    """A pure state machine with records (docs/design.md#pure-shard); its methods are those of
    ``core.shard.Shard``.
    """

    def handle(self, request: Any, ticket: Ticket, now: Now) -> Step:
        """Take one request."""
        ...

    def expire(self, now: Now) -> Step:
        """Take what is due, cut to the limits of a step."""
        ...

    def topics_changed(self, image: TopicImage, now: Now) -> Step:
        """Take a new image of topics."""
        ...

    def configs_changed(self, settings: Mapping[str, GroupOverrides], now: Now) -> Step:
        """Take what is set for single groups of this shard."""
        ...

    def next_deadline(self) -> int | None:
        """Tell when to call ``expire``; O(1)."""
        ...

    def apply(self, record: Record) -> None:
        """Take a record that was loaded."""
        ...

    def loaded(self, now: Now) -> Step:
        """Begin to live, after the last record of a load."""
        ...

    def saved(self, group_id: str) -> SavedGroup | None:
        """Return a group's saved state, for the fold."""
        ...

    def load_group(self, group_id: str, records: Sequence[Record], now: Now) -> Step:
        """Take in a group that was read by itself."""
        ...

    def ends(self) -> Mapping[tuple[str, int], int]:
        """Return the largest offset of each (topic id, partition)."""
        ...

    def group_count(self) -> int:
        """Tell how many groups there are."""
        ...

    def offset_count(self) -> int:
        """Tell how many committed offsets there are."""
        ...


MakeShard: TypeAlias = Callable[[int, CoreLimits, TopicImage], AnyShard]


class ClusterRunner(ClusterShard):
    """Lets the runtime run the cluster shard like any other: without groups or ends."""

    def topics_changed(self, image: TopicImage, now: Now) -> Step:
        """Nothing to do: the image comes from here."""
        return Step()

    def configs_changed(self, settings: Mapping[str, GroupOverrides], now: Now) -> Step:
        """Nothing to do: they come from here."""
        return Step()

    def load_group(self, group_id: str, records: Sequence[Record], now: Now) -> Step:
        """Never called: no groups."""
        return Step()

    def ends(self) -> Mapping[tuple[str, int], int]:
        """No offsets."""
        return {}

    def group_count(self) -> int:
        """No groups."""
        return 0

    def offset_count(self) -> int:
        """No offsets."""
        return 0


def group_shards(census: Census, *, are_topics_stored: bool) -> MakeShard:
    """Return what makes shards of groups that share a limit on their number. Some stores keep no
    topics.
    """

    def make(shard_id: int, limits: CoreLimits, image: TopicImage) -> AnyShard:
        return Shard(shard_id, limits, image, census, are_topics_stored=are_topics_stored)

    return make


def make_cluster_shard(shard_id: int, limits: CoreLimits, image: TopicImage) -> AnyShard:
    """Make the shard that holds topics and configs."""
    return ClusterRunner(limits)
