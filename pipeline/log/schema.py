"""The one Spark schema of events, whatever they were read from.

Kinds share their fields: a field means the same in every kind that has it, so an event is one flat
row and what its kind does not have is null. ``docs/reference/events.md`` says what each field
means; a test holds the two, and the code that writes events, equal.
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
"""The version of ``docs/reference/events.md`` that this schema reads; version 1 is read as well."""


def struct_of(**fields: DataType) -> StructType:
    """Make a struct of fields that may be null, in this order."""
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
"""One entry of ``topics[].partitions[]``: of a commit, of offsets that went, of a snapshot or of a
sample of ends."""

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
"""An event as ``storage.codec.events`` renders it, its fields in the order of the document."""

ROW_FIELDS: Final = ("partition", "offset", "previous_offset", "leader_epoch", "metadata")
"""What a row of ``topics[].rows[]`` holds, by place: the partitions of a commit since version 2."""

_LINE_TOPIC_SCHEMA: Final = StructType(
    [*TOPIC_SCHEMA, StructField("rows", ArrayType(ArrayType(STRING)))]
)

LINE_SCHEMA: Final = StructType(
    [
        StructField("topics", ArrayType(_LINE_TOPIC_SCHEMA)) if field.name == "topics" else field
        for field in EVENT_SCHEMA
    ]
)
"""An event as a line of a segment holds it, of either version: the topics of a commit have ``rows``
or ``partitions``."""

BRONZE_SCHEMA: Final = StructType(
    [
        *EVENT_SCHEMA.fields,
        StructField("segment", STRING),
        StructField("dt", DateType()),
        StructField("batch_id", STRING),
    ]
)
"""Events as they are, with the file they came in, their UTC day, and the batch that wrote them."""

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
"""What a batch brought of one segment: one row a segment, day and batch. ``file`` and its checksum
are null for what was not read from a log's folder. The log before and the time of ``log_started``
are of a segment that begins with one."""

TICKET_SCHEMA: Final = struct_of(file=STRING, file_bytes=LONG, sha256=STRING, schema_version=INT)
"""A file of a log's folder that is to be read, and what its manifest says of it."""

VERDICT_SCHEMA: Final = struct_of(
    file=STRING,
    file_bytes=LONG,
    modified_ms=LONG,
    sha256=STRING,
    listed_sha256=STRING,
    problem=STRING,
    batch_id=STRING,
)
"""What a batch found out of a file: one row a file and batch."""

LACKING_SCHEMA: Final = struct_of(file=STRING, problem=STRING)
"""A segment that ought to be in a log's folder and is not, or is not what it should be."""

CARRIED_EVENTS_SCHEMA: Final = StructType(
    [*EVENT_SCHEMA.fields, StructField("store", STRING), StructField("dt", DateType())]
)
"""Events that still matter when the day ``dt`` is over."""

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
"""Committed offsets that stand when the day ``dt`` is over."""

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
"""Ends of partitions: as they were sampled, or as they are known when the day ``dt`` is over."""

PUBLICATION_SCHEMA: Final = struct_of(
    dt=DateType(),
    state=STRING,
    fingerprint=STRING,
    events=LONG,
    missing=STRING,
)
"""What a day was last computed from. ``missing`` says to a person what is missing of it and of
earlier ones, and is empty where nothing is."""

NOTE_SCHEMA: Final = StructType(
    [
        *PUBLICATION_SCHEMA.fields,
        StructField("accepted", ArrayType(struct_of(store=STRING, first_seq=LONG, last_seq=LONG))),
        StructField("version", INT),
    ]
)
"""The same as it is written, with the gaps that a day is published with, and the version of the
computation."""
