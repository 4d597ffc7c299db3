"""The right of a member to read one partition: a lock in Consul under the member's session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from groupkeeper.clients.readers.errors import PartitionLost
from groupkeeper.clients.readers.group_keys import GroupKeys, read_position
from groupkeeper.clients.readers.partition_log import EARLIEST
from groupkeeper.storage.connections.backoff import Backoff
from groupkeeper.storage.connections.consul import ConsulClient
from groupkeeper.storage.connections.consul_errors import ConsulUnavailable, SessionGone
from groupkeeper.storage.connections.consul_session import ConsulSession


class Claim:
    """A claimed partition: the member's session in Consul holds the lock on the partition's key.
    The claim ends when it is released, or when the session or the key is deleted.
    """

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
        """Consul's index when the key was locked. A view with a lower index does not show the lock.
        """
        self.on_end: Callable[[PartitionLost], None] = lambda _: None
        """Called once with the reason, when reading must end."""
        self.on_release: Callable[[], object] = lambda: None
        """Called after the release, when the same member may claim the partition again."""
        self._client = client
        self._keys = keys
        self._session = session
        self._key = keys.owner(topic, partition)
        self._ended: PartitionLost | None = None
        self._is_ours = True

    @property
    def is_lost(self) -> bool:
        """True if this member no longer owns the partition and the claim has ended."""
        return self._ended is not None and not self._is_ours

    def look(self) -> None:
        """End the claim if the session has ended. Called before every message."""
        if self._ended is None and not self._session.is_good:
            self.lose(self._session.lost_because or "the session was not renewed in time")

    def check(self) -> None:
        """Raise PartitionLost if the partition must not be read any more."""
        self.look()
        if self._ended is not None:
            raise self._ended

    def end(self, error: PartitionLost) -> None:
        """Stop reading with ``error``. This member still owns the partition, and may commit, until
        ``release``.
        """
        if self._ended is None:
            self._ended = error
            self.on_end(error)

    def lose(self, reason: str) -> None:
        """End the claim, because this member no longer owns the partition."""
        self._is_ours = False
        self.end(PartitionLost(self.topic, self.partition, reason))

    async def commit(self, offset: int) -> None:
        """Store the next offset to read, if this member still holds the lock. Consul checks the
        lock in the same transaction.

        Raises PartitionLost if the member does not hold it.
        """
        position = {
            "Verb": "set",
            "Key": self._keys.position(self.topic, self.partition),
            "Value": b"%d" % offset,
        }
        if not await self._under_lock(position):
            raise PartitionLost(self.topic, self.partition, self._reason())

    async def position(self) -> int:
        """Return the next offset to read. Return EARLIEST if no offset was ever committed.

        Waits until Consul answers. Raises PartitionLost if the claim ends before that, and
        BadPosition if the stored value is not an offset.
        """
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
        """Release the partition. Call this when nobody in this process reads it any more.

        If Consul does not answer within ``patience_s``, the end of the session releases it. None
        means that the call waits until Consul answers or the session ends.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._under_lock({"Verb": "delete", "Key": self._key})
        self._is_ours = False
        self.on_release()

    async def _under_lock(self, operation: Mapping[str, object]) -> bool:
        """Execute an operation if this member holds the lock. Return False if it does not."""
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
