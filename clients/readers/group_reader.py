"""A reader of a claimed partition. It starts at the committed position and stops when the claim
ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from groupkeeper.clients.readers.claim import Claim
from groupkeeper.clients.readers.closing import raise_all
from groupkeeper.clients.readers.errors import PartitionLost
from groupkeeper.clients.readers.message import MOST_OFFSET
from groupkeeper.clients.readers.message_iter import PartitionIter
from groupkeeper.clients.readers.reader import Reader, checked_start

CLOSE_PATIENCE_S = 3.0
"""How long a close waits if Consul does not answer. The election of a leader of Consul takes about
that long.
"""


class GroupReader(Reader):
    """Reads a partition that this member has claimed. ``ConsulGroup`` creates it."""

    def __init__(
        self, brokers: str | Sequence[str], claim: Claim, options: Mapping[str, Any]
    ) -> None:
        super().__init__(brokers, claim.topic, claim.partition, **options)
        self._claim = claim
        self._stopped = asyncio.Event()
        claim.on_end = self._have_all_end

    def read(self, offset: int | None = None) -> PartitionIter:
        """Return a new iterator that starts at ``offset``.

        Without ``offset`` it starts at the last committed position, whichever member committed it,
        or at the first message if there is none. The iterator raises PartitionLost when this member
        must not read the partition any more.
        """
        self._claim.check()
        if offset is None:
            return self._iterate(self._claim.position, self)
        return self._iterate(checked_start(offset), self)

    async def commit(self, offset: int) -> None:
        """Store the offset at which the next reader of the partition starts. This is the offset
        after the last processed message.

        Raises PartitionLost if this member no longer owns the partition. Nothing is stored then.
        """
        if not 0 <= offset <= MOST_OFFSET:
            raise ValueError(f"offset is {offset}: must be 0 to {MOST_OFFSET}")
        await self._claim.commit(offset)

    async def position(self) -> int:
        """Return the last committed offset. Return EARLIEST if there is none."""
        return await self._claim.position()

    async def close(self) -> None:
        """End every iterator and release the partition. Raises an ExceptionGroup of the errors that
        no call has raised yet.
        """
        errors = await self._end_all()
        self._claim.end(PartitionLost(self.topic, self.partition, "its reader was closed"))
        await self._claim.release(CLOSE_PATIENCE_S)
        raise_all(errors)

    @property
    def is_lost(self) -> bool:
        """True if this member no longer owns the partition."""
        return self._claim.is_lost

    def look(self) -> None:
        self._claim.look()

    def over(self) -> None:
        if not any(each.is_reading for each in self._open):
            self._stopped.set()

    async def hand_over(self, error: PartitionLost) -> None:
        """Stop reading with ``error``, and wait until the last message is processed. Then release
        the partition.
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
