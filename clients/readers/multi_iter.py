"""An iterator that merges several iterators: it takes one message of each, again and again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from groupkeeper.clients.readers.closing import raise_all
from groupkeeper.clients.readers.message import Message
from groupkeeper.clients.readers.message_iter import MessageIter


class MultiIter(MessageIter):
    """Merges iterators. In each round, every iterator that has a message returns one.

    If one of the iterators fails, MultiIter ends with the same error. With ``leave_out_failing`` it
    continues without the failed iterator, and ``close`` raises the error. ``close`` closes all
    iterators.
    """

    def __init__(
        self, iterators: Iterable[MessageIter], *, leave_out_failing: bool = False
    ) -> None:
        self._turns = deque(iterators)
        self._all = list(self._turns)
        self._leaves_out = leave_out_failing
        self._left_out: list[Exception] = []
        self._woken: asyncio.Future[None] | None = None
        self._asks: dict[MessageIter, asyncio.Task[None]] = {}

    def take(self) -> Message | None:
        turns = self._turns
        for _ in range(len(turns)):
            iterator = turns[0]
            try:
                message = iterator.take()
            except StopAsyncIteration:
                self._turns.remove(iterator)
            except Exception as error:  # noqa: BLE001 - of whatever kind
                self._turns.remove(iterator)
                self._failed(iterator, error)
            else:
                turns.rotate(-1)
                if message is not None:
                    return message
                self._ask(iterator)
        if not turns:
            self._all_ended()
        return None

    async def ready(self) -> None:
        self._woken = asyncio.get_running_loop().create_future()
        # a task that still runs is kept for the next call: cancelling it would lose a fetch
        await asyncio.wait([self._woken, *self._asks.values()], return_when=asyncio.FIRST_COMPLETED)
        for iterator in [each for each, ask in self._asks.items() if ask.done()]:
            ask = self._asks.pop(iterator)
            if not ask.cancelled():  # cancelled by a close, which the next ``take`` reports
                ask.result()

    async def close(self) -> None:
        self._turns.clear()
        self._wake()
        asks, self._asks = list(self._asks.values()), {}
        for ask in asks:
            ask.cancel()
        closing = [each.close() for each in self._all]
        ended = await asyncio.gather(*asks, *closing, return_exceptions=True)
        errors = [each for each in ended if isinstance(each, Exception)]
        left_out, self._left_out = self._left_out, []
        raise_all([*left_out, *errors])

    def _ask(self, iterator: MessageIter) -> None:
        """Let this iterator fetch in a task, even if the other iterators always have messages."""
        if iterator not in self._asks or self._asks[iterator].done():
            self._asks[iterator] = asyncio.create_task(iterator.ready())

    def _failed(self, iterator: MessageIter, error: Exception) -> None:
        """Raise the error of an iterator, or keep it for ``close``."""
        if not self._leaves_out:
            self._turns.clear()
            raise error
        self._left_out.append(error)

    def _all_ended(self) -> None:
        raise StopAsyncIteration

    def _wake(self) -> None:
        """Make ``ready`` return."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
