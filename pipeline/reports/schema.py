"""The Spark schemas of the tables that reports read, so that an unwritten table is empty.

A test holds them equal to the output of ``pipeline.tables.gold`` and ``pipeline.tables.silver``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import ArrayType, DataType, DateType, StructType

from groupkeeper.pipeline.log.schema import INT, LONG, STRING, struct_of

MEMBER_SESSIONS_SCHEMA: Final = struct_of(
    store=STRING,
    group=STRING,
    member_id=STRING,
    instance_id=STRING,
    client_id=STRING,
    client_host=STRING,
    principal=STRING,
    join_reason=STRING,
    joined_ms=LONG,
    ended_ms=LONG,
    ended_by=STRING,
    duration_ms=LONG,
    dt=DateType(),
)
"""``silver.member_sessions``."""


def _moves(offset: DataType) -> DataType:
    of = {"from": offset, "to": offset}
    return ArrayType(struct_of(topic=STRING, partition=INT, **of))


GOLD_SCHEMAS: Final[Mapping[str, StructType]] = {
    "lag_1m": struct_of(
        store=STRING,
        group=STRING,
        topic=STRING,
        partition=INT,
        minute_ms=LONG,
        offset=LONG,
        end_offset=LONG,
        lag=LONG,
        dt=DateType(),
    ),
    "commit_rate_1m": struct_of(
        store=STRING,
        group=STRING,
        topic=STRING,
        minute_ms=LONG,
        commits=LONG,
        partitions=LONG,
        messages=LONG,
        rewinds=LONG,
        skips=LONG,
        duplicates=LONG,
        dt=DateType(),
    ),
    "rebalances": struct_of(
        store=STRING,
        group=STRING,
        member_id=STRING,
        seq=LONG,
        started_ms=LONG,
        reason=STRING,
        instance_id=STRING,
        client_id=STRING,
        client_host=STRING,
        members_before=INT,
        duration_ms=LONG,
        awaited=ArrayType(STRING),
        members=INT,
        generation=INT,
        protocol_name=STRING,
        leader_id=STRING,
        completed_ms=LONG,
        assigned=INT,
        moved=INT,
        moves=_moves(STRING),
        assigned_ms=LONG,
        caused_by=STRING,
        cause=STRING,
        awaited_names=ArrayType(STRING),
        dt=DateType(),
    ),
    "group_daily": struct_of(
        store=STRING,
        group=STRING,
        commits=LONG,
        partitions=LONG,
        messages=LONG,
        rewinds=LONG,
        skips=LONG,
        duplicates=LONG,
        resets=LONG,
        rejected=LONG,
        joined=LONG,
        left=LONG,
        evicted=LONG,
        forgotten=LONG,
        members=LONG,
        rebalances=LONG,
        rebalance_ms=LONG,
        moved=LONG,
        max_partition_lag=LONG,
        dt=DateType(),
    ),
    "audit": struct_of(
        store=STRING,
        log_id=STRING,
        seq=LONG,
        ts_ms=LONG,
        group=STRING,
        principal=STRING,
        client_id=STRING,
        client_host=STRING,
        member_id=STRING,
        generation=INT,
        action=STRING,
        detail=STRING,
        partitions=LONG,
        messages=LONG,
        messages_back=LONG,
        messages_forward=LONG,
        changes=_moves(LONG),
        count=LONG,
        dt=DateType(),
    ),
}
"""The tables of ``pipeline.tables.gold``, by name."""
