"""Writes samples of the ends of partitions to the event log. Reports compute lag from them.

See docs/design.md#end-samples.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from groupkeeper.coordinator.core.events import EndOffset, EndPartition, EndTopic

if TYPE_CHECKING:
    from groupkeeper.coordinator.cluster.topics import Topics
    from groupkeeper.coordinator.core.events import Event

SAMPLE_PARTITIONS: Final = 1_000
"""The largest number of partitions that one iteration of the event loop samples, and the largest
number that one event contains.
"""


class EndSampler:
    """Writes events with the ends that changed since the last sample. After a load of a shard, it
    writes all ends above 0.
    """

    def __init__(
        self,
        topics: Topics,
        write: Callable[[list[Event]], bool],
        loads: Callable[[], int],
    ) -> None:
        """Start without a sample. ``write`` appends events, and returns False if it could not.
        ``loads`` returns how many loads of shards have succeeded.

        After a load all ends are written again, because a load may lose events.
        """
        self._topics = topics
        self._write = write
        self._loads = loads
        self._loads_seen = -1
        self._sampled: dict[tuple[str, int], int] = {}

    async def run(self, interval_ms: int) -> None:
        """Take samples until cancelled."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for _ in self.sample():
                await asyncio.sleep(0)

    def sample(self) -> Iterator[None]:
        """Take one sample. Yields after each portion, so that the event loop can run."""
        if self._loads_seen != self._loads():
            self._loads_seen = self._loads()
            self._sampled.clear()
        portion: list[tuple[str, str, int, int]] = []
        examined = 0
        by_id = self._topics.image.by_id
        self._sampled = {key: end for key, end in self._sampled.items() if key[0] in by_id}
        for topic_id, info in list(by_id.items()):
            for partition in range(info.partitions):
                end = self._topics.end_offset(topic_id, partition)
                if end >= 0 and end != self._sampled.get((topic_id, partition), 0):
                    portion.append((info.name, topic_id, partition, end))
                examined += 1
                if examined % SAMPLE_PARTITIONS == 0:
                    self._write_portion(portion)
                    portion = []
                    yield
        self._write_portion(portion)

    def _write_portion(self, portion: list[tuple[str, str, int, int]]) -> None:
        if not portion:
            return
        topics: dict[tuple[str, str], list[EndPartition]] = {}
        for name, topic_id, partition, end in portion:
            topics.setdefault((name, topic_id), []).append(EndPartition(partition, end))
        event = EndOffset(topics=[EndTopic(*key, rows) for key, rows in topics.items()])
        if self._write([event]):
            for _, topic_id, partition, end in portion:
                self._sampled[topic_id, partition] = end
