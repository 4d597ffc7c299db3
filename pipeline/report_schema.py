"""The Spark schemas of the tables that reports read: one that was never written is empty.

A test holds them equal to what ``pipeline.gold`` and ``pipeline.silver`` make.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)


def _struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


_INT, _LONG, _STRING = IntegerType(), LongType(), StringType()

MEMBER_SESSIONS_SCHEMA: Final = _struct(
    store=_STRING,
    group=_STRING,
    member_id=_STRING,
    instance_id=_STRING,
    client_id=_STRING,
    client_host=_STRING,
    principal=_STRING,
    join_reason=_STRING,
    joined_ms=_LONG,
    ended_ms=_LONG,
    ended_by=_STRING,
    duration_ms=_LONG,
    dt=DateType(),
)
"""``silver.member_sessions``."""


def _moves(offset: DataType) -> DataType:
    of = {"from": offset, "to": offset}
    return ArrayType(_struct(topic=_STRING, partition=_INT, **of))


GOLD_SCHEMAS: Final[Mapping[str, StructType]] = {
    "lag_1m": _struct(
        store=_STRING,
        group=_STRING,
        topic=_STRING,
        partition=_INT,
        minute_ms=_LONG,
        offset=_LONG,
        end_offset=_LONG,
        lag=_LONG,
        dt=DateType(),
    ),
    "commit_rate_1m": _struct(
        store=_STRING,
        group=_STRING,
        topic=_STRING,
        minute_ms=_LONG,
        commits=_LONG,
        partitions=_LONG,
        messages=_LONG,
        rewinds=_LONG,
        skips=_LONG,
        duplicates=_LONG,
        dt=DateType(),
    ),
    "rebalances": _struct(
        store=_STRING,
        group=_STRING,
        member_id=_STRING,
        seq=_LONG,
        started_ms=_LONG,
        reason=_STRING,
        instance_id=_STRING,
        client_id=_STRING,
        client_host=_STRING,
        members_before=_INT,
        duration_ms=_LONG,
        awaited=ArrayType(_STRING),
        members=_INT,
        generation=_INT,
        protocol_name=_STRING,
        leader_id=_STRING,
        completed_ms=_LONG,
        assigned=_INT,
        moved=_INT,
        moves=_moves(_STRING),
        assigned_ms=_LONG,
        caused_by=_STRING,
        cause=_STRING,
        awaited_names=ArrayType(_STRING),
        dt=DateType(),
    ),
    "group_daily": _struct(
        store=_STRING,
        group=_STRING,
        commits=_LONG,
        partitions=_LONG,
        messages=_LONG,
        rewinds=_LONG,
        skips=_LONG,
        duplicates=_LONG,
        resets=_LONG,
        rejected=_LONG,
        joined=_LONG,
        left=_LONG,
        evicted=_LONG,
        members=_LONG,
        rebalances=_LONG,
        rebalance_ms=_LONG,
        moved=_LONG,
        max_partition_lag=_LONG,
        dt=DateType(),
    ),
    "audit": _struct(
        store=_STRING,
        log_id=_STRING,
        seq=_LONG,
        ts_ms=_LONG,
        group=_STRING,
        principal=_STRING,
        client_id=_STRING,
        client_host=_STRING,
        member_id=_STRING,
        generation=_INT,
        action=_STRING,
        detail=_STRING,
        partitions=_LONG,
        messages=_LONG,
        changes=_moves(_LONG),
        count=_LONG,
        dt=DateType(),
    ),
}
"""The tables of ``pipeline.gold``, by name."""
