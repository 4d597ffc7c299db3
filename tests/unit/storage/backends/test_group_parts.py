"""How a large group is divided into parts that are quick to encode."""

from __future__ import annotations

from groupkeeper.coordinator.core.groups.group import offset_bytes, topic_bytes
from groupkeeper.coordinator.core.records import SavedGroup, SavedOffset
from groupkeeper.storage.backends.group_parts import GroupWalk, Offsets

PART_BYTES = 10_000


def parts_of(offsets: Offsets) -> list[Offsets]:
    group, walk, parts = SavedGroup("g", None, offsets), GroupWalk(), []
    while not walk.is_done:
        parts.append(walk.take(group, PART_BYTES))
    return parts


def size_of(part: Offsets) -> int:
    return sum(
        topic_bytes(topic) + sum(offset_bytes(stored.metadata) for stored in partitions.values())
        for topic, partitions in part.items()
    )


def test_the_names_of_topics_count_in_a_part() -> None:
    """A group may have one offset in each of many topics."""
    offset = SavedOffset(7, -1, "", 0, -1, "")
    names = [f"{number:04}" + "x" * 240 for number in range(200)]
    parts = parts_of({name: {0: offset} for name in names})
    assert [topic for part in parts for topic in part] == names
    most = topic_bytes(names[0]) + offset_bytes("")
    assert max(size_of(part) for part in parts) < PART_BYTES + most
