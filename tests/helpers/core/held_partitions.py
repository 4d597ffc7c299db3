"""Partitions as a flat set, and by topic as the reconciliation has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from groupkeeper.coordinator.core.consumer_records import PartitionEpochs, Partitions

Partition: TypeAlias = tuple[str, int]
"""(topic id, number)."""


def by_topic(partitions: Iterable[Partition]) -> dict[str, set[int]]:
    """Return topic id -> numbers."""
    found: dict[str, set[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, set()).add(number)
    return found


def targeted(partitions: Iterable[Partition]) -> Partitions:
    """Return these partitions as a target has them."""
    return {topic: tuple(sorted(numbers)) for topic, numbers in by_topic(partitions).items()}


def held(partitions: Iterable[Partition], epoch: int) -> PartitionEpochs:
    """Return these partitions as if a member had got all of them at this epoch."""
    return {
        topic: tuple([(number, epoch) for number in numbers])
        for topic, numbers in sorted(targeted(partitions).items())
    }


def flat(some: PartitionEpochs) -> dict[Partition, int]:
    """Return (topic id, number) -> the epoch at which the member got it."""
    assert all(some.values()), f"a topic without partitions: {some}"
    assert list(some) == sorted(some), f"topics out of order: {some}"
    for parts in some.values():
        assert list(parts) == sorted(parts), f"partitions out of order: {some}"
    return {(topic, number): epoch for topic, parts in some.items() for number, epoch in parts}
