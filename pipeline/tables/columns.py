"""The Spark schemas of the tables of silver (facts about groups) and gold (summaries). A table that
was never written is read as an empty table of its schema.

A test compares the schemas with the output of ``pipeline.tables.gold`` and
``pipeline.tables.silver``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import ArrayType, DataType, StructType

from groupkeeper.pipeline.log.columns import BOOLEAN, DATE, INT, LONG, STRING, struct_of


def _moves(offset: DataType) -> DataType:
    return ArrayType(struct_of((STRING, "topic"), (INT, "partition"), (offset, "from to")))


_ROUND: Final = (
    (INT, "members_before"),
    (LONG, "duration_ms"),
    (ArrayType(STRING), "awaited"),
    (INT, "members generation"),
    (STRING, "protocol_name leader_id"),
    (LONG, "completed_ms"),
    (INT, "assigned moved"),
    (_moves(STRING), "moves"),
    (LONG, "assigned_ms"),
)
"""The columns about the steps of a rebalance, which silver and gold share."""

_COMMITTED: Final = (
    (LONG, "position"),
    (STRING, "topic topic_id"),
    (INT, "partition"),
)
_CLIENT: Final = "member_id instance_id client_id client_host principal"

SILVER_SCHEMAS: Final[Mapping[str, StructType]] = {
    "commit_deltas": struct_of(
        (STRING, "store log_id"),
        (LONG, "seq ts_ms lease_epoch"),
        (STRING, "group"),
        (INT, "generation"),
        (STRING, _CLIENT),
        *_COMMITTED,
        (LONG, "offset previous_offset"),
        (INT, "leader_epoch"),
        (STRING, "metadata"),
        (LONG, "commit_time_ms expire_time_ms delta"),
        (STRING, "cause"),
        (BOOLEAN, "is_rewind is_skip is_duplicate"),
        (DATE, "dt"),
    ),
    "other_changes": struct_of(
        (STRING, "store log_id"),
        (LONG, "seq ts_ms lease_epoch"),
        (STRING, "kind group"),
        (INT, "generation"),
        (STRING, f"{_CLIENT} reason"),
        *_COMMITTED,
        (LONG, "offset previous_offset"),
        (INT, "leader_epoch"),
        (STRING, "metadata"),
        (LONG, "commit_time_ms expire_time_ms"),
        (BOOLEAN, "is_set"),
        (DATE, "dt"),
    ),
    "member_sessions": struct_of(
        (STRING, "store group member_id instance_id client_id client_host principal join_reason"),
        (LONG, "joined_ms ended_ms"),
        (STRING, "ended_by"),
        (LONG, "duration_ms"),
        (DATE, "dt"),
    ),
    "rebalances": struct_of(
        (STRING, "store group"),
        (LONG, "seq started_ms"),
        (STRING, "reason member_id instance_id client_id client_host"),
        *_ROUND,
        (DATE, "dt"),
    ),
    "end_offsets": struct_of(
        (STRING, "store topic"),
        (INT, "partition"),
        (LONG, "offset ts_ms lease_epoch seq"),
        (DATE, "dt"),
    ),
}
"""The tables of ``pipeline.tables.silver``, by name."""

GOLD_SCHEMAS: Final[Mapping[str, StructType]] = {
    "lag_1m": struct_of(
        (STRING, "store group topic"),
        (INT, "partition"),
        (LONG, "minute_ms offset end_offset lag"),
        (DATE, "dt"),
    ),
    "commit_rate_1m": struct_of(
        (STRING, "store group topic"),
        (LONG, "minute_ms commits partitions messages rewinds skips duplicates"),
        (DATE, "dt"),
    ),
    "rebalances": struct_of(
        (STRING, "store group member_id"),
        (LONG, "seq started_ms"),
        (STRING, "reason instance_id client_id client_host"),
        *_ROUND,
        (STRING, "caused_by cause"),
        (ArrayType(STRING), "awaited_names"),
        (DATE, "dt"),
    ),
    "group_daily": struct_of(
        (STRING, "store group"),
        (LONG, "commits partitions messages rewinds skips duplicates resets rejected"),
        (LONG, "joined left evicted forgotten members rebalances rebalance_ms moved"),
        (LONG, "max_partition_lag"),
        (DATE, "dt"),
    ),
    "audit": struct_of(
        (STRING, "store log_id"),
        (LONG, "seq ts_ms"),
        (STRING, "group principal client_id client_host member_id"),
        (INT, "generation"),
        (STRING, "action detail"),
        (LONG, "partitions messages messages_back messages_forward"),
        (_moves(LONG), "changes"),
        (LONG, "count"),
        (DATE, "dt"),
    ),
}
"""The tables of ``pipeline.tables.gold``, by name."""

MINUTES_SCHEMA: Final = struct_of(
    (STRING, "store group topic"),
    (INT, "partition"),
    (LONG, "minute_ms order offset"),
    (BOOLEAN, "is_set"),
    (LONG, "requests resets commits partitions messages rewinds skips duplicates"),
    (DATE, "dt"),
)
"""The table ``_carried/minutes`` (``gold.minutes``): sums for each offset and minute. Gold is
computed from it.
"""

PEAKS_SCHEMA: Final = struct_of(
    (STRING, "store group"),
    (LONG, "minute_ms lag"),
    (DATE, "dt"),
)
"""The table ``_carried/peaks`` (``gold.peaks``): the largest lag of each group and hour."""

SAMPLES_SCHEMA: Final = struct_of(
    (STRING, "store topic"),
    (INT, "partition"),
    (LONG, "minute_ms order offset"),
    (DATE, "dt"),
)
"""The table ``_carried/samples`` (``gold.sampled_minutes``): the last sampled end of each partition
and minute."""

VIEWS: Final[Mapping[str, tuple[str, StructType]]] = {
    **{f"gold_{name}": (f"gold/{name}", schema) for name, schema in GOLD_SCHEMAS.items()},
    **{f"silver_{name}": (f"silver/{name}", schema) for name, schema in SILVER_SCHEMAS.items()},
}
"""Maps the name of each view to the folder and the schema of its table."""
