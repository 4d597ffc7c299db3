"""The interface of a shard for the runtime. ``Shard``, ``ClusterShard`` and the fakes of the tests
implement it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from groupkeeper.coordinator.core.cluster.group_configs import GroupOverrides
from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.cluster.shard import ClusterShard
from groupkeeper.coordinator.core.groups.census import Census
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.records import Record, SavedGroup
from groupkeeper.coordinator.core.shard import Shard
from groupkeeper.coordinator.core.step import Step, Ticket
from groupkeeper.coordinator.core.work import Work, WorkOutcome


class AnyShard(Protocol):
    """A shard: a pure state machine with records (docs/design.md#pure-shard). The methods are those
    of ``core.shard.Shard``. A ``Step`` has the effects that the caller must carry out: replies,
    records and events.
    """

    def handle(self, request: Any, ticket: Ticket, now: Now) -> Step:
        """Handle one request. The answer for ``ticket`` is in the step, or follows in a later
        one.
        """
        ...

    def expire(self, now: Now) -> Step:
        """Process the deadlines that are due, as many as fit into one step."""
        ...

    def work_done(self, work: Work, outcome: WorkOutcome, now: Now) -> Step:
        """Process the outcome of a computation that an earlier step of this shard began."""
        ...

    def topics_changed(self, image: TopicImage, now: Now) -> Step:
        """Use the topics of ``image`` from this step on."""
        ...

    def configs_changed(self, overrides: Mapping[str, GroupOverrides], now: Now) -> Step:
        """Use these configs of single groups from now on."""
        ...

    def next_deadline(self) -> int | None:
        """Return the time of the next deadline, at which ``expire`` must be called; None if there
        is none. O(1).
        """
        ...

    def apply(self, record: Record) -> None:
        """Apply a record of a load."""
        ...

    def loaded(self, now: Now) -> Step:
        """Begin to answer, after the last record of a load."""
        ...

    def resumed(self, stopped_ms: int, now: Now) -> Step:
        """Continue after ``stopped_ms`` milliseconds in which the shard answered no request. All
        sessions start again.
        """
        ...

    def saved(self, group_id: str) -> SavedGroup | None:
        """Return the saved state of a group, for a fold. None if the group does not exist."""
        ...

    def load_group(self, group_id: str, records: Sequence[Record], now: Now) -> Step:
        """Add one group that was loaded alone, without the other groups of its shard."""
        ...

    def ends(self) -> Mapping[tuple[str, int], int]:
        """Return the largest offset ever committed for each partition: (topic id, partition) ->
        offset.
        """
        ...

    def group_count(self) -> int:
        """Return how many groups the shard has, of all types and states."""
        ...

    def offset_count(self) -> int:
        """Return the number of committed offsets."""
        ...


MakeShard: TypeAlias = Callable[[int, CoreLimits, TopicImage], AnyShard]


def group_shards(census: Census, *, are_topics_stored: bool) -> MakeShard:
    """Return a function that makes shards of groups. All of these shards share one limit on their
    number of groups.

    Set ``are_topics_stored`` to False for a store that keeps no topics.
    """

    def make(shard_id: int, limits: CoreLimits, image: TopicImage) -> AnyShard:
        return Shard(shard_id, limits, image, census, are_topics_stored=are_topics_stored)

    return make


def make_cluster_shard(shard_id: int, limits: CoreLimits, image: TopicImage) -> AnyShard:
    """Make the shard that holds topics and configs."""
    return ClusterShard(limits)
