"""Groups that are read when they are first named (``storage.base.LoadsGroups``).

A request that names a group which is not there yet is held, and so is what comes after it for the
same group; they are submitted in their order once it is. Nothing of this is in the way of a group
that is there: its requests go straight to the slot.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests import Now, ReadGroup, Request
from groupkeeper.coordinator.runtime.loading import Slicer
from groupkeeper.coordinator.runtime.tickets import Awaited
from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.cancellation import is_cancelled

if TYPE_CHECKING:
    from groupkeeper.coordinator.runtime.clock import Clock
    from groupkeeper.coordinator.runtime.owner import ShardOwner
    from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
    from groupkeeper.coordinator.runtime.slot import Slot
    from groupkeeper.coordinator.runtime.tickets import Ticket
    from groupkeeper.storage.base import LoadsGroups

log = structlog.get_logger(__name__)

MAX_LOADS: Final = 64
"""Groups that are read at the same time; the others wait for their turn."""


class LoadingGroup:
    """The place of a group that is being read: holds what names it."""

    __slots__ = ("_loader", "held")

    def __init__(self, loader: GroupLoader) -> None:
        """Hold nothing yet."""
        self.held: deque[tuple[Request, Ticket]] = deque()
        self._loader = loader

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        """Hold a request, or refuse it where too many are held."""
        if self._loader.admit():
            self.held.append((request, ticket))
        else:
            ticket.resolve(request.loading_answer())


class GroupLoader:
    """Reads groups one by one and lets their requests through."""

    def __init__(
        self,
        storage: LoadsGroups,
        owner: ShardOwner,
        config: CoordinatorConfig,
        clock: Clock,
        ended: Callable[[str, Slot | None], None],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``ended`` hears of each group: the slot that serves it from now on, or None where it
        could not be read and the next request has to try again.
        """
        self._storage = storage
        self._owner = owner
        self._config = config
        self._clock = clock
        self._ended = ended
        self._timer = timer
        self._loading: dict[str, tuple[LoadingGroup, asyncio.Task[None]]] = {}
        self._held = 0
        self._turns = asyncio.Semaphore(MAX_LOADS)

    def place_of(self, group_id: str, slot: Slot) -> LoadingGroup:
        """Begin to read a group, unless that is under way; return where its requests go."""
        if group_id in self._loading:
            return self._loading[group_id][0]
        place = LoadingGroup(self)
        task = asyncio.get_running_loop().create_task(self._run(group_id, slot, place))
        self._loading[group_id] = (place, task)
        return place

    def admit(self) -> bool:
        """Count one held request more; False where there are too many."""
        if self._held >= self._config.max_gathered_requests:
            return False
        self._held += 1
        return True

    def stop(self) -> None:
        """Read no more; whoever waits looks for another coordinator."""
        loading, self._loading = list(self._loading.values()), {}
        for place, task in loading:
            task.cancel()
            self._refuse(place, lambda request: request.refused(ErrorCode.NOT_COORDINATOR))

    async def _run(self, group_id: str, slot: Slot, place: LoadingGroup) -> None:
        is_there, answer = False, _loading
        try:
            async with asyncio.timeout(self._config.append_timeout_ms / 1000), self._turns:
                is_there = await self._load(group_id, slot)
        except StoreRefused as error:  # a person has to act, so clients must not wait in silence
            log.error("group_load_refused", group=group_id, error=str(error))
            answer = _unusable
        except (Exception, asyncio.CancelledError) as error:  # the contract: any is "not known"
            if is_cancelled():
                raise
            log.warning("group_load_failed", group=group_id, error=str(error) or repr(error))
        if is_there:
            await self._release(slot, place)
        del self._loading[group_id]
        # Before the refusals: whoever is refused may try again from within ``resolve``.
        self._ended(group_id, slot if is_there else None)
        self._refuse(place, answer)

    async def _load(self, group_id: str, slot: Slot) -> bool:
        # A read waits for what was written before it: the store must have heard that the group
        # was deleted before it is asked what the group has.
        found = await self._read_from(slot, group_id)
        if found is not ErrorCode.GROUP_ID_NOT_FOUND:
            return found is ErrorCode.NONE
        records = await self._storage.load_group(slot.shard_id, group_id)
        return self._owner.load_group(slot, group_id, records)

    async def _read_from(self, slot: Slot, group_id: str) -> ErrorCode:
        answer = Awaited()
        slot.submit(ReadGroup(group_id), answer, self._clock.now())
        result: Result = await answer.future
        return result.error

    async def _release(self, slot: Slot, place: LoadingGroup) -> None:
        """Submit what is held, a slice at a time. An answer may bring the next request of the same
        client: that one queues behind what is left.
        """
        slicer = Slicer(self._config.load_slice_ms, self._timer)
        while place.held:
            request, ticket = place.held.popleft()
            self._held -= 1
            self._guard(partial(slot.submit, request, ticket, self._clock.now()))
            await slicer.pause()

    def _refuse(self, place: LoadingGroup, answer: Callable[[Request], Result]) -> None:
        while place.held:
            request, ticket = place.held.popleft()
            self._held -= 1
            self._guard(partial(ticket.resolve, answer(request)))

    def _guard(self, call: Callable[[], None]) -> None:
        """Let a ticket raise: others must get their answers."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the ticket's
            self._owner.ticket_failed(error)


def _loading(request: Request) -> Result:
    return request.loading_answer()


def _unusable(request: Request) -> Result:
    return request.refused(ErrorCode.UNKNOWN_SERVER_ERROR)
