"""A coordinator in the state that a slow frame needs, on a loop that knows what each callback cost.

Everything is real but the sockets: connections, handlers, core, lane, SQLite with its writer's
thread and its fold. Of a callback the CPU time of the loop's thread counts, so that neither a busy
neighbour nor the disk is taken for our fault.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.consumer import ConsumerGroupHeartbeat
from groupkeeper.coordinator.core.requests.membership import (
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit
from groupkeeper.coordinator.daemon.watched_loop import WatchedLoop
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.coordinator.server.watch import CallbackWatch
from groupkeeper.protocol.packing import printed_topic_id
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from tests.helpers.wire.connections import Peer

TOPIC_ID: Final = uuid.UUID(int=1)
ORDERS: Final = 20_000
WIDE: Final = 60_000
MEMBER: Final = "fz-leader"
CROWD: Final = 500
MODERN: Final = "modern"
"""A consumer group with as many members."""
COMMITTED_AT_ONCE: Final = 5_000
FULL_METADATA: Final = "日" * 300
LOOK_S: Final = 0.01
QUIET_S: Final = 0.000_5
QUIET_LOOKS: Final = 4
"""When the loop did nothing for so many looks, all that will come of a frame has come: a Fetch or a
join may wait for much longer. Longer than the delay of the first join, too."""

_GROUPS: Final = ("g", "forming", "crowd", "modern", "full", "wide", "other", "")
_TOPICS: Final = ("orders", "wide", "absent", "")
WORDS: Final[dict[str, tuple[str, ...]]] = {
    "group_id": _GROUPS,
    "groups": _GROUPS,
    "groups_names": _GROUPS,
    "key": _GROUPS,
    "coordinator_keys": _GROUPS,
    "resource_name": (*_GROUPS, "1", "orders"),
    "name": (*_TOPICS, "range", "commit.monotonic", "offsets.retention.minutes"),
    "topic": _TOPICS,
    "topic_names": _TOPICS,
    "member_id": ("", MEMBER, "fz-crowd-1", "fz-modern-1"),
    "subscribed_topic_names": _TOPICS,
    "subscribed_topic_regex": ("orders|wide", ".*", "o.*", ""),
    "server_assignor": ("uniform", "range"),
    "group_instance_id": ("instance",),
    "protocol_type": ("consumer", "connect"),
    "protocol_name": ("range",),
    "value": ("true", "1", "5"),
}
"""What a field of this name may say that means something here."""

_STATES: Final = {
    "g": GroupState.STABLE,
    "forming": GroupState.COMPLETING_REBALANCE,
    "crowd": GroupState.STABLE,
}
_HOLD: Final = (("full", "orders", ORDERS, FULL_METADATA), ("wide", "wide", WIDE, ""))
"""Groups with offsets: of which topic, how many, with which metadata."""

_CLIENT: Final = Client("fz", "/127.0.0.1")


class ExactWatch(CallbackWatch):
    """Knows the worst callback since the last ``take_worst``, by its CPU time alone."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        super().__init__(read_s=time.thread_time)
        self.worst_s = 0.0
        self.worst_name = ""
        self.busy_s = 0.0
        self.itself: object = None
        """The task that measures: its steps are not the daemon's."""

    def begin(self) -> float:
        """See ``CallbackWatch``."""
        return time.thread_time()

    def end(self, begun_s: float, callback: object) -> None:
        """See ``CallbackWatch``."""
        used_s = time.thread_time() - begun_s
        self.busy_s += used_s
        if used_s > self.worst_s:
            task = getattr(callback, "__self__", None)
            if task is self.itself:
                return
            coroutine = getattr(task, "get_coro", lambda: None)()
            self.worst_s = used_s
            self.worst_name = str(getattr(coroutine or callback, "__qualname__", callback))

    def take_worst(self) -> tuple[float, str]:
        """The seconds and the name; begin anew."""
        worst = self.worst_s, self.worst_name
        self.worst_s, self.worst_name = 0.0, ""
        return worst


