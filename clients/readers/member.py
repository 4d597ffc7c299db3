"""One member of a group: its session, its claims, and its view of the other members."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from groupkeeper.clients.readers.claim import Claim
from groupkeeper.clients.readers.errors import NoPartitionFree, SessionEnded
from groupkeeper.clients.readers.group_keys import ConsulGroupView, GroupKeys
from groupkeeper.clients.readers.group_reader import GroupReader
from groupkeeper.storage.connections.backoff import Backoff
from groupkeeper.storage.connections.consul import ConsulClient
from groupkeeper.storage.connections.consul_errors import (
    ConsulError,
    ConsulUnavailable,
    SessionGone,
)
from groupkeeper.storage.connections.consul_session import ConsulSession

LOCK_DELAY_LOOK_S = 0.5
"""Consul does not report the end of a lock delay. So a claim that Consul refused is retried after
this time.
"""


@dataclass(frozen=True)
class ReaderPlan:
    """The brokers and options for the readers of a member."""

    brokers: str | Sequence[str]
    options: Mapping[str, Any] = field(default_factory=dict)


class GroupMember:
    """A member of a group. It exists as long as its session."""

    def __init__(self, client: ConsulClient, keys: GroupKeys, session: ConsulSession) -> None:
        self.id = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
        self.view = ConsulGroupView()
        """The newest view. It is empty before ``start``."""
        self.error: Exception | None = None
        """The error that ended this member. Most calls raise it from then on."""
        self._client = client
        self._keys = keys
        self._session = session
        self._plans: dict[str, ReaderPlan] = {}
        """Topic that this member shares -> the plan of its readers."""
        self._claims: dict[tuple[str, int], Claim | None] = {}
        """(topic, partition) -> this member's claim, or None while the claim is being made."""
        self._abandoning: set[asyncio.Task[None]] = set()
        """Tasks that release partitions whose claim was cancelled."""
        self._view_change = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin the session, and read the state of the group once."""
        await self._session.open(f"groupkeeper reader of {self._keys.group}", self._session_lost)
        self._watching = asyncio.create_task(self._watch())
        await self.changed(0, again_soon=False)

    async def close(self) -> None:
        """End the session and all its claims. For the lock delay after that, Consul refuses to lock
        a partition whose claim was not released before.
        """
        ending = [*self._abandoning, *([self._watching] if self._watching is not None else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._session.close()
        self._session_lost("the group was closed")

    async def claim_any(
        self, topic: str, partitions: int, plan: ReaderPlan, *, wait: bool
    ) -> GroupReader:
        """Claim a free partition, and return its reader. Waits until one is free.

        Without ``wait`` it raises NoPartitionFree instead. Raises SessionEnded if the session ends.
        """
        while True:
            view = self.view
            owned = view.owners.get(topic, {})
            free = [
                p for p in range(partitions) if p not in owned and (topic, p) not in self._claims
            ]
            # in random order: otherwise members that start together would all try the same
            # partition first
            for partition in random.sample(free, len(free)):
                reader = await self._try(topic, partition, plan)
                if reader is not None:
                    return reader
            if not wait:
                raise NoPartitionFree(topic, partitions)
            await self.changed(view.at_index, again_soon=bool(free))

    def takes_part_in(self, topic: str) -> bool:
        """Return True if this member shares the topic: between ``join`` and ``leave``."""
        return topic in self._plans

    async def join(self, topic: str, partitions: int, plan: ReaderPlan) -> None:
        """Join the members that share a topic. Raises SessionEnded if the session has ended."""
        self._plans[topic] = plan
        value = json.dumps({"partitions": partitions}).encode()
        key = self._keys.member(topic, self.id)
        try:
            if not await self._retried(self._client.put, key, value, acquire=self._session.id):
                raise SessionEnded(self._keys.group, "its session could not be used")
        except BaseException:
            await self.leave(topic)
            raise

    async def leave(self, topic: str) -> None:
        """Leave the members that share a topic. If Consul does not answer, this member leaves when
        its session ends.
        """
        self._plans.pop(topic, None)
        if self._session.is_good:
            with contextlib.suppress(ConsulError):
                await self._client.delete(self._keys.member(topic, self.id))

    async def try_claim(self, topic: str, partition: int) -> GroupReader | None:
        """Claim this partition if it is free. Return its reader, or None if it is not free."""
        return await self._try(topic, partition, self._plans[topic])

    async def changed(self, behind: int, *, again_soon: bool) -> None:
        """Wait for a view with a higher index than ``behind``. With ``again_soon``, wait at most
        ``LOCK_DELAY_LOOK_S``.

        Raises the error that ended the member.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOCK_DELAY_LOOK_S if again_soon else None):
                while self.view.at_index <= behind and self.error is None:
                    self._view_change.clear()
                    await self._view_change.wait()
        if self.error is not None:
            raise self.error

    async def _try(self, topic: str, partition: int, plan: ReaderPlan) -> GroupReader | None:
        at = topic, partition
        if at in self._claims:
            return None  # Consul would grant the lock again, because the session is the same
        self._claims[at] = None
        locking = asyncio.create_task(self._lock(topic, partition))
        try:
            claim = await asyncio.shield(locking)
        except asyncio.CancelledError:
            # Consul may grant the lock all the same, and then no reader would read the partition
            abandoning = asyncio.create_task(_abandon(locking))
            self._abandoning.add(abandoning)
            abandoning.add_done_callback(self._abandoning.discard)
            raise
        return None if claim is None else GroupReader(plan.brokers, claim, plan.options)

    async def _lock(self, topic: str, partition: int) -> Claim | None:
        at = topic, partition
        claim = None
        try:
            lock = {
                "Verb": "lock",
                "Key": self._keys.owner(topic, partition),
                "Value": self.id.encode(),
                "Session": self._session.id,
            }
            locked = await self._retried(self._client.transact, lock)
            if locked is not None:
                claim = Claim(self._client, self._keys, self._session, topic, partition, locked)
        finally:
            self._claims.pop(at, None)
        if claim is None:
            return None
        if self.error is not None:  # the session was lost while the request was under way
            raise self.error
        self._claims[at] = claim
        claim.on_release = lambda: self._forget(claim)
        return claim

    def _forget(self, claim: Claim) -> None:
        at = claim.topic, claim.partition
        if self._claims.get(at) is claim:  # not a newer claim of the partition
            del self._claims[at]

    async def _retried(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the client until Consul answers, and return the answer. Raises
        SessionEnded if the session may be lost.
        """
        backoff = Backoff()
        while True:
            try:
                return await call(*args, **kwargs)
            except (ConsulUnavailable, SessionGone) as error:
                if isinstance(error, SessionGone) or not self._session.is_good:
                    self._session.lose(str(error))
                    assert self.error is not None
                    raise self.error from error
            await asyncio.sleep(backoff.next_s())

    async def _watch(self) -> None:
        try:
            async for seen in self._client.watch(self._keys.live):
                self.view = self._keys.view(seen.at_index, seen.entries)
                self._look_at_claims()
                self._view_change.set()
        except Exception as error:  # noqa: BLE001 - a member that sees no change must end
            self._fail(error)

    def _look_at_claims(self) -> None:
        """End each claim whose key was deleted, or is locked by another session."""
        for (topic, partition), claim in list(self._claims.items()):
            if claim is None or self.view.at_index < claim.at_index:
                continue
            owned = self.view.owners.get(topic, {}).get(partition)
            if owned is None or owned.session != self._session.id:
                claim.lose("Consul knows another owner, or none")
                self._session.doubt()
                self._claims.pop((topic, partition), None)

    def _session_lost(self, reason: str) -> None:
        self._fail(SessionEnded(self._keys.group, reason))
        for claim in list(self._claims.values()):
            if claim is not None:
                claim.lose(reason)
        self._claims.clear()

    def _fail(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
        self._view_change.set()


async def _abandon(locking: asyncio.Task[Claim | None]) -> None:
    """Release a partition that is claimed for a caller who was cancelled."""
    with contextlib.suppress(ConsulError, SessionEnded):
        claim = await locking
        if claim is not None:
            await claim.release()
