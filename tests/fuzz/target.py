"""What bytes from a socket may do to us: be answered, be refused, end their connection. No more.

Two targets, each a function of bytes that raises where something else happened: ``read_bytes``
takes frames, headers and bodies through the readers; ``converse`` gives the bytes to a connection
with the real handlers, coordinator and memory storage behind it, on a virtual clock. Nothing in
either is random, so that a crash comes again and coverage means something.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import uuid
from collections.abc import Callable
from typing import Any

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.shard import Shard
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.handlers.table import ROUTES
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.coordinator.server.stats import CloseReason
from groupkeeper.coordinator.server.watch import CallbackWatch
from groupkeeper.protocol.codec import read_request
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.frames import FrameError, FrameSplitter, read_request_header
from groupkeeper.protocol.packed.consumer_group_heartbeat import read_steady_heartbeat
from groupkeeper.protocol.packed.heartbeat import read_heartbeat
from groupkeeper.protocol.packed.offset_commit import read_offset_commit
from groupkeeper.protocol.packed.offset_fetch import read_offset_fetch
from groupkeeper.protocol.packing import printed_topic_id
from groupkeeper.protocol.versions import API_BY_KEY, ApiKey
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from tests.helpers.core.invariants import check
from tests.helpers.runtime.virtual_loop import VirtualClock, VirtualLoop, turns, virtual_timer
from tests.helpers.wire.connections import Peer
from tests.helpers.wire.handling import decode
from tests.helpers.wire.raw_client import API_KEYS

MAX_FRAME_BYTES = 65_536
MAX_ELEMENTS = 2_000
PAST_EVERY_POLL_S = 31
"""A Fetch waits for 30 s at the most."""
POLLS_IN_A_ROW = 10
"""As many as one conversation is waited for."""

PARKING = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""What may wait for other members, for as long as its timeouts say."""

HOT: dict[int, Callable[[int, bytes, int, int], Any]] = {
    ApiKey.HEARTBEAT: read_heartbeat,
    ApiKey.OFFSET_COMMIT: read_offset_commit,
    ApiKey.OFFSET_FETCH: read_offset_fetch,
}
_API_NAMES = {key: name for name, key in API_KEYS.items()}


# --- the readers ----------------------------------------------------------------------------------


def read_bytes(data: bytes) -> None:
    """Cut into frames, read each; what comes in two pieces is what comes in one."""
    frames = split(data)
    cut = len(data) // 3
    assert frames == split(data[:cut], data[cut:]), "what comes in pieces is read otherwise"
    for frame in frames:
        read_frame(frame)


def split(*pieces: bytes) -> list[bytes]:
    """The whole frames of what arrives, up to a length that cannot be."""
    splitter = FrameSplitter(MAX_FRAME_BYTES)
    frames: list[bytes] = []
    for piece in pieces:
        try:
            frames += splitter.feed(piece)
        except FrameError as error:
            return frames + error.frames
    return frames


def read_frame(frame: bytes) -> None:
    """Header and body; the hot reader refuses exactly what the careful one does."""
    try:
        header = read_request_header(frame)
    except ProtocolError:
        return
    key, version = header.api_key, header.api_version
    if (key, version) not in ROUTES:
        return  # no test reads its body
    careful = _refusal(lambda: read_request(key, version, frame, header.body_offset, MAX_ELEMENTS))
    if key == ApiKey.CONSUMER_GROUP_HEARTBEAT:
        steady = read_steady_heartbeat(version, frame, header.body_offset)
        assert steady is None or careful is None, f"hot: {steady}, careful: {careful}"
    if key in HOT:
        hot = _refusal(lambda: HOT[key](version, frame, header.body_offset, MAX_ELEMENTS))
        assert (hot is None) == (careful is None), f"hot: {hot}, careful: {careful}"


def _refusal(read: Callable[[], Any]) -> str | None:
    try:
        read()
    except ProtocolError as error:
        return error.reason
    return None


# --- a connection with everything behind it -------------------------------------------------------


def converse(data: bytes) -> None:
    """Send the bytes, let half a minute pass, stop; judge every answer and what is left."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(_converse(data))
    finally:
        loop.close()


async def _converse(data: bytes) -> None:
    clock = VirtualClock()
    storage = MemoryOffsetStorage(clock=lambda: clock.now().wall_ms)
    numbers = itertools.count(1)

    def mint() -> uuid.UUID:
        return uuid.UUID(int=next(numbers))

    def new_topic_id() -> str:
        return printed_topic_id(mint().bytes)

    topics = Topics([ConfiguredTopic("orders", 3)], new_topic_id)
    config = CoordinatorConfig(
        shards=2,
        min_session_timeout_ms=1_000,
        append_timeout_ms=900,
        rebalance_protocols=("classic", "consumer"),
    )
    coordinator = GroupCoordinator(storage, config, topics, clock=clock, timer=virtual_timer)
    await coordinator.start()
    services = Services(
        coordinator=coordinator,
        topics=topics,
        auto_create_topics=True,
        serves_consumer_groups=True,
        consumer_assignors=("uniform", "range"),
        pattern_error=coordinator.workshop.patterns.error,
        max_request_elements=MAX_ELEMENTS,
        max_reply_bytes=1_000_000,
        new_topic_id=new_topic_id,
        mint=mint,
    )
    watch = CallbackWatch(read_s=asyncio.get_running_loop().time)
    server = KafkaServer(services, ServerLimits(max_frame_bytes=MAX_FRAME_BYTES), watch=watch)
    peer = Peer(server)
    try:
        peer.send(data)
        await turns(5)
        await asyncio.sleep(0.1)
        for _ in range(POLLS_IN_A_ROW):  # the polls of one connection wait for each other
            if peer.connection.owes:
                await asyncio.sleep(PAST_EVERY_POLL_S)
        _judge_waiting(peer)
        for slot in coordinator._owner.slots.values():
            if isinstance(slot.shard, Shard):
                check(slot.shard)
    finally:
        server.stop_accepting()
        await coordinator.stop(1_000)
    await turns(5)
    assert peer.transport.is_closed or not peer.connection.owes, "never answered"
    _judge_answers(peer, split(data))
    stats = coordinator.stats
    assert not stats.bugs, "an exception in the core"
    assert not stats.tickets_failed, "an answer failed"
    assert not server.stats.closed[CloseReason.INTERNAL_ERROR], "an exception in a handler"


def _judge_waiting(peer: Peer) -> None:
    """After every poll is over, only what waits for other members may be left."""
    owed = peer.connection._owed
    if owed and not peer.transport.is_closed:
        waiting = {exchange.key for exchange in owed if exchange.reply is None}
        assert waiting <= PARKING, f"API {waiting - PARKING} was not answered"


def _judge_answers(peer: Peer, sent: list[bytes]) -> None:
    """Each answer is that to the next request, in its version, byte for byte as Kafka lays it
    out.
    """
    for frame, reply in zip(sent, peer.frames(), strict=False):
        key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
        assert reply[4:8] == frame[8:12], "answers out of order"
        api = API_BY_KEY[ApiKey(key)]
        known = version if 0 <= version <= api.max_version else 0
        decode(_API_NAMES[key], known, reply, correlation_id)
    assert len(peer.frames()) <= len(sent), "more answers than requests"


TARGETS: dict[str, Callable[[bytes], None]] = {"readers": read_bytes, "handlers": converse}
