"""The coordinator in one object, without a server: starts, stops, and passes requests to shards.

The handlers of the daemon use its ``router`` for every request. A host (a program that embeds the
coordinator) uses the async methods of ``GroupCoordinator``.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from groupkeeper.coordinator.cluster.end_samples import EndSampler
from groupkeeper.coordinator.cluster.feed import ClusterFeed, NoTopics
from groupkeeper.coordinator.cluster.group_configs import GroupConfigStore
from groupkeeper.coordinator.cluster.topics import Topics
from groupkeeper.coordinator.cluster.upstream_record import UpstreamRecord
from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.cluster.shard import ClusterShard
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.groups.census import Census, Tally
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.records import OffsetsAdopted
from groupkeeper.coordinator.core.requests.admin import (
    ListGroups,
)
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.requests.topics import ChangeTopics
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.core.shard import Shard
from groupkeeper.coordinator.embed.life import Life
from groupkeeper.coordinator.embed.parts import as_topics, check_parts
from groupkeeper.coordinator.embed.router import Router
from groupkeeper.coordinator.runtime.clock import Clock, LoopClock
from groupkeeper.coordinator.runtime.group_loading import GroupLoader
from groupkeeper.coordinator.runtime.lane import Observer
from groupkeeper.coordinator.runtime.limit_log import LimitLog
from groupkeeper.coordinator.runtime.listing import GroupsTicket, Listings
from groupkeeper.coordinator.runtime.owner import ShardOwner
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.runtime.shards import (
    MakeShard,
    group_shards,
    make_cluster_shard,
)
from groupkeeper.coordinator.runtime.stats import Stats
from groupkeeper.coordinator.runtime.tickets import Awaited, Closed, Many, Ticket
from groupkeeper.storage.base import CLUSTER_SHARD, LoadsGroups, OffsetStorage
from groupkeeper.storage.host_values import checked

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.events import Event


class BareCoordinator:
    """Groups and offsets over a storage: starts, stops, and passes requests to shards."""

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
        self.upstream_record = UpstreamRecord()
        """The durable facts about the upstream cluster (gateway mode)."""
        self._storage = storage
        own_clock = LoopClock() if clock is None else None
        self._clock: Clock = clock or cast("Clock", own_clock)
        makers: dict[int, MakeShard] = {}
        observer: Observer = NoTopics()
        if topics is not None:
            makers[CLUSTER_SHARD] = make_cluster_shard
            observer = ClusterFeed(
                topics,
                self.group_configs,
                self.upstream_record,
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
        self._owner.recovery.held_elsewhere = self._census.forget
        self.workshop = self._owner.workshop
        """The computations that the core has asked for, and the patterns of all groups."""
        self.router = Router(
            self._owner.slots,
            self.config.shards,
            self._clock,
            Listings(self._clock, timer),
            self.group_configs,
            self._submit_to_cluster,
        )
        """Passes requests to shards. Handlers use it directly."""
        self._group_loader: GroupLoader | None = None
        if isinstance(storage, LoadsGroups):
            self._group_loader = GroupLoader(
                storage, observer, self.config, self._clock, self.router.group_read, timer
            )
            self.router.place_of = self._group_loader.place_of
            # A load may have left out a group. The next request for it must load it.
            self._owner.recovery.before_answers = self.router.forget_groups
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

    # --- Start and stop ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, acquire the leases and load the shards. Returns when every shard answers.

        A busy store (a full disk, a locked database) and a failed load are retried without end. If
        the call fails or is cancelled before the store is open, it may be repeated. If it fails or
        is cancelled after that, the coordinator is stopped, and cannot be started again.

        Raises StoreRefused if a person has to act, and StorageError if the store cannot be opened.
        Raises RuntimeError if the coordinator was already started or stopped, or is stopped during
        the call.
        """
        await self._life.start()

    async def stop(self, timeout_ms: int | None = None) -> None:
        """Stop the coordinator. Parked requests are refused, waiting records become durable, the
        present state of groups is written (a fold), and the leases are released.

        The stop ends within ``timeout_ms`` (by default ``drain_timeout_ms``), even if the store
        does not answer. The first call begins the stop, and every call waits for its end. A call
        that is cancelled does not cancel the stop. A running ``start`` raises RuntimeError.
        """
        await self._life.stop(self.config.drain_timeout_ms if timeout_ms is None else timeout_ms)

    async def _loaded(self) -> None:
        """Create the configured topics and start to sample the ends of partitions. Called when
        every shard answers.
        """
        if self.topics is not None:
            await self.topics.ensure_configured()
        if self._end_sampler is not None:
            sampling = self._end_sampler.run(self.config.end_offset_interval_ms)
            self._sampling = asyncio.get_running_loop().create_task(sampling)

    def _stopping(self) -> None:
        """Refuse later requests, and those that wait for the load of a group. Then write the last
        ends of partitions to the event log.
        """
        self.router.close()
        if self._group_loader is not None:
            self._group_loader.stop()
        if self._sampling is not None and self._end_sampler is not None:
            self._sampling.cancel()
            for _ in self._end_sampler.sample():  # write the last ends to the log
                pass

    def _check_started(self) -> None:
        self._life.check_started()

    def add_cluster_events(self, events: list[Event]) -> bool:
        """Write events that belong to no group. Return False if the cluster shard is not loaded, or
        if there is no cluster shard."""
        slot = self._owner.slots.get(CLUSTER_SHARD)
        return slot is not None and slot.add_events(events)

    def next_deadline(self) -> int | None:
        """Return the time of the next session, rebalance or retention deadline (monotonic ms), or
        None if there is none. The time may be too early, but never too late.
        """
        return self._owner.next_deadline()

    async def clock_moved(self) -> None:
        """Expire every deadline that is due. A host calls this after it moved its own clock.
        Returns when the changes are durable.
        """
        await self._owner.clock_moved()

    @property
    def is_ready(self) -> bool:
        """True if the coordinator runs and every shard answers."""
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
        """Why a start cannot open or load the store yet, in one line; empty if it need not wait."""
        return self._life.start_waits_for

    @property
    def refusal(self) -> str:
        """Why a person must act before groups are served again; empty if nobody must act."""
        return self._owner.recovery.refusal

    def when_store_is_given_up(self, call: Callable[[], None]) -> None:
        """Set the function to call when the coordinator must not use the store any more: its disk
        has failed to sync, or it is a ``StorageLimits.sole_owner`` and another process has written.

        From then on the coordinator refuses every group, and ``not_ready`` returns the reason. The
        host can only stop it. It may start another one over the same store.
        """
        self._owner.recovery.store_given_up = call

    @property
    def stats(self) -> Stats:
        """The counters since the start."""
        return self._owner.stats

    @property
    def _image(self) -> TopicImage:
        return self._observer.image

    # --- Requests ---------------------------------------------------------------------------------

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Submit a request, as ``Router.submit`` does."""
        self.router.submit(request, ticket)

    def submit_listing(self, request: ListGroups, ticket: GroupsTicket) -> Callable[[], None]:
        """Start a listing of the groups of all shards. ``ticket`` gets them in parts.

        Returns a function that cancels the listing.
        """
        return self.router.submit_listing(request, ticket)

    def submit_all(self, requests: Sequence[Request], ticket: Ticket) -> None:
        """Submit several requests. The ticket gets all answers in one list, in the order of the
        requests.
        """
        Many(len(requests), ticket).begin(self.submit, requests)

    async def ask(self, request: Request) -> Any:
        """Submit a request of the core and wait for its result.

        Raises RuntimeError before ``start`` and in another event loop. Raises TypeError for a field
        of the wrong type. The other async methods raise the same errors.
        """
        request = checked(request, type(request))
        self._check_started()
        ticket = Awaited()
        self.submit(request, ticket)
        return await ticket.future

    def _submit_to_cluster(self, request: Request, ticket: Ticket) -> None:
        slot = self._owner.slots.get(CLUSTER_SHARD)
        if slot is None or self.router.is_closed:  # there are no topics, or this is after a stop
            Closed().submit(request, ticket, self._clock.now())
            return
        if isinstance(request, ChangeTopics) and request.delete and self._lack_topic_ids():
            self.stats.refused_loading += 1
            slot.refuse([(ticket, request.loading_answer())])
            return
        slot.submit(request, ticket, self._clock.now())

    def _lack_topic_ids(self) -> bool:
        """Return True if a deletion of topics must wait until all offsets durably have topic ids.

        A deletion finds offsets by these ids, and an append that stores them may still fail.
        """
        slot = self._owner.slots.get(CLUSTER_SHARD)
        cluster = None if slot is None else slot.shard
        if not isinstance(cluster, ClusterShard):
            return False  # the cluster shard is absent, or is LOADING and refuses the request
        return (
            self._owner.loading_count() > 0
            or any(shard.lacks_topic_ids(cluster.topics) for shard in self._shards())
            or any(lane.is_writing(OffsetsAdopted) for lane in self._owner.lanes)
        )

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
        """Return how many members the groups of this process have together."""
        return sum(shard.member_count() for shard in self._shards())

    @property
    def groups_refused(self) -> int:
        """The number of requests that were refused because of ``max_groups``."""
        return self._census.refused

    def live_groups(self) -> Iterator[Mapping[str, Group]]:
        """Yield the groups of each shard that answers, by group id. The mappings are live."""
        for shard in self._shards():
            yield shard.groups

    def is_loading(self, group_id: str) -> bool:
        """Return True if the shard of a group does not answer: the group may or may not exist."""
        return self._owner.slots[shard_of(group_id, self.config.shards)].shard is None

    def _shards(self) -> Iterator[Shard]:
        for slot in self._owner.slots.values():
            if isinstance(slot.shard, Shard):
                yield slot.shard
