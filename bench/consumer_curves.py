"""Measure what consumer groups (KIP-848) cost in the pure core while members and partitions grow.

    python -m bench.consumer_curves

It measures CPU time, so that other load on the machine does not count much. Times are the best of
some rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.consumer.assigning import (
    GroupSpec,
    assign_range,
    assign_uniform,
)
from groupkeeper.coordinator.core.consumer.assignment_work import AssignmentWork, compute
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.consumer import ConsumerGroupHeartbeat
from groupkeeper.coordinator.core.shard import Shard

MEMBERS: Final = (1, 10, 100, 1_000, 10_000)
PARTITIONS: Final = (100, 1_000, 10_000, 100_000)
TOPICS: Final = 10
ROUNDS: Final = 5
CLIENT: Final = Client("consumer-1", "/127.0.0.1")


class Group:
    """A consumer group in a shard of its own, and its members."""

    def __init__(self, members: int, partitions: int) -> None:
        """Let all members join, and wait until each has its share."""
        self._now = Now(60_000, 1_700_000_000_000)
        self._limits = CoreLimits()
        self._shard = Shard(
            0, self._limits, TopicImage.of(TopicInfo("orders", "A" * 22, partitions))
        )
        self._epochs: dict[str, int] = {}
        self._owned: dict[str, Any] = {}
        self.names = [f"load-{number:08}-0123-4567-89ab-cdef01234567" for number in range(members)]
        for name in self.names:
            self._send(self.join(name))
        self._pass_interval()
        while any([self._send(self._acknowledgement(name)) for name in self.names]):  # noqa: C419 - all send
            pass

    def _pass_interval(self) -> None:
        """Advance the time by the assignment interval. Then the next target may be computed."""
        wait_ms = self._limits.consumer_assignment_interval_ms
        self._now = Now(self._now.monotonic_ms + wait_ms, self._now.wall_ms + wait_ms)

    def heartbeat(self, name: str, **changes: Any) -> ConsumerGroupHeartbeat:
        """Return a heartbeat that changes nothing, except for the given changes."""
        fields: dict[str, Any] = {
            "member_epoch": self._epochs.get(name, 0),
            "group_instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "pattern_error": None,
            "server_assignor": None,
            "owned": None,
            "new_member_id": "",
            "client": CLIENT,
        }
        return ConsumerGroupHeartbeat("g", name, **{**fields, **changes})

    def join(self, name: str) -> ConsumerGroupHeartbeat:
        """Return the first heartbeat of a member."""
        names = ("orders",)
        return self.heartbeat(
            name, rebalance_timeout_ms=60_000, subscribed_topic_names=names, owned=()
        )

    def _acknowledgement(self, name: str) -> ConsumerGroupHeartbeat:
        return self.heartbeat(name, owned=self._owned.get(name, ()))

    def _send(self, request: ConsumerGroupHeartbeat) -> bool:
        """Send a heartbeat, and follow the answer. Return True if the epoch or the assignment is
        new.
        """
        name = request.member_id
        step = self._shard.handle(request, name, self._now)
        results = [step.answer] if step.answer is not None else [r.result for r in step.replies]
        for work in step.work:
            assert isinstance(work, AssignmentWork), "nobody subscribes to a pattern"
            outcome = compute(work.assignor, work.spec)
            done = self._shard.work_done(work, outcome, self._now)
            results += [reply.result for reply in done.replies if reply.ticket == name]
        (result,) = results
        assert not result.error, result
        is_new = self._epochs.get(name) != result.member_epoch
        self._epochs[name] = result.member_epoch
        if result.assignment is not None:
            self._owned[name] = result.assignment
            return True
        return is_new

    def heartbeat_us(self) -> float:
        """Return the time of a heartbeat that changes nothing, as the mean over all members."""
        requests = [self.heartbeat(name) for name in self.names]
        handle, now = self._shard.handle, self._now
        turns = max(1, 2_000 // len(requests))

        def all_of_them() -> None:
            for _ in range(turns):
                for request in requests:
                    handle(request, None, now)

        return best_ms(all_of_them) * 1e3 / turns / len(requests)

    def join_ms(self) -> float:
        """Return the time of the first heartbeat of one more member. It includes the computation of
        a new target, unless the target is so large that another process computes it.
        """
        self._pass_interval()
        request = self.join("one-more")
        began = time.process_time()
        self._shard.handle(request, None, self._now)
        return (time.process_time() - began) * 1e3


def best_ms(work: Callable[[], object]) -> float:
    """Return the CPU time of the best round, in milliseconds."""
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took) * 1e3


def specs(members: int, partitions: int) -> Iterator[GroupSpec]:
    """Yield a group before its first target, and the same group when one more member has joined.
    All members have one subscription.
    """
    counts = [partitions // TOPICS] * TOPICS
    every = [tuple(range(TOPICS))]
    fresh = GroupSpec(counts, every, [0] * members, [[]] * members)
    yield fresh
    yield GroupSpec(counts, every, [0] * (members + 1), [*assign_uniform(fresh), []])


def main() -> None:
    """Print both tables."""
    print("| members, 1,000 partitions | unchanged heartbeat, us | one more joins, ms |")
    print("| ---: | ---: | ---: |")
    for members in MEMBERS:
        group = Group(members, 1_000)
        print(f"| {members:,} | {group.heartbeat_us():.2f} | {group.join_ms():.2f} |", flush=True)
    print("\n| members | partitions | `range`, ms | `uniform`, first, ms | one more member, ms |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for members in MEMBERS[2:]:
        for partitions in PARTITIONS:
            fresh, joined = specs(members, partitions)
            works = (
                partial(assign_range, fresh),
                partial(assign_uniform, fresh),
                partial(assign_uniform, joined),
            )
            figures = " | ".join(f"{best_ms(work):.2f}" for work in works)
            print(f"| {members:,} | {partitions:,} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
