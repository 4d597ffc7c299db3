"""The right to read one partition: the lock in Consul under the session of a member."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from groupkeeper.clients.readers.errors import PartitionLost
from groupkeeper.clients.readers.group_keys import GroupKeys, read_position
from groupkeeper.clients.readers.partition_log import EARLIEST
from groupkeeper.storage.connections.backoff import Backoff
from groupkeeper.storage.connections.consul import ConsulClient, ConsulUnavailable, SessionGone
from groupkeeper.storage.connections.consul_session import ConsulSession


class Claim:
    """A partition that is ours until it is released, or the session or the key is gone."""

    def __init__(
        self,
        client: ConsulClient,
        keys: GroupKeys,
        session: ConsulSession,
        topic: str,
        partition: int,
        at_index: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.at_index = at_index
        self.on_end: Callable[[PartitionLost], None] = lambda _: None
        """Called once, when reading has to end."""
        self.on_release: Callable[[], object] = lambda: None
        self._client = client
        self._keys = keys
        self._session = session
        self._key = keys.owner(topic, partition)
        self._ended: PartitionLost | None = None
        self._is_ours = True

    @property
    def is_lost(self) -> bool:
        """True if it ended and is not ours any more."""
        return self._ended is not None and not self._is_ours

    def look(self) -> None:
        """Notice that the session is over; called for every message."""
        if self._ended is None and not self._session.is_good:
            self.lose(self._session.lost_because or "the session was not renewed in time")

    def check(self) -> None:
        """Raise PartitionLost if nothing may be read any more."""
        self.look()
        if self._ended is not None:
            raise self._ended

    def end(self, error: PartitionLost) -> None:
        """Have the reading end. The partition stays ours, and commits are taken, until
        ``release``.
        """
        if self._ended is None:
            self._ended = error
            self.on_end(error)

    def lose(self, reason: str) -> None:
        """It is not ours any more."""
        self._is_ours = False
        self.end(PartitionLost(self.topic, self.partition, reason))

    async def commit(self, offset: int) -> None:
        """Keep the next offset to read, if the lock is still ours: Consul checks that as it writes.

        Raises PartitionLost otherwise.
        """
        position = {
            "Verb": "set",
            "Key": self._keys.position(self.topic, self.partition),
            "Value": b"%d" % offset,
        }
        if not await self._under_lock(position):
            raise PartitionLost(self.topic, self.partition, self._reason())

    async def position(self) -> int:
        """Return the next offset to read; EARLIEST where none was ever committed."""
        backoff = Backoff()
        while True:
            self.check()
            try:
                entry = await self._client.get(self._keys.position(self.topic, self.partition))
            except ConsulUnavailable:
                await asyncio.sleep(backoff.next_s())
            else:
                return EARLIEST if entry is None else read_position(entry)

    async def release(self, patience_s: float | None = None) -> None:
        """Give the partition up, once nobody reads it here any more.

        If Consul does not answer for so long, the end of the session does it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._under_lock({"Verb": "delete", "Key": self._key})
        self._is_ours = False
        self.on_release()

    async def _under_lock(self, operation: Mapping[str, object]) -> bool:
        """Carry out an operation if Consul knows the lock to be ours; False if it does not."""
        check = {"Verb": "check-session", "Key": self._key, "Session": self._session.id}
        backoff = Backoff()
        while self._is_ours and self._session.is_good:
            try:
                done = await self._client.transact(check, operation)
            except ConsulUnavailable:
                await asyncio.sleep(backoff.next_s())
            except SessionGone:
                break
            else:
                if done is None:
                    self.lose("Consul knows another owner, or none")
                return done is not None
        return False

    def _reason(self) -> str:
        if self._ended is not None:
            return self._ended.reason
        return self._session.lost_because or "it was released"
