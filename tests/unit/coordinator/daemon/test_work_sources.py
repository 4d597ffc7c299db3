"""What /metrics shows of the work that the core asks for."""

from __future__ import annotations

from groupkeeper.coordinator.daemon.sources import metric_sources
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.server.stats import ServerStats
from groupkeeper.storage.backends.memory import MemoryOffsetStorage


def test_assignments_are_counted_by_assignor_and_outcome():
    storage = MemoryOffsetStorage()
    coordinator = GroupCoordinator(storage)
    sources = metric_sources(ServerStats(), coordinator, storage, "memory")
    work = coordinator.workshop
    work.assignments.outcomes["uniform", "computed"] += 2
    work.assignments.outcomes["theirs", "timed_out"] += 1
    work.assignments.seconds["uniform"] += 0.5
    assert work.patterns.error("orders.*") is None
    assert sources["consumer_assignments"]() == {
        ("uniform", "computed"): 2,
        ("theirs", "timed_out"): 1,
    }
    assert sources["consumer_assignment_seconds"]() == {("uniform",): 0.5}
    assert sources["consumer_work_waiting"]() == {("assignment",): 0, ("patterns",): 0}
    assert sources["consumer_patterns"]() == 1
