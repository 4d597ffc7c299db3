"""A group of readers that share partitions through Consul, without a coordinator."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from groupkeeper.clients.readers.closing import Closing, raise_all
from groupkeeper.clients.readers.errors import SessionEnded
from groupkeeper.clients.readers.group_keys import (
    MOST_PARTITIONS,
    PREFIX,
    GroupKeys,
    checked_name,
)
from groupkeeper.clients.readers.group_reader import GroupReader
from groupkeeper.clients.readers.member import GroupMember, ReaderPlan
from groupkeeper.clients.readers.message_iter import closed
from groupkeeper.clients.readers.reader import Reader
from groupkeeper.clients.readers.spread_readers import SpreadReaders
from groupkeeper.storage.connections.consul import ConsulClient
from groupkeeper.storage.connections.consul_session import ConsulSession, boot_time

LOCK_DELAY_MS = 15_000
"""For this time after the end of a session, Consul refuses to lock the keys that the session had
locked. If Consul ends a session early, its member has this time to notice, before another member
can claim its partitions. The value is Consul's default.
"""


class Scheme(StrEnum):
    """The ways in which a group can share partitions."""

    SPREAD = "spread"
    """Every member reads an even share of the partitions (``new_readers``)."""


class ConsulGroup(Closing):
    """One member of a group. Every process creates its own object.

    The object connects to Consul when the first reader is requested. If its session is lost, all
    its readers end. The next request for a reader begins a new session.
    """

    def __init__(  # noqa: PLR0913 - how to reach Consul, and how long to wait for it
        self,
        name: str,
        addr: str = "127.0.0.1:8500",
        scheme: Scheme | str | None = None,
        ttl_ms: int = 10_000,
        *,
        lock_delay_ms: int = LOCK_DELAY_MS,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        datacenter: str | None = None,
        prefix: str = PREFIX,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        self.name = name
        self.scheme = None if scheme is None else Scheme(scheme)
        self._keys = GroupKeys(name, prefix)
        self._client = ConsulClient(addr, token=token, tls=tls, datacenter=datacenter)
        self._session_settings = ttl_ms, lock_delay_ms, clock
        # raises ValueError for settings that Consul would refuse
        ConsulSession(self._client, *self._session_settings)
        self._member: GroupMember | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False
        self._given: list[GroupReader | SpreadReaders] = []

    async def new_reader(
        self,
        brokers: str | Sequence[str],
        topic: str,
        partitions: int,
        *,
        wait: bool = True,
        **options: Any,
    ) -> GroupReader:
        """Claim a free partition of the topic, and return its reader.

        Waits until a partition is free. With ``wait=False`` it raises NoPartitionFree instead. The
        options are those of Reader: ``buffer``, ``max_wait_ms``, ``security`` and so on.
        """
        _check(topic, partitions, brokers, options)
        if self.scheme is not None:
            raise ValueError(f"a group of scheme {self.scheme} gives readers by new_readers")
        plan = ReaderPlan(brokers, options)
        while True:
            member = await self._started()
            try:
                reader = await member.claim_any(topic, partitions, plan, wait=wait)
            except SessionEnded:
                if self._is_closed:
                    raise
            else:
                break
        self._keep(reader)
        return reader

    async def new_readers(
        self,
        brokers: str | Sequence[str],
        topic: str,
        partitions: int,
        *,
        wait: bool = True,
        **options: Any,
    ) -> SpreadReaders:
        """Join the members that share the topic, and return the readers of this member's share.

        The shares of any two members differ by at most one partition. They are computed again
        whenever a member joins or leaves. Waits until the other members have handed over this
        member's partitions. With ``wait=False`` it returns at once. The options are those of
        Reader.
        """
        _check(topic, partitions, brokers, options)
        if self.scheme is not Scheme.SPREAD:
            raise ValueError("new_readers is for a group of scheme 'spread'")
        member = await self._started()
        if member.takes_part_in(topic):
            raise ValueError(f"this group has a share of {topic!r} already")
        await member.join(topic, partitions, ReaderPlan(brokers, options))
        readers = SpreadReaders(member, topic, partitions)
        self._keep(readers)
        if wait:
            try:
                await readers.settled()
            except BaseException:
                await readers.close()
                raise
        return readers

    async def close(self) -> None:
        """Close every reader and end the session. Raises an ExceptionGroup of the errors that no
        call has raised yet.
        """
        self._is_closed = True
        given, self._given = self._given, []
        ended = await asyncio.gather(*(each.close() for each in given), return_exceptions=True)
        if self._member is not None:
            await self._member.close()
        await self._client.close()
        errors = [each for each in ended if isinstance(each, Exception)]
        raise_all(errors, f"readers of group {self.name!r} met errors")

    def _keep(self, given: GroupReader | SpreadReaders) -> None:
        self._given = [*(each for each in self._given if not each.is_closed), given]

    async def _started(self) -> GroupMember:
        async with self._starting:
            if self._is_closed:
                raise closed()
            if self._member is not None and self._member.error is not None:
                await self._member.close()
                self._member = None
            if self._member is None:
                member = GroupMember(
                    self._client,
                    self._keys,
                    ConsulSession(self._client, *self._session_settings),
                )
                try:
                    await member.start()
                except BaseException:
                    await member.close()
                    raise
                self._member = member
            return self._member


def _check(
    topic: str, partitions: int, brokers: str | Sequence[str], options: Mapping[str, Any]
) -> None:
    """Raise ValueError or TypeError for wrong options. Called before a claim, because an error
    after the claim would leave a claimed partition without a reader.
    """
    checked_name(topic, "topic")
    Reader(brokers, topic, 0, **options)
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise ValueError(f"partitions is {partitions}: must be 1 to {MOST_PARTITIONS}")
