"""The readers of one member's share, which changes as members join and leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from groupkeeper.clients.readers.closing import Closing, raise_all
from groupkeeper.clients.readers.errors import HandedOver, PartitionLost
from groupkeeper.clients.readers.group_keys import ConsulGroupView
from groupkeeper.clients.readers.group_reader import GroupReader
from groupkeeper.clients.readers.message import Message
from groupkeeper.clients.readers.message_iter import MessageIter, PartitionIter, closed
from groupkeeper.clients.readers.multi_iter import MultiIter
from groupkeeper.clients.readers.spread import spread


class SpreadMember(Protocol):
    """The attributes and methods of a ``GroupMember`` that ``SpreadReaders`` uses."""

    id: str
    view: ConsulGroupView
    error: Exception | None

    async def changed(self, behind: int, *, again_soon: bool) -> None: ...
    async def try_claim(self, topic: str, partition: int) -> GroupReader | None: ...
    async def leave(self, topic: str) -> None: ...


class SpreadIter(MultiIter):
    """The messages of all partitions in a share, each partition from its committed position on."""

    def __init__(self, forget: Callable[[SpreadIter], None]) -> None:
        super().__init__([])
        self._forget = forget
        self._error: Exception | None = None
        self._is_closed = False

    def add(self, iterator: PartitionIter) -> None:
        """Also read from this iterator."""
        self._turns.append(iterator)
        self._all.append(iterator)
        self._wake()

    def fail(self, error: Exception) -> None:
        """End the iterator with this error."""
        if not self._is_closed:
            self._error = error
            self._wake()

    async def close(self) -> None:
        was_told, self._is_closed = self._is_closed, True
        self._forget(self)
        try:
            await super().close()
        except ExceptionGroup as met:
            # a lost session ends every partition, but is raised only once
            rest = met.split(PartitionLost)[1] if was_told else met
            if rest is not None:
                raise rest from None

    def _failed(self, iterator: MessageIter, error: Exception) -> None:
        self._all.remove(iterator)
        if not isinstance(error, HandedOver):
            self._is_closed = True
            super()._failed(iterator, error)

    def _all_ended(self) -> None:
        """Raise the error or StopAsyncIteration if the iterator has ended. Do nothing if the share
        is only empty now, because it may get a partition later."""
        error, self._error = self._error, None
        if error is not None:
            self._is_closed = True
            raise error
        if self._is_closed:
            raise StopAsyncIteration


class SpreadReaders(Closing, Sequence[GroupReader]):
    """The readers of this member's present share, in the order of their partitions."""

    def __init__(self, member: SpreadMember, topic: str, partitions: int) -> None:
        self.topic = topic
        self.is_closed = False
        self._member = member
        self._partitions = partitions
        self._ours: set[int] | None = None
        """The partitions of this member's share in the last view. None before the first view."""
        self._readers: dict[int, GroupReader] = {}
        """Partition -> its reader, from the claim until the hand-over begins."""
        self._giving_up: dict[GroupReader, asyncio.Task[None]] = {}
        """Reader whose partition is being handed over -> the task that does it."""
        self._iterators: set[SpreadIter] = set()
        self._change = asyncio.Event()
        self._settled = asyncio.Event()
        self._error: Exception | None = None
        self._balancing = asyncio.create_task(self._balance())

    def __len__(self) -> int:
        return len(self.partitions)

    def __getitem__(self, index: int) -> GroupReader:  # type: ignore[override]
        return self._readers[self.partitions[index]]

    def __iter__(self) -> Iterator[GroupReader]:
        return iter([self._readers[each] for each in self.partitions])

    @property
    def partitions(self) -> list[int]:
        """Return the partitions of this member's present share, sorted."""
        return sorted(p for p, reader in self._readers.items() if not reader.is_lost)

    async def commit(self, message: Message) -> None:
        """Record that this message was processed. The next reader of its partition starts after it.

        Call it before you request the next message. It also works while the partition is being
        handed over. Raises PartitionLost if this member no longer owns the partition.
        """
        held = [*self._readers.values(), *self._giving_up]
        for reader in held:
            if reader.partition == message.partition:
                return await reader.commit(message.offset + 1)
        raise PartitionLost(message.topic, message.partition, "it was handed over")

    def read(self) -> SpreadIter:
        """Return an iterator of all messages of the share. It follows every change of the share.

        Each partition starts at its committed position. The iterator leaves out a partition when it
        is handed over. If the session is lost, the iterator raises PartitionLost.
        """
        iterator = SpreadIter(self._iterators.discard)
        self._iterators.add(iterator)
        for reader in self:
            iterator.add(reader.read())
        if self._error is not None:
            iterator.fail(self._error)
        return iterator

    async def changed(self) -> None:
        """Wait for the next change of the share. Raises the error that ended the share.

        A change before the call does not count, so read ``partitions`` before you call this.
        """
        if self._error is None:
            self._change.clear()
            await self._change.wait()
        if self._error is not None:
            raise self._error

    async def settled(self) -> None:
        """Wait until this member has exactly the partitions of its share. Raises the error that
        ended the share."""
        await self._settled.wait()
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """Release every partition and leave the topic. Raises an ExceptionGroup of the errors that
        no call has raised yet.
        """
        self.is_closed = True
        self._balancing.cancel()
        await asyncio.wait([self._balancing])
        self._end(closed())
        merged = [each.close() for each in list(self._iterators)]
        ended = await asyncio.gather(*merged, return_exceptions=True)
        closing = [each.close() for each in [*self._readers.values(), *self._giving_up]]
        # a hand-over waits until the iterators have ended
        ended += await asyncio.gather(*closing, *self._giving_up.values(), return_exceptions=True)
        self._readers.clear()
        await self._member.leave(self.topic)
        raise_all([each for each in ended if isinstance(each, Exception)])

    async def _balance(self) -> None:
        try:
            while True:
                view = self._member.view
                if self._member.error is not None:
                    raise self._member.error
                was_refused = await self._towards(view)
                await self._member.changed(view.at_index, again_soon=was_refused)
        except Exception as error:  # noqa: BLE001 - every call that uses the share raises it
            self._end(error)
            for iterator in list(self._iterators):
                iterator.fail(error)

    def _end(self, error: Exception) -> None:
        """Raise this error from every call that waits for the share, now and later."""
        if self._error is None:
            self._error = error
        self._settled.set()
        self._change.set()

    async def _towards(self, view: ConsulGroupView) -> bool:
        """Claim the free partitions of this member's share, and start to hand over all others.

        Return True if Consul refused a free partition, as it does within the lock delay.
        """
        members = view.members.get(self.topic, {})
        owners = {p: each.member for p, each in view.owners.get(self.topic, {}).items()}
        if self._member.id not in members:
            return False  # the view does not contain this member yet
        wanted = spread(max([self._partitions, *members.values()]), members, owners)
        ours = wanted[self._member.id]
        lost = {each for each, reader in self._readers.items() if reader.is_lost}
        for partition in [p for p in self._readers if p not in ours or p in lost]:
            self._give_up(partition)
        was_refused = False
        for partition in ours:
            if partition not in self._readers and partition not in owners:
                was_refused |= not await self._claim(partition)
        self._ours = set(ours)
        self._look_whether_settled()
        return was_refused

    def _look_whether_settled(self) -> None:
        if self._error is not None:
            return  # the share has ended, and does not begin again
        if self._ours == self._readers.keys() and not self._giving_up:
            self._settled.set()
        else:
            self._settled.clear()

    async def _claim(self, partition: int) -> bool:
        reader = await self._member.try_claim(self.topic, partition)
        if reader is None:
            return False
        self._readers[partition] = reader
        for iterator in self._iterators if not reader.is_lost else ():
            iterator.add(reader.read())
        self._change.set()
        return True

    def _give_up(self, partition: int) -> None:
        reader = self._readers.pop(partition)
        self._change.set()
        error = HandedOver(self.topic, partition, "another member reads it from now on")
        self._giving_up[reader] = asyncio.create_task(self._hand_over(reader, error))

    async def _hand_over(self, reader: GroupReader, error: HandedOver) -> None:
        try:
            await reader.hand_over(error)
        finally:
            del self._giving_up[reader]
            # The view without our lock may have come before this moment. If it was the last view,
            # nothing else checks whether the share is settled.
            self._look_whether_settled()
