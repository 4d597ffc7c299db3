"""Partitions as a flat set, and by topic as the reconciliation has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from groupkeeper.coordinator.core.consumer.reconciliation import HeldPartitions

Partition: TypeAlias = tuple[str, int]
"""(topic id, number)."""


def by_topic(partitions: Iterable[Partition]) -> dict[str, set[int]]:
    """Return topic id -> numbers."""
    found: dict[str, set[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, set()).add(number)
    return found


def held(partitions: Iterable[Partition], epoch: int) -> HeldPartitions:
    """Return these partitions as if a member had got all of them at this epoch."""
    return {topic: dict.fromkeys(numbers, epoch) for topic, numbers in by_topic(partitions).items()}


def flat(some: HeldPartitions) -> dict[Partition, int]:
    """Return (topic id, number) -> the epoch at which the member got it."""
    assert all(some.values()), f"a topic without partitions: {some}"
    return {
        (topic, number): epoch for topic, parts in some.items() for number, epoch in parts.items()
    }
