"""Measure the hot requests in the pure core: one shard, one Stable group, no runtime.

python -m bench.core_bench
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.figures import Figure, cpu_us, show
from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    SyncGroup,
)
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit, OffsetFetch
from groupkeeper.coordinator.core.shard import Shard

GROUP = "orders"
MEMBER = "consumer-orders-1-01234567-89ab-cdef-0123-456789abcdef"
CLIENT = Client("consumer-1", "/127.0.0.1")
NOW = Now(60_000, 1_700_000_000_000)
TICKET = object()


def stable_shard() -> Shard:
    """Return a shard with one Stable group of one member."""
    image = TopicImage.of(TopicInfo("orders", "A" * 22, 12))
    shard = Shard(0, CoreLimits(initial_rebalance_delay_ms=0), image)
    protocols = (JoinProtocol("range", b""),)
    join = JoinGroup(
        GROUP, "", None, "consumer", protocols, 30_000, 30_000, MEMBER, False, False, CLIENT
    )
    shard.handle(join, TICKET, NOW)
    shard.expire(NOW)
    sync = SyncGroup(GROUP, 1, MEMBER, None, "consumer", "range", ((MEMBER, b"x" * 100),), CLIENT)
    shard.handle(sync, TICKET, NOW)
    assert shard.groups[GROUP].state_name() is GroupState.STABLE
    return shard


def commit_of(partitions: int, metadata: str = "") -> OffsetCommit:
    """Return a member's commit."""
    rows: list[tuple[int, int, int, str | None]] = [
        (n, 1_000_000, -1, metadata) for n in range(partitions)
    ]
    return OffsetCommit(
        GROUP,
        1,
        MEMBER,
        None,
        [("orders", "", rows)],
        False,
        -1,
        ErrorCode.ILLEGAL_GENERATION,
        CLIENT,
    )


def fetch_of(partitions: int) -> OffsetFetch:
    """Return a member's fetch."""
    return OffsetFetch(GROUP, [("orders", "", list(range(partitions)))], False, True)


def figures() -> Iterator[Figure]:
    """Measure ``Shard.handle``."""
    shard = stable_shard()
    heartbeat = Heartbeat(GROUP, 1, MEMBER, None, CLIENT)
    requests = {
        "Heartbeat": heartbeat,
        "OffsetCommit x1": commit_of(1),
        "OffsetCommit x10": commit_of(10),
        "OffsetCommit x10, metadata of 20": commit_of(10, "m" * 20),
        "OffsetFetch x1": fetch_of(1),
        "OffsetFetch x10": fetch_of(10),
    }
    for what, request in requests.items():
        yield Figure("core", what, cpu_us(lambda r=request: shard.handle(r, TICKET, NOW)))


if __name__ == "__main__":
    show(figures())
