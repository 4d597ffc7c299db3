"""A store in memory that tells what a group has only when it is asked for it by name
(``storage.base.LoadsGroups``), and that keeps everything else, topics included.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence

from groupkeeper.coordinator.core.records import Record, SavedGroup
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.base import ShardAppend, ShardId
from tests.helpers.storage.faulty_storage import Gate


class NamedGroups(MemoryOffsetStorage):
    """Holds up reads of single groups, and does to them what a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[str] = set()
        """Groups that a load tells of."""
        self.gates: list[Gate] = []
        """The next reads of a group wait for these."""
        self.found: dict[str, Sequence[Record]] = {}
        """What a read returns in place of what is stored."""
        self.load_gates: list[Gate] = []
        """The next loads wait for these."""
        self.append_errors: list[Exception] = []
        """What the next appends raise."""

    async def load(
        self, shards: Collection[ShardId]
    ) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        """Yield what needs no name, and groups that are known."""
        if self.load_gates:
            await self.load_gates.pop(0).wait()
        async for shard, records in super().load(shards):
            yield (
                shard,
                [r for r in records if not isinstance(r, SavedGroup) or r.group_id in self.known],
            )

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        """Store the items, or fail."""
        if self.append_errors:
            raise self.append_errors.pop(0)
        return await super().append(items)

    async def load_group(self, shard: ShardId, group_id: str) -> Sequence[Record]:
        """Read one group."""
        if self.gates:
            await self.gates.pop(0).wait()
        if group_id in self.found:
            return self.found[group_id]
        keyed = self._shards.get(shard)
        saved = None if keyed is None else keyed.saved(group_id)
        return [] if saved is None else [saved]
