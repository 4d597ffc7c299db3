"""Records for tests. An argument is what a test cares about, and all other fields have a
default.
"""

from __future__ import annotations

from groupkeeper.coordinator.core.records import (
    CommittedTopic,
    GroupRecord,
    OffsetsCommitted,
    PendingOffsets,
    PendingTopic,
    SavedMember,
)

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def commit(
    group_id: str,
    offset: int,
    *,
    topic: str = "orders",
    partitions: int = 1,
    metadata: str = "",
    expire_time_ms: int = -1,
) -> OffsetsCommitted:
    """Return a commit of the same offset for the partitions of a topic from 0 on."""
    rows = [(number, offset, -1, 0, metadata) for number in range(partitions)]
    return OffsetsCommitted(
        group_id=group_id,
        generation_id=3,
        member_id=f"consumer-1-{'0' * 36}",
        group_instance_id=None,
        client_id="consumer-1",
        client_host="/127.0.0.1",
        principal="User:ANONYMOUS",
        commit_time_ms=1_700_000_000_000 + offset,
        expire_time_ms=expire_time_ms,
        topics=[CommittedTopic(topic, TOPIC_ID, rows)],
    )


def pending(pending_id: str, *, offset: int = 7, metadata: str = "") -> PendingOffsets:
    """Return pending offsets of two partitions. A later commit has overtaken the second one."""
    rows = [(0, offset, -1, metadata, False), (1, offset, 4, "", True)]
    return PendingOffsets(
        pending_id=pending_id,
        arrival=offset,
        producer_id=2**62,
        producer_epoch=3,
        group_id="g",
        generation_id=3,
        member_id="m",
        group_instance_id=None,
        client_id="consumer-1",
        client_host="/127.0.0.1",
        principal="User:ANONYMOUS",
        commit_time_ms=1_700_000_000_000,
        topics=[PendingTopic("orders", TOPIC_ID, rows)],
    )


def group_record(group_id: str, generation_id: int = 1, members: int = 1) -> GroupRecord:
    """Return a Stable group with this number of members. Their subscriptions are not valid text."""
    return GroupRecord(
        group_id=group_id,
        protocol_type="consumer",
        generation_id=generation_id,
        protocol_name="range",
        leader_id="m-0" if members else None,
        state_timestamp_ms=1_700_000_000_000,
        members=tuple(
            SavedMember(
                member_id=f"m-{number}",
                group_instance_id="static" if number else None,
                client_id="consumer-1",
                client_host="/127.0.0.1",
                rebalance_timeout_ms=300_000,
                session_timeout_ms=45_000,
                subscription=b"\x00\x01\xff",
                assignment=b"\x00\x00" + bytes([number]),
            )
            for number in range(members)
        ),
    )
