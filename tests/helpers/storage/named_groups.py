"""A store in memory that loads single groups (``storage.base.LoadsGroups``).

It returns a group only if it is asked for it by name. It keeps everything else, also topics.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence

from groupkeeper.coordinator.core.records import Record, SavedGroup
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.base import ShardAppend, ShardId
from tests.helpers.storage.faulty_storage import Gate


class NamedGroups(MemoryOffsetStorage):
    """Reads of single groups can wait, or return what a test chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[str] = set()
        """The groups that a load returns without a name."""
        self.gates: list[Gate] = []
        """A gate for each of the next reads of a group."""
        self.found: dict[str, Sequence[Record]] = {}
        """Group id -> the records that a read returns instead of the stored ones."""
        self.load_gates: list[Gate] = []
        """A gate for each of the next loads."""
        self.append_errors: list[Exception] = []
        """The error of each of the next appends."""

    async def load(
        self, shards: Collection[ShardId]
    ) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        """Yield everything but groups, and the groups in ``known``."""
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
