"""The Spark schema of events, the same for every source.

Kinds share their fields: a field means the same in every kind that has it. So an event is one flat
row, and fields that its kind lacks are null. ``docs/reference/events.md`` explains each field. A
test keeps the page, this schema, and the code that writes events equal.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

EVENT_SCHEMA_VERSION: Final = 2
"""The version of ``docs/reference/events.md`` that this schema reads. It also reads version 1."""


def struct_of(**fields: DataType) -> StructType:
    """Return a struct of nullable fields in this order."""
    return StructType([StructField(name, kind) for name, kind in fields.items()])


INT, LONG, STRING = IntegerType(), LongType(), StringType()

PARTITION_SCHEMA: Final = struct_of(
    partition=INT,
    offset=LONG,
    previous_offset=LONG,
    leader_epoch=INT,
    metadata=STRING,
    commit_time_ms=LONG,
    expire_time_ms=LONG,
    lost_ts_ms=LONG,
    reason=STRING,
)
"""One entry of ``topics[].partitions[]``: of a commit, of deleted offsets, of a snapshot, or of a
sample of ends.
"""

TOPIC_SCHEMA: Final = struct_of(
    topic=STRING, topic_id=STRING, partitions=ArrayType(PARTITION_SCHEMA)
)
"""One entry of ``topics[]``."""

EVENT_SCHEMA: Final = struct_of(
    # of every event
    log_id=STRING,
    seq=LONG,
    ts_ms=LONG,
    clock_ms=LONG,
    shard=INT,
    lease_epoch=LONG,
    kind=STRING,
    group=STRING,
    group_type=STRING,
    generation=INT,
    member_id=STRING,
    instance_id=STRING,
    client_id=STRING,
    client_host=STRING,
    principal=STRING,
    api=STRING,
    # offsets
    topics=ArrayType(TOPIC_SCHEMA),
    commit_time_ms=LONG,
    expire_time_ms=LONG,
    lost=ArrayType(TOPIC_SCHEMA),
    # refusals
    error=STRING,
    count=LONG,
    # members and rebalances
    reason=STRING,
    protocols=ArrayType(STRING),
    session_timeout_ms=LONG,
    rebalance_timeout_ms=LONG,
    replaces=STRING,
    members=INT,
    duration_ms=LONG,
    awaited=ArrayType(STRING),
    protocol_name=STRING,
    leader_id=STRING,
    protocol_type=STRING,
    partitions=MapType(STRING, MapType(STRING, ArrayType(INT))),
    opaque_bytes=MapType(STRING, LONG),
    # groups, shards, administration
    groups=LONG,
    offsets=LONG,
    action=STRING,
    target=STRING,
    detail=STRING,
    # the log itself
    previous_log_id=STRING,
    previous_seq=LONG,
)
"""An event as ``storage.codec.events`` encodes it, with the fields in the order of the page."""

ROW_FIELDS: Final = ("partition", "offset", "previous_offset", "leader_epoch", "metadata")
"""The columns of ``topics[].rows[]``, in order: the partitions of a commit since version 2."""

_LINE_TOPIC_SCHEMA: Final = StructType(
    [*TOPIC_SCHEMA, StructField("rows", ArrayType(ArrayType(STRING)))]
)

LINE_SCHEMA: Final = StructType(
    [
        StructField("topics", ArrayType(_LINE_TOPIC_SCHEMA)) if field.name == "topics" else field
        for field in EVENT_SCHEMA
    ]
)
"""An event as a line of a segment, in either version: its topics have ``rows`` or
``partitions``.
"""

BRONZE_SCHEMA: Final = StructType(
    [
        *EVENT_SCHEMA.fields,
        StructField("segment", STRING),
        StructField("dt", DateType()),
        StructField("batch_id", STRING),
    ]
)
"""Events unchanged, with their file, their UTC day, and the batch that wrote them."""

SEGMENT_SCHEMA: Final = struct_of(
    log_id=STRING,
    segment=STRING,
    dt=DateType(),
    first_seq=LONG,
    last_seq=LONG,
    events=LONG,
    seq_sum=LONG,
    batch_id=STRING,
    file=STRING,
    sha256=STRING,
    previous_log_id=STRING,
    began_ms=LONG,
)
"""What a batch added of one segment: one row for each segment, day and batch.

``file`` and its checksum are null if the segment did not come from a log's folder. Only a segment
with ``log_started`` has the previous log and the time when its log began.
"""

TICKET_SCHEMA: Final = struct_of(file=STRING, file_bytes=LONG, sha256=STRING, schema_version=INT)
"""A file of a log's folder that must be read, and what its manifest says about it."""

VERDICT_SCHEMA: Final = struct_of(
    file=STRING,
    file_bytes=LONG,
    modified_ms=LONG,
    sha256=STRING,
    listed_sha256=STRING,
    problem=STRING,
    batch_id=STRING,
)
"""What a batch found out about a file: one row for each file and batch."""

LACKING_SCHEMA: Final = struct_of(file=STRING, problem=STRING)
"""A segment that is missing from a log's folder, or has a problem."""

CARRIED_EVENTS_SCHEMA: Final = StructType(
    [*EVENT_SCHEMA.fields, StructField("store", STRING), StructField("dt", DateType())]
)
"""Events that still matter after the day ``dt``."""

STANDING_SCHEMA: Final = struct_of(
    store=STRING,
    group=STRING,
    topic=STRING,
    partition=INT,
    is_set=BooleanType(),
    lease_epoch=LONG,
    topic_id=STRING,
    offset=LONG,
    leader_epoch=INT,
    metadata=STRING,
    commit_time_ms=LONG,
    expire_time_ms=LONG,
    client_id=STRING,
    seq=LONG,
    ts_ms=LONG,
    dt=DateType(),
)
"""Committed offsets that are valid at the end of the day ``dt``."""

ENDS_SCHEMA: Final = struct_of(
    store=STRING,
    topic=STRING,
    partition=INT,
    offset=LONG,
    ts_ms=LONG,
    lease_epoch=LONG,
    seq=LONG,
    dt=DateType(),
)
"""Ends of partitions: as sampled, or as known at the end of the day ``dt``."""

PUBLICATION_SCHEMA: Final = struct_of(
    dt=DateType(),
    state=STRING,
    fingerprint=STRING,
    events=LONG,
    missing=STRING,
)
"""What a day was last computed from.

``missing`` is a text about what is missing from the day and earlier ones; empty if nothing is.
"""

NOTE_SCHEMA: Final = StructType(
    [
        *PUBLICATION_SCHEMA.fields,
        StructField("accepted", ArrayType(struct_of(store=STRING, first_seq=LONG, last_seq=LONG))),
        StructField("version", INT),
    ]
)
"""The same as written, with the gaps of the published day and the version of the computation."""
