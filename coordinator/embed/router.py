"""Passes each request to its shard. This is the part of the coordinator that handlers use, so all
of its code is in the way of every request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from groupkeeper.coordinator.cluster.group_configs import GroupConfigStore
from groupkeeper.coordinator.core.declarations import ShardRoute
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.admin import ListGroups, ListGroupsResult
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.runtime.clock import Clock
from groupkeeper.coordinator.runtime.listing import Collected, GroupsTicket, Listings
from groupkeeper.coordinator.runtime.slot import Slot
from groupkeeper.coordinator.runtime.tickets import Closed, Place, Ticket

MAX_ROUTED_GROUPS: Final = 100_000
"""The largest number of groups whose shard is cached. Without the cache, the hash of the group's id
costs more than the rest of a heartbeat."""

MAX_ROUTED_CHARS: Final = 128
"""The longest group id that is cached. Longer ids are hashed each time. A character needs up to 4
bytes, so the cached ids need at most 65 MB."""


class Router:
    """Knows the place of every group and shard."""

    def __init__(
        self,
        places: Mapping[int, Place],
        shards: int,
        clock: Clock,
        listings: Listings,
        group_configs: GroupConfigStore,
        to_cluster: Callable[[Request, Ticket], None],
    ) -> None:
        """Create the router of so many group shards. ``places`` has them by id, and perhaps the
        cluster shard, whose requests go to ``to_cluster``.
        """
        self.group_configs = group_configs
        """The configs that administrators have set for groups."""
        self.place_of: Callable[[str, Slot], Place] | None = None
        """Returns the place of a group if the store loads groups by name; None if it does not."""
        self._places = dict(places)
        self._shards = shards
        self._now = clock.now
        self._listings = listings
        self._to_cluster = to_cluster
        self._routed: dict[str, Place] = {}
        self.is_closed = False
        """True if every request is refused, because the coordinator stops."""

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Submit a request. The ticket gets exactly one answer. If nothing has to wait, it gets the
        answer before ``submit`` returns.

        Before the start every shard answers as if it were LOADING.
        """
        place = self._routed.get(request.group_id)  # type: ignore[arg-type]
        if place is None:  # the group is not cached, or the request names no single group
            if request.route is ShardRoute.CLUSTER:
                self._to_cluster(request, ticket)
                return
            if request.route is ShardRoute.EVERY:
                self.submit_listing(request, Collected(ticket))  # type: ignore[arg-type]
                return
            if request.route is ShardRoute.ONE:
                place = self._places[request.shard_id]  # type: ignore[union-attr]
            else:
                place = self._route(request.group_id)  # type: ignore[arg-type]
        if isinstance(place, Slot):  # compiled code then calls it without a look-up
            place.submit(request, ticket, self._now())
        else:
            place.submit(request, ticket, self._now())

    def submit_listing(self, request: ListGroups, ticket: GroupsTicket) -> Callable[[], None]:
        """Start a listing of the groups of all shards. ``ticket`` gets them in parts.

        Returns a function that cancels the listing.
        """
        places = [self._places[shard_id] for shard_id in range(self._shards)]
        if isinstance(places[0], Closed):
            # After a stop. A listing would skip the closed shards and return an empty list.
            ticket.resolve(ListGroupsResult(ErrorCode.NOT_COORDINATOR))
            return lambda: None
        return self._listings.begin(request, ticket, places)

    def close(self) -> None:
        """Refuse later requests."""
        self.is_closed = True
        self._places = dict.fromkeys(self._places, Closed())
        self._routed.clear()

    def forget_groups(self) -> None:
        """Ask ``place_of`` again for every group that is named next."""
        self._routed.clear()

    def group_read(self, group_id: str, slot: Slot | None) -> None:
        """Cache the slot of a group that was loaded. If the load failed, forget the group."""
        if slot is None:
            self._routed.pop(group_id, None)
        else:
            self._remember(group_id, slot)

    def _route(self, group_id: str) -> Place:
        place = self._places[shard_of(group_id, self._shards)]
        if self.place_of is not None and isinstance(place, Slot):
            place = self.place_of(group_id, place)
        self._remember(group_id, place)
        return place

    def _remember(self, group_id: str, place: Place) -> None:
        if len(group_id) > MAX_ROUTED_CHARS:
            return
        if len(self._routed) >= MAX_ROUTED_GROUPS:
            self._routed.clear()  # groups in use are added again by their next request
        self._routed[group_id] = place