class Prepared:
    """A coordinator with topics and groups, to which connections send frames."""

    def __init__(self, path: Path, watch: ExactWatch) -> None:
        """Nothing runs before ``start``."""
        self._watch = watch
        numbers = itertools.count(1)

        def mint() -> uuid.UUID:
            return uuid.UUID(int=next(numbers))

        topics = Topics(
            [ConfiguredTopic("orders", ORDERS), ConfiguredTopic("wide", WIDE)],
            lambda: printed_topic_id(mint().bytes),
        )
        self._storage = SqliteOffsetStorage(path, fold_after=0)
        self.coordinator = GroupCoordinator(
            self._storage,
            CoordinatorConfig(
                initial_rebalance_delay_ms=20, rebalance_protocols=("classic", "consumer")
            ),
            topics,
        )
        self._services = Services(
            coordinator=self.coordinator,
            topics=topics,
            auto_create_topics=True,
            serves_consumer_groups=True,
            consumer_assignors=("uniform", "range"),
            pattern_error=self.coordinator.workshop.patterns.error,
            mint=mint,
            new_topic_id=lambda: printed_topic_id(mint().bytes),
        )

    async def start(self) -> None:
        """Start, and make the groups."""
        await self.coordinator.start()
        self._server = KafkaServer(self._services, ServerLimits(), watch=self._watch)
        await self.mend()
        gc.collect()
        gc.freeze()  # as the daemon does after a load
        self._watch.take_worst()

    async def stop(self) -> None:
        """Stop, and let the file go."""
        await self.coordinator.stop(1_000)
        gc.unfreeze()

    @property
    def is_intact(self) -> bool:
        """Whether the topics are there that ``start`` made."""
        return {"orders", "wide"} <= self._services.topics.image.by_name.keys()

    async def mend(self) -> None:
        """Make the groups that a frame has changed what they were."""
        groups = self._groups()
        for group_id, state in _STATES.items():
            group = groups.get(group_id)
            if group is None or group.state is not state:
                await self._empty(group_id, group)
                await self._form(group_id)
        modern = groups.get(MODERN)
        if modern is None or len(modern.members) < CROWD or modern.group_type != "consumer":
            await self._empty(MODERN, modern)
            for at in range(CROWD):
                await self._modern_member(f"fz-modern-{at}")
        other = groups.get("other")
        if other is not None and other.group_type == "consumer":
            await self._empty("other", other)
        for group_id, topic, count, metadata in _HOLD:
            group = groups.get(group_id)
            held = 0 if group is None else group.offset_count()
            if held < 0.9 * count:
                await self._commit(group_id, topic, count, metadata)

    @property
    def _assigns(self) -> bool:
        """Whether another process computes an assignment, which the loop then has to install."""
        return self.coordinator.workshop.assignments.waiting > 0

    def _groups(self) -> dict[str, Any]:
        groups: dict[str, Any] = {}
        for slot in self.coordinator._owner.slots.values():
            groups |= getattr(slot.shard, "groups", {})
        return groups

    async def _empty(self, group_id: str, group: Any) -> None:
        """Have the members leave, and remove the group with whoever waits in it."""
        if group is None:
            return
        members = tuple(
            LeavingMember(each.member_id, each.group_instance_id, None)
            for each in group.members.values()
        )
        if members:
            await self._ask(LeaveGroup(group_id, members, _CLIENT))
        await self._ask(DeleteGroup(group_id, _CLIENT))

    async def _form(self, group_id: str) -> None:
        members = [f"fz-crowd-{at}" for at in range(CROWD)] if group_id == "crowd" else [MEMBER]
        await asyncio.gather(*(self._member(group_id, member_id) for member_id in members))
        if group_id != "forming":
            assigned = ((members[0], b""),)
            await self._ask(SyncGroup(group_id, 1, members[0], None, None, None, assigned, _CLIENT))

    async def send(self, frames: Sequence[bytes]) -> tuple[float, str]:
        """Give each frame to a connection of its own, all in one turn of the loop, and wait for
        what comes of them. Returns the CPU seconds of the slowest callback, and its name.
        """
        self._watch.itself = asyncio.current_task()
        self._watch.take_worst()
        peers = [Peer(self._server) for _ in frames]
        for peer, frame in zip(peers, frames, strict=True):
            self._server.loop.call_soon(peer.connection.data_received, frame)
        await asyncio.sleep(0)
        quiet = 0
        while quiet < QUIET_LOOKS:
            busy_s = self._watch.busy_s
            await asyncio.sleep(LOOK_S)
            is_quiet = self._watch.busy_s - busy_s < QUIET_S and not self._assigns
            quiet = quiet + 1 if is_quiet else 0
        for peer in peers:
            self._server.loop.call_soon(peer.connection.connection_lost, None)
        await asyncio.sleep(LOOK_S)
        return self._watch.take_worst()

    async def _ask(self, request: Any) -> Any:
        return await self.coordinator.ask(request)

    async def _member(self, group_id: str, member_id: str) -> None:
        protocols = (JoinProtocol("range", b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"),)
        join = JoinGroup(
            *(group_id, "", None, "consumer", protocols, 600_000, 600_000),
            *(member_id, False, False, _CLIENT),
        )
        await self._ask(join)

    async def _modern_member(self, member_id: str) -> None:
        """Join by the consumer protocol."""
        await self._ask(
            ConsumerGroupHeartbeat(
                *(MODERN, member_id, 0, None, None, 600_000, ("wide",), None, None, "uniform", ()),
                *("", _CLIENT),
            )
        )

    async def _commit(self, group_id: str, topic: str, count: int, metadata: str) -> None:
        for start in range(0, count, COMMITTED_AT_ONCE):
            rows: list[tuple[int, int, int, str | None]] = [
                (number, 5, -1, metadata) for number in range(start, start + COMMITTED_AT_ONCE)
            ]
            topics = [(topic, "", rows)]
            await self._ask(
                OffsetCommit(group_id, -1, "", None, topics, False, -1, ErrorCode.NONE, _CLIENT)
            )


def new_loop(watch: CallbackWatch) -> asyncio.AbstractEventLoop:
    """The daemon's loop."""
    return WatchedLoop(watch)
