"""GroupCoordinator: the coordinator in one object, without a wire.

``submit`` is what the daemon uses for every request; the async methods are for hosts that embed us.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, cast

from coordinator.core.errors import ErrorCode
from coordinator.core.requests import (
    AlterGroupConfigs,
    AlterGroupConfigsResult,
    ChangeTopics,
    ChangeTopicsResult,
    DeleteGroup,
    DescribeGroup,
    DescribeGroupResult,
    GroupState,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    ListGroups,
    ListGroupsResult,
    Now,
    OffsetCommit,
    OffsetCommitResult,
    OffsetDelete,
    OffsetDeleteResult,
    OffsetFetch,
    OffsetFetchResult,
    Request,
    Result,
    SyncGroup,
    SyncGroupResult,
)
from coordinator.core.routing import shard_of
from coordinator.core.shard import Shard
from coordinator.group_configs import GroupConfigStore
from coordinator.runtime.clock import Clock, LoopClock
from coordinator.runtime.cluster_feed import ClusterFeed, NoTopics
from coordinator.runtime.group_loading import GroupLoader
from coordinator.runtime.owner import Observer, ShardOwner
from coordinator.runtime.refusals import refuse
from coordinator.runtime.settings import CoordinatorConfig
from coordinator.runtime.shards import MakeShard, make_cluster_shard, make_group_shard
from coordinator.runtime.slot import Slot, Ticket
from coordinator.runtime.stats import Stats
from coordinator.topics import Topics
from storage.base import CLUSTER_SHARD, LoadsGroups, OffsetStorage, StoreIdentity

__all__ = ["CoordinatorConfig", "GroupCoordinator", "Ticket"]

MAX_ROUTED_GROUPS: Final = 100_000
"""Groups whose shard is remembered; the hash over an id costs more than all the rest of a
heartbeat.
"""

LISTING_SLICE_S: Final = 0.002
"""What one turn of the loop may spend on listing groups."""


class ManyTicket(Protocol):
    """Whoever asked several things at once."""

    def resolve(self, result: Any) -> None:
        """Take the list of results, in the order of the requests."""
        ...


class _Submits(Protocol):
    def submit(self, request: Request, ticket: Ticket, now: Now) -> None: ...


class GroupCoordinator:
    """Groups and offsets over a storage."""

    def __init__(
        self,
        storage: OffsetStorage,
        config: CoordinatorConfig | None = None,
        topics: Topics | None = None,
        *,
        clock: Clock | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Put the parts together; nothing runs before ``start``.

        Without ``topics`` every topic and partition is taken to exist.
        """
        self.config = config or CoordinatorConfig()
        self.topics = topics
        self.group_configs = GroupConfigStore(self.config.shards, self.config)
        """What is durably set for single groups."""
        self._storage = storage
        self._own_clock = LoopClock() if clock is None else None
        self._clock: Clock = clock or cast("Clock", self._own_clock)
        self._timer = timer
        makers: dict[int, MakeShard] = {}
        observer: Observer = NoTopics()
        if topics is not None:
            makers[CLUSTER_SHARD] = make_cluster_shard
            observer = ClusterFeed(
                topics,
                self.group_configs,
                lambda image: self._owner.push_image(image),
                lambda shard_id, settings: self._owner.push_settings(shard_id, settings),
            )
            topics.bind(self._submit_to_cluster)
        makers |= dict.fromkeys(range(self.config.shards), make_group_shard)
        self._owner = ShardOwner(storage, self.config, self._clock, observer, makers, timer)
        self._places: dict[int, _Submits] = dict(self._owner.slots)
        self._routed: dict[str, _Submits] = {}
        self._group_loader: GroupLoader | None = None
        if isinstance(storage, LoadsGroups):
            self._group_loader = GroupLoader(
                storage, self._owner, self.config, self._clock, self._group_read, timer
            )
        self._is_open = False

    # --- Life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, take the leases and load; returns when every shard answers.

        Raises StoreRefused where a person has to act. Other failures of a load are tried again for
        as long as it takes.
        """
        if self._own_clock is not None:
            self._own_clock.start()
        await self._storage.open(StoreIdentity(self.config.cluster_id, self.config.shards))
        self._is_open = True
        await self._owner.start()
        if self.topics is not None:
            await self.topics.ensure_configured()

    async def stop(self, timeout_ms: int | None = None) -> None:
        """Refuse what is parked, make durable what waits, fold what fits, release and close."""
        self._places = dict.fromkeys(self._places, _Closed())
        self._routed.clear()
        if self._group_loader is not None:
            self._group_loader.stop()
        self._owner.drain()
        if self._is_open:
            self._is_open = False
            limit_ms = self.config.drain_timeout_ms if timeout_ms is None else timeout_ms
            try:
                await self._owner.finish(limit_ms)
            finally:
                await self._storage.close()
        if self._own_clock is not None:
            self._own_clock.stop()

    @property
    def is_ready(self) -> bool:
        """Every shard answers."""
        return self.not_ready is None

    @property
    def not_ready(self) -> str | None:
        """Why groups are not served, in one line; None when they are."""
        if not self._is_open:
            return "the coordinator is not running"
        loading = self._owner.loading_count()
        return f"{loading} of {len(self._owner.slots)} shards are loading" if loading else None

    @property
    def stats(self) -> Stats:
        """What was counted since the start."""
        return self._owner.stats

    # --- Requests ---------------------------------------------------------------------------------

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Begin a request. The ticket is resolved exactly once: before this returns where nothing
        has to be waited for, else later.
        """
        try:
            place = self._routed[request.group_id]  # type: ignore[union-attr]
        except KeyError:
            place = self._route(request.group_id)  # type: ignore[union-attr]
        except AttributeError:
            self._submit_to_all(request, ticket)
            return
        place.submit(request, ticket, self._clock.now())

    def submit_all(self, requests: Sequence[Request], ticket: ManyTicket) -> None:
        """Begin several requests and answer them together, in their order: an OffsetFetch of many
        groups, a DescribeGroups.
        """
        _Many(len(requests), ticket).begin(self.submit, requests)

    def _route(self, group_id: str) -> _Submits:
        place = self._places[shard_of(group_id, self.config.shards)]
        if self._group_loader is not None and isinstance(place, Slot) and group_id:
            place = self._group_loader.place_of(group_id, place)
        if len(self._routed) >= MAX_ROUTED_GROUPS:
            self._routed.clear()  # groups that live come back; those that do not were the problem
        self._routed[group_id] = place
        return place

    def _group_read(self, group_id: str, slot: Slot | None) -> None:
        """A group that had to be read is there (``slot``), or could not be read."""
        if slot is None:
            self._routed.pop(group_id, None)
        else:
            self._routed[group_id] = slot

    def _submit_to_all(self, request: Request, ticket: Ticket) -> None:
        """Take what names no group."""
        if isinstance(request, ListGroups):
            places = [self._places[shard_id] for shard_id in range(self.config.shards)]
            _Listing(request, ticket, places, self._clock, self._timer).advance()
        else:
            self._submit_to_cluster(request, ticket)

    def _submit_to_cluster(self, request: Request, ticket: Ticket) -> None:
        is_for_cluster = isinstance(request, ChangeTopics | AlterGroupConfigs)
        assert is_for_cluster, f"no route for {type(request).__name__}"
        place = self._places.get(
            CLUSTER_SHARD, _Closed()
        )  # a host without topics has no controller
        place.submit(request, ticket, self._clock.now())

    # --- The same for those who await -------------------------------------------------------------

    async def join_group(self, request: JoinGroup) -> JoinGroupResult:
        """Enter a group, or its next generation; waits for the join phase to end."""
        return cast("JoinGroupResult", await self._ask(request))

    async def sync_group(self, request: SyncGroup) -> SyncGroupResult:
        """Fetch a member's assignment; waits for the leader's."""
        return cast("SyncGroupResult", await self._ask(request))

    async def heartbeat(self, request: Heartbeat) -> ErrorCode:
        """Say that a member is alive."""
        return cast("ErrorCode", await self._ask(request))

    async def leave_group(self, request: LeaveGroup) -> LeaveGroupResult:
        """Take members out of a group."""
        return cast("LeaveGroupResult", await self._ask(request))

    async def commit_offsets(self, request: OffsetCommit) -> OffsetCommitResult:
        """Store offsets; they are durable when this returns without an error."""
        return cast("OffsetCommitResult", await self._ask(request))

    async def fetch_offsets(self, *requests: OffsetFetch) -> list[OffsetFetchResult]:
        """Read the committed offsets of groups, answered in the order asked."""
        ticket = _Awaited()
        self.submit_all(requests, ticket)
        return cast("list[OffsetFetchResult]", await ticket.future)

    async def list_groups(self, request: ListGroups | None = None) -> ListGroupsResult:
        """List the groups of all shards."""
        return cast("ListGroupsResult", await self._ask(request or ListGroups()))

    async def describe_groups(self, *group_ids: str) -> list[DescribeGroupResult]:
        """Describe groups, in the order asked."""
        ticket = _Awaited()
        self.submit_all([DescribeGroup(group_id) for group_id in group_ids], ticket)
        return cast("list[DescribeGroupResult]", await ticket.future)

    async def delete_groups(self, *requests: DeleteGroup) -> list[ErrorCode]:
        """Delete Empty groups and their offsets, answered in the order asked."""
        ticket = _Awaited()
        self.submit_all(requests, ticket)
        return cast("list[ErrorCode]", await ticket.future)

    async def delete_offsets(self, request: OffsetDelete) -> OffsetDeleteResult:
        """Delete offsets of topics that the group does not subscribe to."""
        return cast("OffsetDeleteResult", await self._ask(request))

    async def change_topics(self, request: ChangeTopics) -> ChangeTopicsResult:
        """Create, grow and delete topics of static mode."""
        return cast("ChangeTopicsResult", await self._ask(request))

    async def alter_group_configs(self, request: AlterGroupConfigs) -> AlterGroupConfigsResult:
        """Change configs of single groups; NOT_CONTROLLER in a host without topics."""
        return cast("AlterGroupConfigsResult", await self._ask(request))

    async def _ask(self, request: Request) -> Any:
        ticket = _Awaited()
        self.submit(request, ticket)
        return await ticket.future

    # --- For metrics ------------------------------------------------------------------------------

    def groups_by_state(self) -> dict[GroupState, int]:
        """Count the groups in each state; walks all groups."""
        counts = dict.fromkeys(GroupState, 0)
        for shard in self._shards():
            for state, count in shard.groups_by_state().items():
                counts[state] += count
        return counts

    def offset_count(self) -> int:
        """Count the committed offsets; walks all groups."""
        return sum(shard.offset_count() for shard in self._shards())

    def member_count(self) -> int:
        """Count the members; walks all groups."""
        return sum(shard.member_count() for shard in self._shards())

    def _shards(self) -> Iterator[Shard]:
        for slot in self._owner.slots.values():
            if isinstance(slot.shard, Shard):
                yield slot.shard


