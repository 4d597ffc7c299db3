"""Iterators of messages: their common interface, and the iterator over a single partition."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from groupkeeper.clients.readers.closing import Closing, raise_all
from groupkeeper.clients.readers.errors import ReaderClosed
from groupkeeper.clients.readers.message import Message
from groupkeeper.clients.readers.partition_log import EARLIEST, LATEST, Batches


class MessageIter(Closing):
    """An async iterator of messages, which has to be closed.

    ``__anext__`` calls ``take``, and waits for ``ready`` while ``take`` returns None. An iterator
    over several iterators calls ``take`` and ``ready`` of each of them, so that it can wait for all
    of them at the same time.
    """

    @abstractmethod
    def take(self) -> Message | None:
        """Return the next message if it is already here, else None.

        Raises the error that ended the iterator, once. Raises StopAsyncIteration after that, and
        after the close.
        """

    @abstractmethod
    async def ready(self) -> None:
        """Wait until ``take`` can return a message or raise."""

    @abstractmethod
    async def close(self) -> None:
        """Stop reading. Raises an ExceptionGroup of the errors that no call has raised yet."""

    def __aiter__(self) -> MessageIter:
        return self

    async def __anext__(self) -> Message:
        message = self.take()
        while message is None:
            await self.ready()
            message = self.take()
        return message

    async def aclose(self) -> None:
        """Close the iterator. ``contextlib.aclosing`` calls this name."""
        await self.close()


class MessageLog(Protocol):
    """The source of an iterator's messages, such as a ``PartitionLog``."""

    unsolved: dict[str, Exception]
    """The errors since the last answer: name of the error's type -> the last error of this type."""

    async def fetch(self, offset: int) -> Batches: ...
    async def find(self, where: int) -> int: ...
    async def close(self) -> None: ...


class Guard(Protocol):
    """Decides whether a partition may still be read."""

    def look(self) -> None:
        """Called before each message. Ends the partition's iterators if reading must stop."""

    def over(self) -> None:
        """Called after an iterator has ended. Its last message is processed."""


class PartitionIter(MessageIter):
    """The messages of one partition, in order.

    It fetches the next messages when at most ``buffer`` unpacked messages are left. With
    ``buffer=0`` it fetches only when no message is left and a caller waits for one.
    """

    def __init__(
        self,
        partition_log: MessageLog,
        start: int | Callable[[], Awaitable[int]],
        buffer: int,
        forget: Callable[[PartitionIter], None],
        guard: Guard | None = None,
    ) -> None:
        self.position: int | None = start if isinstance(start, int) and start >= 0 else None
        """The offset after the last message that was taken; None until the first offset is
        known."""
        self._log = partition_log
        self._start = start
        self._buffer = buffer
        self._forget = forget
        self._guard = guard
        self._messages: deque[Message] = deque()
        self._batches: Batches | None = None
        self._error: Exception | None = None
        self._has_given = False
        self._is_closed = False
        self._waiting = 0
        self._fetching: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._arrived = asyncio.Event()

    @property
    def is_reading(self) -> bool:
        """True after the first message, until ``take`` raises an error or ``close`` is called."""
        return self._has_given and not self._is_closed

    def take(self) -> Message | None:
        if self._guard is not None:
            self._guard.look()
        if not self._messages and not self._unpack():
            self._end()
            return None
        message = self._messages.popleft()
        self._has_given = True
        self.position = message.offset + 1
        if self._buffer and len(self._messages) == self._buffer:
            self._wanted.set()
        return message

    async def ready(self) -> None:
        if self._fetching is None and not self._is_closed:
            self._fetching = asyncio.create_task(self._fetch_for_ever())
        self._waiting += 1
        self._wanted.set()
        try:
            while not (self._messages or self._batches or self._error or self._is_closed):
                self._arrived.clear()
                await self._arrived.wait()
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        raise_all(await self.end())

    async def end(self) -> list[Exception]:
        """Close the iterator. Return the errors that no call has raised yet."""
        self._is_closed = True
        self._messages.clear()
        self._batches = None
        self._arrived.set()
        self._forget(self)
        if self._guard is not None:
            self._guard.over()
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])
        errors, self._log.unsolved = list(self._log.unsolved.values()), {}
        error, self._error = self._error, None
        return [error, *errors] if error is not None else errors

    def fail(self, error: Exception) -> None:
        """End the iterator with this error. Messages that were not taken yet are dropped."""
        self._messages.clear()
        self._batches = None
        self._error = error
        if self._fetching is not None:
            self._fetching.cancel()
        self._arrived.set()

    def _end(self) -> None:
        """Raise the error that ended the iterator, once, or StopAsyncIteration if it is closed. Do
        nothing if more messages may come.
        """
        error, self._error = self._error, None
        if error is not None:
            self._is_closed = True
            if self._guard is not None:
                self._guard.over()
            raise error
        if self._is_closed:
            raise StopAsyncIteration

    def _unpack(self) -> bool:
        """Unpack batches until there is a message. Return False if there is none."""
        while not self._messages and self._batches is not None:
            batches = self._batches
            try:
                self._messages.extend(batches.unpack())
            except Exception as error:  # noqa: BLE001 - unreadable bytes end the iterator
                self._batches = None
                self._error = error
                return False
            if not batches.has_more():
                self._batches = None
                self._next_offset = batches.next_offset
                self._wanted.set()
        return bool(self._messages)

    async def _fetch_for_ever(self) -> None:
        try:
            self._next_offset = await self._first_offset()
            if self.position is None:
                self.position = self._next_offset
            while True:
                while not self._wants_more():
                    self._wanted.clear()
                    await self._wanted.wait()
                batches = await self._log.fetch(self._next_offset)
                if batches.has_more():
                    self._batches = batches
                    self._arrived.set()
        except Exception as error:  # noqa: BLE001 - raised by take
            self._error = error
            self._arrived.set()
        finally:
            await self._log.close()

    def _wants_more(self) -> bool:
        if self._batches is not None:
            return False
        if self._buffer:
            return len(self._messages) <= self._buffer
        return not self._messages and self._waiting > 0

    async def _first_offset(self) -> int:
        start = self._start if isinstance(self._start, int) else await self._start()
        return await self._log.find(start) if start in (EARLIEST, LATEST) else start


def closed() -> ReaderClosed:
    """Return the error for a call after the close."""
    return ReaderClosed("the reader, or the group, is closed")
