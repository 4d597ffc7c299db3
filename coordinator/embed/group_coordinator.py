"""GroupCoordinator: the coordinator in one object, without a wire.

The daemon uses ``submit`` for every request. The async methods are for hosts that embed us.

Long because it is the whole in-process API.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from groupkeeper.coordinator.cluster.end_samples import EndSampler
from groupkeeper.coordinator.cluster.feed import ClusterFeed, NoTopics
from groupkeeper.coordinator.cluster.group_configs import GroupConfigStore
from groupkeeper.coordinator.cluster.topics import Topics
from groupkeeper.coordinator.core.assignors.types import Assignment, TopicPartition
from groupkeeper.coordinator.core.cluster.shard import ClusterShard
from groupkeeper.coordinator.core.consumer.validation import heartbeat_error
from groupkeeper.coordinator.core.declarations import ShardRoute
from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.groups.census import Census, Tally
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.records import NO_OFFSET, OffsetsAdopted
from groupkeeper.coordinator.core.requests.admin import (
    DeleteGroup,
    ListGroups,
    ListGroupsResult,
    ReadGroup,
    ReadGroupResult,
)
from groupkeeper.coordinator.core.requests.consumer import ConsumerGroupHeartbeatResult
from groupkeeper.coordinator.core.requests.offsets import OffsetDeleteResult
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.requests.topics import ChangeTopics
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.core.shard import Shard
from groupkeeper.coordinator.embed.consumer_messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from groupkeeper.coordinator.embed.group_assignment import assign
from groupkeeper.coordinator.embed.group_metadata import GroupMetadata, group_metadata
from groupkeeper.coordinator.embed.life import Life
from groupkeeper.coordinator.embed.messages import (
    NOBODY,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    checked_request,
    offset_delete,
)
from groupkeeper.coordinator.embed.parts import as_topics, check_parts
from groupkeeper.coordinator.runtime.clock import Clock, LoopClock
from groupkeeper.coordinator.runtime.group_loading import GroupLoader
from groupkeeper.coordinator.runtime.lane import Observer
from groupkeeper.coordinator.runtime.limit_log import LimitLog
from groupkeeper.coordinator.runtime.listing import Collected, GroupsTicket, Listings
from groupkeeper.coordinator.runtime.owner import ShardOwner
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.runtime.shards import (
    MakeShard,
    group_shards,
    make_cluster_shard,
)
from groupkeeper.coordinator.runtime.slot import Slot
from groupkeeper.coordinator.runtime.stats import Stats
from groupkeeper.coordinator.runtime.tickets import Awaited, Closed, Many, Place, Ticket
from groupkeeper.storage.base import CLUSTER_SHARD, LoadsGroups, OffsetStorage
from groupkeeper.storage.host_values import checked

if TYPE_CHECKING:
    from groupkeeper.coordinator.embed.commit_log import OffsetCommitLog

MAX_ROUTED_GROUPS: Final = 100_000
"""How many groups have a remembered shard. The hash of an id costs more than the rest of a
heartbeat.
"""

MAX_ROUTED_CHARS: Final = 128
"""A longer id is hashed each time. At up to 4 bytes per character, the remembered ids need at most
65 MB.
"""

LISTED_AT_ONCE: Final = 100
"""How many groups a listing for a host reads at once."""


class GroupCoordinator:
    """Groups and offsets over a storage."""

    def __init__(
        self,
        storage: OffsetStorage,
        config: CoordinatorConfig | None = None,
        topics: Topics | Mapping[str, int] | None = None,
        *,
        clock: Clock | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Create the coordinator. Nothing runs before ``start``.

        Without ``topics`` every topic and partition exists. ``topics`` may also be a mapping of
        names to numbers of partitions. Raises TypeError for any other type, and ValueError for
        invalid topics.
        """
        check_parts(storage, config)
        self.config = config or CoordinatorConfig()
        self.topics = topics = as_topics(topics, self.config)
        self.group_configs = GroupConfigStore(self.config.shards, self.config)
        """The durable configs of single groups."""
        self._storage = storage
        own_clock = LoopClock() if clock is None else None
        self._clock: Clock = clock or cast("Clock", own_clock)
        self._listings = Listings(self._clock, timer)
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
        limit_log = LimitLog(lambda: self._clock.now().monotonic_ms / 1000)
        self._census = Census(
            self.config.max_groups, self.config.max_metadata_bytes, limit_log.refused
        )
        make_groups = group_shards(self._census, are_topics_stored=storage.limits.keeps_topics)
        makers |= dict.fromkeys(range(self.config.shards), make_groups)
        self._observer = observer
        self._owner = ShardOwner(storage, self.config, self._clock, observer, makers, timer)
        self.workshop = self._owner.workshop
        """What the core asked to compute, and the patterns of all groups."""
        self._places: dict[int, Place] = dict(self._owner.slots)
        self._routed: dict[str, Place] = {}
        self._group_loader: GroupLoader | None = None
        if isinstance(storage, LoadsGroups):
            self._group_loader = GroupLoader(
                storage, observer, self.config, self._clock, self._group_read, timer
            )
            # A load may have left out a group. The next request for it must load it.
            self._owner.recovery.before_answers = self._routed.clear
        self._end_sampler: EndSampler | None = None
        if topics is not None and self.config.end_offset_interval_ms > 0:
            cluster = self._owner.slots[CLUSTER_SHARD]
            self._end_sampler = EndSampler(topics, cluster.add_events, lambda: self.stats.loads)
        self._sampling: asyncio.Task[None] | None = None
        self._life = Life(
            storage,
            self.config,
            self._owner,
            own_clock,
            loaded=self._loaded,
            stopping=self._stopping,
        )

    # --- Life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, acquire the leases and load. Returns when every shard answers.

        Raises StoreRefused if a person has to act, and StorageError if the store cannot be opened.
        A busy store (a full disk, a locked database) and a failed load are retried without end. If
        the call fails or is cancelled before the store is open, it may be repeated. If it fails or
        is cancelled later, the coordinator is stopped. A coordinator that was stopped cannot be
        started again. Raises RuntimeError if the coordinator was already started or stopped, or is
        stopped during the call.
        """
        await self._life.start()

    async def stop(self, timeout_ms: int | None = None) -> None:
        """Stop the coordinator: refuse parked requests, make waiting records durable, fold, release
        the leases and close the store. It ends within ``timeout_ms`` (by default
        ``drain_timeout_ms``), whatever the store does. A ``start`` that is under way raises
        RuntimeError.

        The first call begins the stop, and every call waits for its end. A call that is cancelled
        does not cancel the stop.
        """
        await self._life.stop(self.config.drain_timeout_ms if timeout_ms is None else timeout_ms)

    async def _loaded(self) -> None:
        """Create the configured topics and start to sample the ends. Called when every shard
        answers.
        """
        if self.topics is not None:
            await self.topics.ensure_configured()
        if self._end_sampler is not None:
            sampling = self._end_sampler.run(self.config.end_offset_interval_ms)
            self._sampling = asyncio.get_running_loop().create_task(sampling)

    def _stopping(self) -> None:
        """Refuse later requests, and requests that wait for the load of a group. Then stop the
        samples of ends, and write the last ones.
        """
        self._places = dict.fromkeys(self._places, Closed())
        self._routed.clear()
        if self._group_loader is not None:
            self._group_loader.stop()
        if self._sampling is not None and self._end_sampler is not None:
            self._sampling.cancel()
            for _ in self._end_sampler.sample():  # write the last ends to the log
                pass

    def next_deadline(self) -> int | None:
        """Return the time of the next session, rebalance or retention deadline (monotonic ms), or
        None if there is none. The time may be too early, but never too late.
        """
        return self._owner.next_deadline()

    async def clock_moved(self) -> None:
        """Expire everything that is due. A host that moved its own clock calls this. Returns once
        it is durable.
        """
        await self._owner.clock_moved()

    @property
    def is_ready(self) -> bool:
        """True if every shard answers."""
        return self.not_ready is None

    @property
    def not_ready(self) -> str | None:
        """The reason why groups are not served, in one line. None if they are served."""
        if self.start_waits_for or not self._life.is_running:
            return self.start_waits_for or "the coordinator is not running"
        if self.refusal:
            return self.refusal
        loading = self._owner.loading_count()
        if not loading:
            return None
        problem = self._owner.recovery.problem
        if problem:
            return f"the store failed, and its shards are loaded again: {problem}"
        return f"{loading} of {len(self._owner.slots)} shards are loading"

    @property
    def start_waits_for(self) -> str:
        """The reason why a start still retries to open or load the store. Empty if it does not."""
        return self._life.start_waits_for

    @property
    def refusal(self) -> str:
        """Why a person has to act before groups are served again. Empty if no one has to."""
        return self._owner.recovery.refusal

    def when_store_is_taken(self, call: Callable[[], None]) -> None:
        """Set the function to call when another process writes to a store of which we are the sole
        owner (``StorageLimits.sole_owner``).

        From then on the coordinator refuses every group, so that the two owners do not alternate.
        ``not_ready`` returns the reason. The host can only stop the coordinator.
        """
        self._owner.recovery.store_taken = call

    @property
    def stats(self) -> Stats:
        """The counters since the start."""
        return self._owner.stats

    # --- Requests ---------------------------------------------------------------------------------

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Submit a request. The ticket is resolved exactly once. If nothing has to wait, this
        happens before ``submit`` returns. Before ``start`` every shard answers as if it were
        LOADING.
        """
        try:
            place = self._routed[request.group_id]  # type: ignore[index]
        except KeyError:  # its group has no place yet, or it is not about one group
            if request.route is ShardRoute.CLUSTER:
                self._submit_to_cluster(request, ticket)
                return
            if request.route is ShardRoute.EVERY:
                self.submit_listing(request, Collected(ticket))  # type: ignore[arg-type]
                return
            place = self._route(request.group_id)  # type: ignore[arg-type]
        place.submit(request, ticket, self._clock.now())

    def submit_listing(self, request: ListGroups, ticket: GroupsTicket) -> Callable[[], None]:
        """Start a listing of the groups of all shards. ``ticket`` gets them in parts. Return a
        function that cancels it.
        """
        places = [self._places[shard_id] for shard_id in range(self.config.shards)]
        if isinstance(places[0], Closed):
            # All places are closed. A listing would skip each one and return an empty list.
            ticket.resolve(ListGroupsResult(ErrorCode.NOT_COORDINATOR))
            return lambda: None
        return self._listings.begin(request, ticket, places)

    def submit_all(self, requests: Sequence[Request], ticket: Ticket) -> None:
        """Submit several requests and answer them together, in their order."""
        Many(len(requests), ticket).begin(self.submit, requests)

    def _route(self, group_id: str) -> Place:
        place = self._places[shard_of(group_id, self.config.shards)]
        if self._group_loader is not None and isinstance(place, Slot):
            place = self._group_loader.place_of(group_id, place)
        self._remember(group_id, place)
        return place

    def _remember(self, group_id: str, place: Place) -> None:
        if len(group_id) > MAX_ROUTED_CHARS:
            return
        if len(self._routed) >= MAX_ROUTED_GROUPS:
            self._routed.clear()  # groups in use are added again by their next request
        self._routed[group_id] = place

    def _group_read(self, group_id: str, slot: Slot | None) -> None:
        """Remember the slot of a group that was loaded, or forget a group whose load failed."""
        if slot is None:
            self._routed.pop(group_id, None)
        else:
            self._remember(group_id, slot)

    def _submit_to_cluster(self, request: Request, ticket: Ticket) -> None:
        place = self._places.get(CLUSTER_SHARD, Closed())  # a host without topics has no controller
        if isinstance(request, ChangeTopics) and request.delete and self._lack_topic_ids():
            self.stats.refused_loading += 1
            self._owner.slots[CLUSTER_SHARD].refuse([(ticket, request.loading_answer())])
            return
        place.submit(request, ticket, self._clock.now())

    def _lack_topic_ids(self) -> bool:
        """Return whether a deletion of topics has to wait. A deletion finds offsets by their topic
        ids, so these must be durable first. The append of another lane, which stores them, may
        still fail.
        """
        slot = self._owner.slots.get(CLUSTER_SHARD)
        cluster = None if slot is None else slot.shard
        if not isinstance(cluster, ClusterShard):
            return False  # no controller, or a LOADING one, which answers by itself
        return (
            self._owner.loading_count() > 0
            or any(shard.lacks_topic_ids(cluster.topics) for shard in self._shards())
            or any(lane.is_writing(OffsetsAdopted) for lane in self._owner.lanes)
        )

    # --- For hosts that embed us ------------------------------------------------------------------

    async def join_group(self, request: JoinGroupRequest) -> JoinGroupResponse:
        """Enter a group or its next generation. Waits for the end of the join phase."""
        asked = checked_request(request, JoinGroupRequest).to_core(self.config)
        return JoinGroupResponse.of(await self._ask(asked))

    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Fetch a member's assignment. Waits for the leader's SyncGroup."""
        asked = checked_request(request, SyncGroupRequest).to_core()
        return SyncGroupResponse.of(await self._ask(asked))

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Report that a member is alive. After REBALANCE_IN_PROGRESS the member must join again."""
        asked = checked_request(request, HeartbeatRequest).to_core()
        return HeartbeatResponse(error_code=await self._ask(asked))

    async def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Remove a member from its group. The others rebalance at once."""
        asked = checked_request(request, LeaveGroupRequest).to_core()
        return LeaveGroupResponse.of(await self._ask(asked))

    async def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        """Join a consumer group, stay in it or leave it. Needs topics, and ``consumer`` among the
        ``rebalance_protocols``.
        """
        request = checked_request(request, ConsumerGroupHeartbeatRequest)
        pattern_error = request.pattern and self.workshop.patterns.error(request.pattern)
        asked = request.to_core(self._observer.image, pattern_error or None)
        wrong = heartbeat_error(asked, self.config.consumer_assignors, client_makes_id=True)
        if "consumer" not in self.config.rebalance_protocols:
            result = ConsumerGroupHeartbeatResult(ErrorCode.UNSUPPORTED_VERSION)
        elif wrong is not None:
            result = ConsumerGroupHeartbeatResult(wrong.error, wrong.message)
        else:
            result = await self._ask(asked)
        return ConsumerGroupHeartbeatResponse.of(result, self._observer.image)

    async def commit_offsets(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Store offsets. Those without an error are durable when this returns."""
        asked = checked_request(request, OffsetCommitRequest).to_core()
        return OffsetCommitResponse.of(request, await self._ask(asked))

    async def fetch_offsets(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Read committed offsets. Raises GroupError if the group cannot be read now."""
        asked = checked_request(request, OffsetFetchRequest).to_core()
        return OffsetFetchResponse.of(await self._ask(asked))

    async def get_committed_offset(self, group_id: str, topic: str, partition: int) -> int | None:
        """Return one committed offset, or None if there is none. Raises GroupError.

        A committed -1 is also None: on the wire it means that there is no offset.
        """
        request = OffsetFetchRequest(group_id=group_id, topics={topic: [partition]})
        found = (await self.fetch_offsets(request)).offsets[topic][partition]
        if found.error_code is not ErrorCode.NONE:
            raise GroupError(found.error_code)
        return None if found.offset == NO_OFFSET else found.offset

    async def get_group(self, group_id: str) -> GroupMetadata | None:
        """Return a group and its members, or None if it does not exist. Raises GroupError."""
        (group,) = await self._read_groups([checked(group_id, str, "group_id")])
        return group

    async def list_groups(self) -> list[GroupMetadata]:
        """Return all groups. Raises GroupError if a shard is LOADING, was lost or is closed."""
        listing: ListGroupsResult = await self.ask(ListGroups())
        if listing.error is not ErrorCode.NONE:
            raise GroupError(listing.error)
        if not listing.is_whole:  # Kafka sends the incomplete list; a host gets an error
            raise GroupError(ErrorCode.NOT_COORDINATOR)
        ids = [group.group_id for group in listing.groups]
        groups: list[GroupMetadata] = []
        for start in range(0, len(ids), LISTED_AT_ONCE):
            found = await self._read_groups(ids[start : start + LISTED_AT_ONCE])
            groups += [
                group for group in found if group is not None
            ]  # None: deleted since the listing
            await asyncio.sleep(0)
        return groups

    async def perform_assignment(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Assignment:
        """Assign partitions to the members with the assignor that they have chosen. For hosts that
        compute assignments between the leader's JoinGroup and its SyncGroup. Raises GroupError.
        """
        group = await self.get_group(group_id)
        if group is None:
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND)
        return assign(group, partitions)

    async def delete_groups(self, *group_ids: str) -> dict[str, ErrorCode]:
        """Delete Empty groups with their offsets. Return one error code per group."""
        ids = list(dict.fromkeys(checked(group_ids, list[str], "group_ids")))
        codes = await self._ask_all([DeleteGroup(group_id, NOBODY) for group_id in ids])
        return dict(zip(ids, codes, strict=True))

    async def delete_offsets(
        self, group_id: str, partitions: Mapping[str, Iterable[int]]
    ) -> dict[str, dict[int, ErrorCode]]:
        """Delete offsets of topics that no member subscribes to. Return one error code per
        partition. Raises GroupError if the whole request is refused.
        """
        result: OffsetDeleteResult = await self.ask(offset_delete(group_id, partitions))
        if result.error is not ErrorCode.NONE:
            raise GroupError(result.error)
        return {topic: dict(rows) for topic, rows in result.topics}

    def commit_log(self, group_id: str, since_ms: int = 0) -> AsyncIterator[OffsetCommitLog]:
        """Iterate over the history of a group's offsets from a time on (wall clock), oldest first.

        Raises StorageError if the storage keeps no events.
        """
        # imported here, because no daemon uses it
        from groupkeeper.coordinator.embed.commit_log import read_commit_log

        return read_commit_log(self._storage, group_id, since_ms)

    async def ask(self, request: Request) -> Any:
        """Submit a request of the core and wait for its result.

        Raises RuntimeError before ``start`` and in another event loop. Raises TypeError for a field
        of the wrong type. So do the other async methods.
        """
        return await self._ask(checked(request, type(request)))

    async def _ask(self, request: Request) -> Any:
        """Submit a request whose types were checked."""
        self._life.check_started()
        ticket = Awaited()
        self.submit(request, ticket)
        return await ticket.future

    async def _ask_all(self, requests: Sequence[Request]) -> list[Any]:
        self._life.check_started()
        ticket = Awaited()
        self.submit_all(requests, ticket)
        return cast("list[Any]", await ticket.future)

    async def _read_groups(self, group_ids: Sequence[str]) -> list[GroupMetadata | None]:
        results: list[ReadGroupResult] = await self._ask_all([ReadGroup(g) for g in group_ids])
        for result in results:
            if result.error not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                raise GroupError(result.error)
        return [None if r.group is None else group_metadata(r.group) for r in results]

    # --- For metrics ------------------------------------------------------------------------------

    def groups_by_state(self) -> dict[GroupState, int]:
        """Return the number of groups of all types in each state."""
        counts = dict.fromkeys(GroupState, 0)
        for (_, state), count in self.groups_by_type().items():
            counts[state] += count
        return counts

    def groups_by_type(self) -> dict[tuple[GroupType, GroupState], int]:
        """Return the number of groups of each type in each of its states."""
        counts = Counter(Tally().by_state)
        for shard in self._shards():
            counts.update(shard.groups_by_type())
        return dict(counts)

    def offset_count(self) -> int:
        """Return the number of committed offsets."""
        return sum(shard.offset_count() for shard in self._shards())

    def member_count(self) -> int:
        """Return the number of members."""
        return sum(shard.member_count() for shard in self._shards())

    @property
    def groups_refused(self) -> int:
        """The number of requests that were refused because of ``max_groups``."""
        return self._census.refused

    def live_groups(self) -> Iterator[Mapping[str, Group]]:
        """Iterate over the groups of each shard that answers. They change as the loop runs."""
        for shard in self._shards():
            yield shard.groups

    def _shards(self) -> Iterator[Shard]:
        for slot in self._owner.slots.values():
            if isinstance(slot.shard, Shard):
                yield slot.shard
