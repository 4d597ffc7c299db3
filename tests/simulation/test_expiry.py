"""Worlds check when offsets may expire: by docs/spec/offsets.md#expiry, from the state before their
deletion.
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.events import LostPartition, LostTopic, OffsetExpired
from groupkeeper.coordinator.core.records import (
    CommittedTopic,
    GroupConfigs,
    GroupRecord,
    GroupRemoved,
    OffsetsCommitted,
    OffsetsRemoved,
    SavedMember,
)
from groupkeeper.protocol.consumer_protocol import Subscription, encode_subscription
from groupkeeper.storage.base import Batch
from tests.simulation.checker import check_expired
from tests.simulation.history import Durable

RETENTION_MS = 10_000


class Group:
    """The durable data of a group with one committed offset, 5."""

    def __init__(self) -> None:
        self.durable = Durable()
        self.durable.granted(0, 1)

    def store(self, *records, events=()):
        self.durable.stored(0, 1, [Batch(records, list(events))])

    def commit(self, at_ms, *, expire_ms=-1):
        topics = [CommittedTopic("orders", "t", [(0, 5, -1, -1, "")])]
        self.store(OffsetsCommitted("g", -1, "", None, "app", "", "", at_ms, expire_ms, topics))

    def become_empty(self, at_ms, protocol_type="consumer"):
        self.store(GroupRecord("g", protocol_type, 2, None, None, at_ms, ()))

    def expire(self, now_ms, *, is_last=True):
        """Delete the offset, and its group if it was the last one. Return the failures."""
        self.durable.on_event = lambda event: check_expired(
            self.durable, event, now_ms, RETENTION_MS
        )
        lost = [LostTopic("orders", "t", [LostPartition(0, 5, -1, "", 0)])]
        gone = [GroupRemoved("g")] if is_last else []
        removed = OffsetsRemoved("g", [("orders", 0)])
        self.store(removed, *gone, events=[OffsetExpired(group_id="g", topics=lost)])
        return [problem.rsplit(": ", 1)[1] for problem in self.durable.problems]


@pytest.fixture
def group():
    return Group()


def early(ms):
    return [f"partition 0 expired {ms} ms early"] if ms else []


@pytest.mark.parametrize("early_ms", [0, 1])
def test_an_offset_without_a_group_expires_after_its_commit(group, early_ms):
    group.commit(1_000)
    assert group.expire(11_000 - early_ms) == early(early_ms)


@pytest.mark.parametrize("early_ms", [0, 1])
def test_an_offset_of_an_empty_group_expires_after_it_became_empty(group, early_ms):
    group.commit(0)
    group.become_empty(2_000)
    assert group.expire(12_000 - early_ms) == early(early_ms)


@pytest.mark.parametrize("early_ms", [0, 1])
@pytest.mark.parametrize("is_last", [True, False])
def test_so_does_one_that_was_committed_since(group, is_last, early_ms):
    """This holds even if its group and its record are deleted in the same batch."""
    group.become_empty(2_000)
    group.commit(9_000)
    assert group.expire(12_000 - early_ms, is_last=is_last) == early(early_ms)


@pytest.mark.parametrize(("at_ms", "protocol_type"), [(2_000, None), (-1, "consumer")])
def test_a_group_counts_only_where_it_had_members_and_tells_since_when_it_is_empty(
    group, at_ms, protocol_type
):
    group.become_empty(at_ms, protocol_type)
    group.commit(9_000)
    assert group.expire(12_000) == early(7_000)


def test_a_group_that_is_gone_does_not_count(group):
    group.become_empty(2_000)
    group.store(GroupRemoved("g"))
    group.commit(9_000)
    assert group.expire(12_000) == early(7_000)


@pytest.mark.parametrize("early_ms", [0, 1])
def test_the_retention_of_a_commit_overrides_that_of_its_group(group, early_ms):
    group.become_empty(2_000)
    group.commit(3_000, expire_ms=40_000)
    assert group.expire(40_000 - early_ms) == early(early_ms)


@pytest.mark.parametrize(("minutes", "early_ms"), [("0", 0), ("60", 10_000)])
def test_a_shorter_retention_that_was_set_for_the_group_may_hold(group, minutes, early_ms):
    group.store(GroupConfigs("g", {"offsets.retention.minutes": minutes}))
    group.commit(1_000)
    assert group.expire(1_000) == early(early_ms)


@pytest.mark.parametrize(
    ("consumed", "problems"), [("orders", ["expired, and is consumed"]), ("others", [])]
)
def test_an_offset_that_members_consume_does_not_expire(group, consumed, problems):
    subscription = encode_subscription(Subscription(1, [consumed]))
    member = SavedMember("m1", None, "app", "", 1, 1, subscription, b"")
    group.store(GroupRecord("g", "consumer", 1, "range", "m1", 0, (member,)))
    group.commit(0, expire_ms=0)
    assert group.expire(50_000, is_last=False) == problems