class _Closed:
    """Stands where a shard was once the coordinator stops: clients look for another coordinator."""

    def submit(self, request: Request, ticket: Ticket, now: Now) -> None:
        """Answer at once."""
        ticket.resolve(refuse(request, ErrorCode.NOT_COORDINATOR))


class _Awaited:
    """A ticket for those who await."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def resolve(self, result: Any) -> None:
        if not self.future.done():  # the caller may have been cancelled
            self.future.set_result(result)


class _Part:
    """The ticket of one of several requests."""

    __slots__ = ("_many", "_position")

    def __init__(self, many: _Many, position: int) -> None:
        self._many = many
        self._position = position

    def resolve(self, result: Result) -> None:
        self._many.take(self._position, result)


class _Many:
    """Collects the answers of several requests."""

    def __init__(self, count: int, ticket: ManyTicket) -> None:
        self._results: list[Result | None] = [None] * count
        self._left = count
        self._ticket = ticket

    def begin(self, submit: Callable[[Request, Ticket], None], requests: Sequence[Request]) -> None:
        if not requests:
            self._ticket.resolve([])
        for position, request in enumerate(requests):
            submit(request, _Part(self, position))

    def take(self, position: int, result: Result) -> None:
        self._results[position] = result
        self._left -= 1
        if self._left == 0:
            self._ticket.resolve(self._results)


class _Listing:
    """A ListGroups over all shards, a few at a time so that the loop stays free."""

    def __init__(
        self,
        request: ListGroups,
        ticket: Ticket,
        places: Sequence[_Submits],
        clock: Clock,
        timer: Callable[[], float],
    ) -> None:
        self._request = request
        self._places = places
        self._clock = clock
        self._timer = timer
        self._next = 0
        self._ticket = ticket
        self._parts = _Many(len(places), self)

    def advance(self) -> None:
        """Ask the next shards."""
        until = self._timer() + LISTING_SLICE_S
        while self._next < len(self._places):
            position = self._next
            self._next += 1
            part = _Part(self._parts, position)
            self._places[position].submit(self._request, part, self._clock.now())
            if self._timer() >= until and self._next < len(self._places):
                asyncio.get_running_loop().call_soon(self.advance)
                return

    def resolve(self, results: list[ListGroupsResult]) -> None:
        """All have answered. A shard that was dropped meanwhile is skipped, as Kafka skips one that
        moved; one that is loading makes the whole answer wait (spec 11.1).
        """
        for result in results:
            if result.error not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                self._ticket.resolve(ListGroupsResult(result.error))
                return
        groups = tuple(group for result in results for group in result.groups)
        self._ticket.resolve(ListGroupsResult(ErrorCode.NONE, groups))
