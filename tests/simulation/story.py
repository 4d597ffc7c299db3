"""Histories written by hand, for tests of the checker."""

from __future__ import annotations

from itertools import pairwise

import pytest

from groupkeeper.coordinator.core.records import (
    CommittedTopic,
    GroupRecord,
    OffsetsCommitted,
    SavedMember,
)
from groupkeeper.protocol.consumer_protocol import ConsumerAssignment, encode_assignment
from groupkeeper.storage.base import Batch
from tests.simulation.checker import check_history
from tests.simulation.history import Durable, Op

KEY = ("g", "orders", 0)


class Story:
    """The stored data and the answers, in the order of the calls."""

    def __init__(self) -> None:
        self.durable = Durable()
        self.history: list[Op] = []
        self.now_ms = 0.0
        self.durable.granted(0, 1)

    def store(self, *records, events=()):
        self.durable.stored(0, 1, [Batch(records, list(events))])

    def commit(
        self,
        *offsets,
        generation=-1,
        member="",
        previous=None,
        epoch=-1,
        metadata="",
        expire_ms=-1,
    ):
        """Make a commit durable at 1,000 ms. It may name its partition several times."""
        before = self.durable.value(KEY) if previous is None else previous
        parts = [
            (0, offset, replaced, epoch, metadata)
            for replaced, offset in pairwise((before, *offsets))
        ]
        topics = [CommittedTopic("orders", "t", parts)]
        self.store(
            OffsetsCommitted(
                "g", generation, member, None, "app", "", "", 1_000, expire_ms, topics
            ),
        )

    def generation(self, number, **assignments):
        """Sync a generation."""
        members = tuple(
            SavedMember(name, None, "app", "", 1, 1, b"", assignment(*numbers))
            for name, numbers in assignments.items()
        )
        self.store(GroupRecord("g", "consumer", number, "range", "m1", 0, members))

    def ask(self, request, **fields):
        self.now_ms += 1
        op = Op("app", request, self.now_ms, self.durable.position, **fields)
        self.history.append(op)
        return op

    def answer(self, op, result, *, void_at=None):
        op.result, op.void_at = result, void_at
        self.now_ms += 1
        op.answered_ms, op.answered_at = self.now_ms, self.durable.position
        return op

    def check(self):
        assert self.durable.problems == []
        check_history(self.durable, self.history)

    def fails(self, match):
        with pytest.raises(AssertionError, match=match):
            self.check()


def assignment(*numbers):
    return encode_assignment(ConsumerAssignment(1, {"orders": list(numbers)}))
