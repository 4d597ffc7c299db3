"""A reader of a partition that is claimed: it knows where it was, and when it has to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from groupkeeper.clients.readers.claim import Claim
from groupkeeper.clients.readers.closing import raise_all
from groupkeeper.clients.readers.errors import PartitionLost
from groupkeeper.clients.readers.message_iter import PartitionIter
from groupkeeper.clients.readers.partition_log import EARLIEST, LATEST
from groupkeeper.clients.readers.reader import Reader

MOST_OFFSET = 2**63 - 1
CLOSE_PATIENCE_S = 3.0
"""How long a close waits for a Consul that is away; its election takes about that long."""


class GroupReader(Reader):
    """Reads the partition that its group claimed; made by ``ConsulGroup``."""

    def __init__(
        self, brokers: str | Sequence[str], claim: Claim, options: Mapping[str, Any]
    ) -> None:
        super().__init__(brokers, claim.topic, claim.partition, **options)
        self._claim = claim
        self._stopped = asyncio.Event()
        claim.on_end = self._have_all_end

    def read(self, offset: int | None = None) -> PartitionIter:
        """Return a new iterator from this offset on; without one from the position that was last
        committed by whoever it was, or else from the first message.

        It ends with PartitionLost when the partition may not be read here any more.
        """
        self._claim.check()
        if offset is None:
            return self._iterate(self._claim.position, self)
        if offset < 0 and offset not in (EARLIEST, LATEST):
            raise ValueError(f"offset is {offset}: 0 or more, EARLIEST or LATEST is wanted")
        return self._iterate(offset, self)

    async def commit(self, offset: int) -> None:
        """Keep this offset as where the next reader of the partition begins: behind the message
        that was processed last.

        Raises PartitionLost if the partition is no longer ours; then nothing was kept.
        """
        if not 0 <= offset <= MOST_OFFSET:
            raise ValueError(f"offset is {offset}: 0 to {MOST_OFFSET} is wanted")
        await self._claim.commit(offset)

    async def position(self) -> int:
        """Return the offset that was last committed; EARLIEST where none was."""
        return await self._claim.position()

    async def close(self) -> None:
        """End every iterator, give the partition back, and raise an ExceptionGroup of the errors
        that were met and that nobody was given.
        """
        errors = await self._end_all()
        self._claim.end(PartitionLost(self.topic, self.partition, "its reader was closed"))
        await self._claim.release(CLOSE_PATIENCE_S)
        raise_all(errors)

    @property
    def is_lost(self) -> bool:
        """True if the partition is not ours any more."""
        return self._claim.is_lost

    def look(self) -> None:
        self._claim.look()

    def over(self) -> None:
        if not any(each.is_reading for each in self._open):
            self._stopped.set()

    async def hand_over(self, error: PartitionLost) -> None:
        """Have the reading end, wait until whoever reads has come back from the last message, and
        give the partition up.
        """
        self._claim.end(error)
        self.over()
        await self._stopped.wait()
        await self._claim.release()
        await self._end_all()

    def _have_all_end(self, error: PartitionLost) -> None:
        self._stopped.clear()
        for iterator in list(self._open):
            iterator.fail(error)
