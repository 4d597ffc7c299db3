"""The state machine of one shard of groups: requests, time and topics in, steps out.

Pure and deterministic (docs/design.md#pure-shard): no I/O, no clock, no randomness, no await. Hard
state changes only in ``apply``. The caller carries out the steps in order. It releases no reply or
event before the earlier records are durable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from groupkeeper.coordinator.core import adoption, conversion, listing
from groupkeeper.coordinator.core.behaviour import Behaviour
from groupkeeper.coordinator.core.classic import description, group_view, joining, membership
from groupkeeper.coordinator.core.classic.behaviour import CLASSIC
from groupkeeper.coordinator.core.cluster.group_configs import GroupOverrides
from groupkeeper.coordinator.core.cluster.image import TopicImage, keep_names
from groupkeeper.coordinator.core.compiling import mypyc_attr
from groupkeeper.coordinator.core.consumer import classic_members, leaving
from groupkeeper.coordinator.core.consumer import description as consumer_description
from groupkeeper.coordinator.core.consumer import heartbeat as consumer_heartbeat
from groupkeeper.coordinator.core.consumer.behaviour import CONSUMER
from groupkeeper.coordinator.core.deadlines import Deadline, DeadlineKind
from groupkeeper.coordinator.core.dispatch import ABSENT_GROUP
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.offsets import commit, deletion, fetch, retention, transactions
from groupkeeper.coordinator.core.offsets import sweep as topic_sweep
from groupkeeper.coordinator.core.records import Record
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import Step, Ticket
from groupkeeper.coordinator.core.work import Work, WorkOutcome

MAX_EXPIRIES_PER_STEP = 256
"""The largest number of deadlines in one step. The others stay due for the next step, so that the
loop is not blocked."""

MAX_ITEMS_PER_STEP = 50_000
"""The largest number of topics and partitions that the deadlines of one step examine. If the first
deadline alone has more, the step examines only that one. 50,000 take 40 ms.
"""

HANDLED_IN: Final = (
    adoption,
    classic_members,
    commit,
    consumer_description,
    consumer_heartbeat,
    conversion,
    deletion,
    description,
    fetch,
    group_view,
    joining,
    leaving,
    listing,
    membership,
    transactions,
)
"""The modules with functions that handle requests. Their import registers the functions
(``dispatch.handles``)."""


BEHAVIOUR_OF: Final[dict[GroupType, Behaviour]] = {
    GroupType.CLASSIC: CLASSIC,
    GroupType.CONSUMER: CONSUMER,
}
"""Type of group -> the functions that a shard calls without a request."""


@mypyc_attr(allow_interpreted_subclasses=True)  # simulated worlds subclass it
class Shard(ShardState):
    """One shard of groups. It reads no clock: all times come from the argument ``now``."""

    def new_group(self, group_id: str, group_type: GroupType) -> Group:
        return BEHAVIOUR_OF[group_type].create(group_id, self.tally)

    def members_removed(self, group: Group, *, by_replacement: bool = False) -> bool:
        return conversion.downgrade(self, group, by_replacement=by_replacement)

    def handle(self, request: Request, ticket: Ticket, now: Now) -> Step:
        """Handle a request. Its ticket is answered in this step. If the request is parked, a later
        step answers the ticket.
        """
        self.now = now
        self.step = step = Step()
        group = self.groups.get(request.group_id)  # type: ignore[arg-type]
        handlers = ABSENT_GROUP if group is None else group.handlers
        handlers[type(request)](self, group, request, ticket)
        return step

    def expire(self, now: Now) -> Step:
        """Expire as many due deadlines as fit into a step. Call it again while more are due."""
        self.now = now
        self.step = step = Step()
        left_bytes, left_items = self.limits.max_step_bytes, MAX_ITEMS_PER_STEP
        for count in range(MAX_EXPIRIES_PER_STEP):
            deadline = self.deadlines.pop_due(now.monotonic_ms)
            if deadline is None:
                break
            left_bytes -= self._bound_bytes(deadline)
            left_items -= self._bound_items(deadline)
            if count and (left_bytes < 0 or left_items < 0):
                self.arm(deadline, now.monotonic_ms)
                break
            self._due(deadline)
        return step

    def _bound_bytes(self, deadline: Deadline) -> int:
        """Return an upper bound of the size of the records and events that a deadline causes."""
        if deadline.kind in (DeadlineKind.RETENTION, DeadlineKind.SWEEP):
            return self.limits.max_step_bytes  # their functions limit the size of their step
        group = self.groups.get(deadline.subject[0])
        # At most one record of the group, one event per member, and two events that list members.
        return 0 if group is None else 3 * group.size_bytes + group.assigned_bytes

    def _bound_items(self, deadline: Deadline) -> int:
        """Return an upper bound of the topics and partitions that a deadline examines."""
        group_id, member_id = deadline.subject
        group = self.groups.get(group_id)
        if group is None:
            return 0
        count = BEHAVIOUR_OF[group.group_type].removal_items
        return 0 if count is None else count(group, member_id)

    def _due(self, deadline: Deadline) -> None:
        if deadline.kind is DeadlineKind.RETENTION:
            retention.retention_due(self)
        elif deadline.kind is DeadlineKind.SWEEP:
            topic_sweep.sweep_due(self)
        else:
            group_id, member_id = deadline.subject
            group = self.groups.get(group_id)
            if group is not None:
                due = BEHAVIOUR_OF[group.group_type].due[deadline.kind]
                due(self, group, member_id)

    def next_deadline(self) -> int | None:
        """Return the time of the next call of ``expire`` (monotonic ms), or None if no deadline is
        set. The time may be earlier than the next deadline. O(1).
        """
        return self.deadlines.next_at()

    def work_done(self, work: Work, outcome: WorkOutcome, now: Now) -> Step:
        """Process the outcome of a computation that an earlier step began. If the group no longer
        exists, the outcome is dropped.
        """
        self.now = now
        self.step = step = Step()
        group = self.groups.get(work.group_id)
        if group is not None:
            BEHAVIOUR_OF[group.group_type].work_done(self, group, work, outcome)
        return step

    def topics_changed(self, image: TopicImage, now: Now) -> Step:
        """Use a new image of topics. This and later steps delete the offsets of deleted topics."""
        self.now = now
        self.step = step = Step()
        was, self.image = self.image, image
        # New and larger topics are frequent and delete nothing. So all offsets are examined only if
        # a topic was deleted, or if stored offsets may lack the id of a topic that now exists.
        changed, deleted = image.difference_from(was)
        self.deleted_topics |= deleted
        keep_names(self.deleted_names, was, deleted)
        if deleted or not self.names_without_id.isdisjoint(image.by_name):
            topic_sweep.start_sweep(self)
        for group_id in self.tally.subscribers.of(changed):
            group = self.groups[group_id]
            BEHAVIOUR_OF[group.group_type].topics_changed(self, group)
        return step

    def configs_changed(self, overrides: Mapping[str, GroupOverrides], now: Now) -> Step:
        """Use the new configs of single groups from now on. ``overrides`` has them by group id."""
        self.now = now
        self.step = step = Step()
        changed = [g for g in self.groups if self.overrides.get(g) != overrides.get(g)]
        self.overrides = overrides
        for group_id in changed:
            group = self.groups[group_id]
            BEHAVIOUR_OF[group.group_type].overrides_changed(self, group)
        return step

    def loaded(self, now: Now) -> Step:
        """End a load: create the live state, and start every session with its full length
        (docs/spec/groups.md#restart).
        """
        self.now = now
        self.step = step = Step()
        for group in list(self.groups.values()):
            self._restore(group)
        self.adoptions.sort()
        self.census.count(self.shard_id, self.tally)
        retention.arm(self)
        topic_sweep.start_sweep(self)
        return step

    def resumed(self, stopped_ms: int, now: Now) -> Step:
        """Continue after a time in which the shard answered nothing (docs/design.md#lapses).

        Every session starts again at full length. Parked requests stay parked.
        """
        self.now = now
        self.step = step = Step()
        for group in self.groups.values():
            BEHAVIOUR_OF[group.group_type].resumed(self, group, stopped_ms)
        return step

    def load_group(self, group_id: str, records: Sequence[Record], now: Now) -> Step:
        """Add one group to a shard that already answers. The shard must not know the group yet.

        A storage that loads each group at its first request needs this.
        """
        assert group_id not in self.groups, "the shard has a newer state of this group"
        self.now = now
        self.step = step = Step()
        for record in records:
            self.apply(record)
        group = self.groups.get(group_id)
        if group is not None:
            self._restore(group)
            topic_sweep.sweep_also(self, group_id)
        return step

    def _restore(self, group: Group) -> None:
        BEHAVIOUR_OF[group.group_type].loaded(self, group)

    # --- called by the owner of the shard ---

    def lacks_topic_ids(self, topics: Mapping[str, object]) -> bool:
        """Return True if offsets of these topics (by name) may be stored without a topic id. They
        must then get the ids.
        """
        return self.are_topics_stored and not self.names_without_id.isdisjoint(topics)

    def group_count(self) -> int:
        """Return how many groups the shard has, of all types and states."""
        return len(self.groups)

    def offset_count(self) -> int:
        """Return the number of committed offsets."""
        return self.offsets_held

    def member_count(self) -> int:
        """Return how many members the groups of the shard have together."""
        return self.tally.members

    def groups_by_state(self) -> dict[GroupState, int]:
        """Return the number of groups of all types in each state."""
        counts = dict.fromkeys(GroupState, 0)
        for (_, state), count in self.tally.by_state.items():
            counts[state] += count
        return counts

    def groups_by_type(self) -> dict[tuple[GroupType, GroupState], int]:
        """Return the number of groups of each type in each state."""
        return self.tally.by_state.copy()
