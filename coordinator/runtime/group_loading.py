"""Loads a group when a request first names it, for stores that cannot list their groups
(``storage.base.LoadsGroups``).

A slot holds one shard in this process. Requests for a loaded group go directly to the slot of its
shard. Requests for any other group wait for its load. Then they are passed to the shard in order.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.requests.admin import ReadGroup
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.shard import Shard
from groupkeeper.coordinator.runtime.loading import Slicer
from groupkeeper.coordinator.runtime.tickets import Awaited
from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.cancellation import is_cancelled

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.records import Record
    from groupkeeper.coordinator.runtime.clock import Clock
    from groupkeeper.coordinator.runtime.lane import Observer
    from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
    from groupkeeper.coordinator.runtime.slot import Slot
    from groupkeeper.coordinator.runtime.tickets import Ticket
    from groupkeeper.storage.base import LoadsGroups, ShardId

log = structlog.get_logger(__name__)

MAX_LOADS: Final = 64
"""The largest number of groups that are loaded at the same time. The others wait."""


class LoadingGroup:
    """Keeps the requests for a group during its load."""

    __slots__ = ("_loader", "slot", "waiting")

    def __init__(self, loader: GroupLoader, slot: Slot) -> None:
        self.waiting: deque[tuple[Request, Ticket]] = deque()
        self.slot = slot
        self._loader = loader

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        """Keep the request until the load ends. If too many requests wait, answer it like a LOADING
        shard.
        """
        if self._loader.admit():
            self.waiting.append((request, ticket))
        else:
            ticket.resolve(request.loading_answer())


class GroupLoader:
    """Loads a group at the first request for it, and then submits the requests that waited for the
    load.
    """

    def __init__(
        self,
        storage: LoadsGroups,
        observer: Observer,
        config: CoordinatorConfig,
        clock: Clock,
        ended: Callable[[str, Slot | None], None],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Create a loader without groups.

        ``ended`` is called when the load of a group ends. It gets the slot that serves the group
        from then on. If the load failed it gets None, and the next request for the group starts
        another load.
        """
        self._storage = storage
        self._observer = observer
        self._config = config
        self._clock = clock
        self._ended = ended
        self._timer = timer
        self._loading: dict[str, tuple[LoadingGroup, asyncio.Task[None]]] = {}
        self._waiting = 0
        self._free_loads = asyncio.Semaphore(MAX_LOADS)

    def place_of(self, group_id: str, slot: Slot) -> LoadingGroup:
        """Return the object that keeps the requests for a group during its load. The first call for
        a group starts the load.
        """
        if group_id in self._loading:
            return self._loading[group_id][0]
        place = LoadingGroup(self, slot)
        task = asyncio.get_running_loop().create_task(self._run(group_id, place))
        self._loading[group_id] = (place, task)
        return place

    def admit(self) -> bool:
        """Count one more waiting request. If too many wait already, return False and do not count
        it.
        """
        if self._waiting >= self._config.max_gathered_requests:
            return False
        self._waiting += 1
        return True

    def stop(self) -> None:
        """Cancel every load and answer the waiting requests with NOT_COORDINATOR."""
        loading, self._loading = list(self._loading.values()), {}
        for place, task in loading:
            task.cancel()
            self._refuse(place, lambda request: request.refused(ErrorCode.NOT_COORDINATOR))

    async def _run(self, group_id: str, place: LoadingGroup) -> None:
        slot = place.slot
        is_loaded, answer = False, _loading
        try:
            async with asyncio.timeout(self._config.append_timeout_ms / 1000), self._free_loads:
                is_loaded = await self._load(group_id, slot)
        except StoreRefused as error:  # a person has to act, so clients must not wait in silence
            log.error("group_load_refused", group=group_id, error=str(error))
            answer = _unusable
        except (Exception, asyncio.CancelledError) as error:
            # The contract: any exception means "not known", also a cancellation by the store.
            if is_cancelled():
                raise
            log.warning("group_load_failed", group=group_id, error=str(error) or repr(error))
        if is_loaded:
            await self._release(place)
        del self._loading[group_id]
        # This comes before the refusals: a refused caller may try again from within ``resolve``.
        self._ended(group_id, slot if is_loaded else None)
        self._refuse(place, answer)

    async def _load(self, group_id: str, slot: Slot) -> bool:
        """Load the group unless its shard has it. Return True if the shard can now answer for the
        group.
        """
        # A read waits for earlier writes of the group. The store must have stored a deletion of the
        # group before it is asked for the group.
        found = await self._read_from(slot, group_id)
        if found is not ErrorCode.GROUP_ID_NOT_FOUND:
            return found is ErrorCode.NONE
        records = await self._storage.load_group(slot.shard_id, group_id)
        _check_usable(slot.shard_id, group_id, records, self._clock.now())
        await asyncio.sleep(0)  # a large group takes long to apply, here and below
        return self._add(slot, group_id, records)

    def _add(self, slot: Slot, group_id: str, records: Sequence[Record]) -> bool:
        """Add the group to its shard. Return False if the shard is LOADING, already has the group
        from a load of the whole shard, or was dropped because of a bug."""
        shard = slot.shard
        if shard is None or shard.saved(group_id) is not None:
            return False
        now = self._clock.now()
        slot.run(lambda shard: shard.load_group(group_id, records, now))
        if slot.shard is not shard:
            return False  # it was dropped after a bug
        self._observer.loaded(slot.shard_id, shard)
        return True

    async def _read_from(self, slot: Slot, group_id: str) -> ErrorCode:
        answer = Awaited()
        slot.submit(ReadGroup(group_id), answer, self._clock.now())
        result: Result = await answer.future
        return result.error

    async def _release(self, place: LoadingGroup) -> None:
        """Pass the waiting requests to the shard, some of them in each iteration of the event loop.

        An answer may cause the next request of the same client. That request waits behind the
        others.
        """
        slicer = Slicer(self._config.load_slice_ms, self._timer)
        while place.waiting:
            request, ticket = place.waiting.popleft()
            self._waiting -= 1
            self._guard(place, partial(place.slot.submit, request, ticket, self._clock.now()))
            await slicer.pause()

    def _refuse(self, place: LoadingGroup, answer: Callable[[Request], Result]) -> None:
        while place.waiting:
            request, ticket = place.waiting.popleft()
            self._waiting -= 1
            self._guard(place, partial(ticket.resolve, answer(request)))

    def _guard(self, place: LoadingGroup, call: Callable[[], None]) -> None:
        """Run the call. If a ticket (the receiver of an answer) raises an exception, report it, so
        that the other requests still get their answers.
        """
        try:
            call()
        except Exception as error:  # noqa: BLE001 - any error of the ticket
            place.slot.ticket_failed(error)


def _check_usable(shard_id: ShardId, group_id: str, records: Sequence[Record], now: Now) -> None:
    """Raise StoreRefused if no shard can use these records, or if they belong to another group.

    The records are first applied to an empty shard. An exception in the group's own shard would
    drop all of its groups.
    """
    trial = Shard(shard_id, CoreLimits(), TopicImage.any())
    try:
        trial.load_group(group_id, records, now)
    except Exception as error:  # any error: a retry would raise it again
        raise StoreRefused(f"a stored record cannot be used ({error!r})") from error
    if others := trial.groups.keys() - {group_id}:
        raise StoreRefused(f"the store returned records of another group, {min(others)!r}")


def _loading(request: Request) -> Result:
    return request.loading_answer()


def _unusable(request: Request) -> Result:
    return request.refused(ErrorCode.UNKNOWN_SERVER_ERROR)
