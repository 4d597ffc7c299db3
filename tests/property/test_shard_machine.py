"""Any sequence of requests, of time passing and of restarts keeps what a shard promises.

After every rule: each ticket was answered at most once; the structural invariants hold; log, fold
and live state hold the same; generations never go back; nobody who kept its session was evicted for
it. At the end time passes until nothing is left to happen: every ticket was answered exactly once,
and groups without living members are Empty.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from groupkeeper.coordinator.core.cluster.image import TopicInfo
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberEvicted
from groupkeeper.coordinator.core.records import GroupRemoved
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeavingMember,
    SyncGroup,
)
from groupkeeper.coordinator.core.requests.offsets import OffsetCommitResult
from tests.helpers.core.examples import examples
from tests.helpers.core.shard_driver import (
    PAYMENTS,
    SESSION_MS,
    Call,
    ShardDriver,
    protocols,
)

GROUPS = st.sampled_from(["a", "b", ""])
INSTANCES = st.sampled_from([None, None, None, "i1", "i2"])
OFFERS = st.sampled_from(
    [
        protocols("range"),
        protocols("range", "sticky"),
        protocols("sticky", "range"),
        protocols("range", subscription=b"other"),
        protocols("sticky"),
        protocols("range", "range", "sticky"),
    ]
)
PAUSES = st.sampled_from([0, 1, 1_000, 3_000, 5_000, 9_999, 10_000, 60_000, 300_000, 700_000])
ALIVE = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)


class WatchingDriver(ShardDriver):
    """Looks at every step at the moment when it is made."""

    def __init__(self, **fields: Any) -> None:
        self.generations: dict[str, int] = {}
        self.touched: dict[tuple[str, str], int] = {}
        """(group id, member id) -> when its session was last restarted, by what it was answered."""
        self.sent_at: dict[int, int] = {}
        """Call number -> how many steps there were when it was sent."""
        super().__init__(**fields)

    def _take(self, step):
        for reply in step.replies:
            self._watch_reply(reply)
        for record in step.records:
            if isinstance(record, GroupRemoved):
                self.generations.pop(record.group_id, None)
        for event in step.events:
            if isinstance(event, MemberEvicted) and event.reason == "session_timeout":
                last = self.touched.get((event.group_id, event.member_id), 0)
                assert self.now.monotonic_ms - last >= SESSION_MS, "evicted within its session"
        return super()._take(step)

    def _watch_reply(self, reply):
        request, result = reply.ticket.request, reply.result
        if isinstance(request, JoinGroup):
            assert isinstance(result, JoinGroupResult)
            if result.error is ErrorCode.NONE:
                self._watch_generation(request, result)
        elif isinstance(request, Heartbeat) and result in ALIVE:
            self.touched[request.group_id, request.member_id] = self.now.monotonic_ms
        elif isinstance(request, SyncGroup) and result.error is ErrorCode.NONE:
            self._watch_sync(request, reply.ticket)

    def _watch_sync(self, request, call):
        # A sync that was parked restarts the session; an immediate answer does not.
        if self.sent_at[call.number] < len(self.steps):
            self.touched[request.group_id, request.member_id] = self.now.monotonic_ms

    def _watch_generation(self, request, result):
        before = self.generations.get(request.group_id, 0)
        assert result.generation_id >= before, "the generation went back"
        if result.generation_id > before:
            self.touched[request.group_id, result.member_id] = self.now.monotonic_ms
        self.generations[request.group_id] = result.generation_id

    def send(self, request) -> Call:
        self.sent_at[len(self.calls)] = len(self.steps)
        return super().send(request)

    def reload(self, **fields):
        step = super().reload(**fields)
        self.generations = {
            group_id: saved.metadata.generation_id
            for group_id, saved in self.saved().items()
            if saved.metadata is not None
        }
        for group_id in self.generations:
            for member in self.describe(group_id).members:
                self.touched[group_id, member.member_id] = self.now.monotonic_ms
        return step


class ShardMachine(RuleBasedStateMachine):
    """Clients that do anything at all, at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = WatchingDriver(group_max_size=4)
        self.ids: list[tuple[str, str, str | None]] = []
        self.topics_made = 0

    @initialize(delay_ms=st.sampled_from([0, 3_000]), members=st.integers(0, 3))
    def some_groups_are_stable(self, delay_ms, members):
        self.driver = WatchingDriver(group_max_size=4, initial_rebalance_delay_ms=delay_ms)
        for group_id in ("a", "b")[:members]:
            for at in range(members):
                self.join_as_nobody(group_id, "i1" if at == 1 else None, protocols("range"), 3)
            self.everyone_settles(group_id)

    def someone(self, data: st.DataObject) -> tuple[str, str, str | None]:
        """A group, and a member id that is or was a member's there, with its instance."""
        members = [
            (group_id, member.member_id, member.group_instance_id)
            for group_id in self.driver.list_groups()
            for member in self.driver.describe(group_id).members
        ]
        known = [*members, *self.ids[-4:]] or [("a", "made-up", None)]
        return data.draw(st.sampled_from(known))

    def generation(self, data: st.DataObject, group_id: str) -> int:
        """Nearly always the current one."""
        off = data.draw(st.sampled_from([0, 0, 0, 0, 0, -1, 1]))
        return self.driver.generations.get(group_id, 0) + off

    @rule(group_id=GROUPS, instance_id=INSTANCES, offer=OFFERS, version=st.sampled_from([3, 8, 9]))
    def join_as_nobody(self, group_id, instance_id, offer, version):
        call = self.driver.join(
            group_id, group_instance_id=instance_id, protocols=offer, version=version
        )
        self.ids.append((group_id, call.request.new_member_id, instance_id))

    @rule(data=st.data(), offer=OFFERS)
    def join_again(self, data, offer):
        group_id, member_id, instance_id = self.someone(data)
        self.driver.join(group_id, member_id, group_instance_id=instance_id, protocols=offer)

    @rule(group_id=GROUPS)
    def everyone_joins_again(self, group_id):
        for member in self.driver.describe(group_id).members:
            self.driver.join(group_id, member.member_id, group_instance_id=member.group_instance_id)

    @rule(data=st.data())
    def sync(self, data):
        group_id, member_id, instance_id = self.someone(data)
        assignments = {m: m.encode() for _, m, _ in self.ids[-4:]}
        self.driver.sync(
            group_id,
            member_id,
            self.generation(data, group_id),
            group_instance_id=instance_id,
            assignments=assignments,
        )

    @rule(group_id=GROUPS)
    def everyone_settles(self, group_id):
        """All join, wait until that is over, and sync."""
        self.everyone_joins_again(group_id)
        self.driver.advance(6_000)
        self.everyone_syncs(group_id)

    @rule(data=st.data(), offer=OFFERS, version=st.sampled_from([8, 9]))
    def static_member_restarts(self, data, offer, version):
        group_id, _, instance_id = self.someone(data)
        if instance_id is not None:
            self.join_as_nobody(group_id, instance_id, offer, version)

    @rule(group_id=GROUPS)
    def everyone_syncs(self, group_id):
        members = self.driver.describe(group_id).members
        assignments = {m.member_id: m.member_id.encode() for m in members}
        for member in members:
            self.driver.sync(
                group_id,
                member.member_id,
                self.driver.generations.get(group_id, 0),
                assignments=assignments,
            )

    @rule(data=st.data())
    def heartbeat(self, data):
        group_id, member_id, instance_id = self.someone(data)
        self.driver.heartbeat(group_id, member_id, self.generation(data, group_id), instance_id)

    @rule(group_id=GROUPS, times=st.integers(1, 30))
    def everyone_heartbeats_for_a_while(self, group_id, times):
        for _ in range(times):
            self.driver.advance(SESSION_MS // 2)
            for member in self.driver.describe(group_id).members:
                self.driver.heartbeat(
                    group_id, member.member_id, self.driver.generations.get(group_id, 0)
                )

    @rule(data=st.data(), count=st.integers(1, 3))
    def leave(self, data, count):
        leaving = [self.someone(data) for _ in range(count)]
        group_id = leaving[0][0]
        members = [
            LeavingMember(data.draw(st.sampled_from([m, m, ""])), i)
            for g, m, i in leaving
            if g == group_id
        ]
        self.driver.leave(group_id, *members)

    @rule(
        data=st.data(),
        is_member=st.booleans(),
        topics=st.dictionaries(
            st.sampled_from(["orders", "payments", "nowhere"]),
            st.dictionaries(st.integers(-1, 5), st.integers(-2, 40), min_size=1, max_size=3),
            max_size=2,
        ),
        retention_ms=st.sampled_from([-1, -1, 1, 100_000]),
    )
    def commit(self, data, is_member, topics, retention_ms):
        group_id, member_id, instance_id = self.someone(data)
        fields: dict[str, Any] = {"retention_ms": retention_ms}
        if is_member:
            fields |= {
                "member_id": member_id,
                "group_instance_id": instance_id,
                "generation_id": self.generation(data, group_id),
            }
        call = self.driver.commit(group_id, topics, **fields)
        if call.result == OffsetCommitResult(ErrorCode.NONE):
            # Kept, whatever else happens in between: until something else is written there.
            stored = self.driver.fetch(group_id, {t: list(p) for t, p in topics.items()})
            assert stored.offsets() == {(t, n): o for t, p in topics.items() for n, o in p.items()}

    @rule(group_id=GROUPS, by_id=st.booleans())
    def read(self, group_id, by_id):
        self.driver.list_groups()
        self.driver.fetch(group_id, None, by_topic_id=by_id)

    @rule(ms=PAUSES)
    def advance(self, ms):
        self.driver.advance(ms)

    @rule(from_fold=st.booleans())
    def restart(self, from_fold):
        self.driver.reload(from_fold=from_fold)

    @rule()
    def orders_is_made_again(self):
        """Under a new id, as ever."""
        self.topics_made += 1
        self.driver.change_topics(TopicInfo("orders", f"{self.topics_made:022}", 12), PAYMENTS)
        self.driver.advance(1_000)

    @invariant()
    def log_fold_and_live_state_hold_the_same(self):
        self.driver.check_replay()

    @invariant()
    def whoever_is_parked_will_be_woken(self):
        due = self.driver.shard.next_deadline()
        assert due is None or due > self.driver.now.monotonic_ms
        if not self.driver.everything_answered():
            assert due is not None

    @invariant()
    def members_of_stable_groups_have_what_was_saved(self):
        for group_id in self.driver.list_groups({"stable"}):
            saved = self.driver.saved()[group_id].metadata
            described = self.driver.describe(group_id)
            assert {m.member_id: m.member_assignment for m in described.members} == {
                m.member_id: m.assignment for m in saved.members
            }
            assert described.protocol_name == saved.protocol_name

    def teardown(self):
        self.driver.advance(2 * 3_600_000)
        assert self.driver.everything_answered()
        for call in self.driver.calls:
            assert call.dropped is (call.reply is None)
        assert {str(g.group_state) for g in self.driver.list_groups().values()} <= {"Empty"}
        self.driver.check_replay()


TestShardMachine = ShardMachine.TestCase
TestShardMachine.settings = settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=True,
    database=None,
    stateful_step_count=50,
)
