"""The one Spark schema of events, whatever they were read from.

Kinds share their fields: a field means the same in every kind that has it, so an event is one flat
row and what its kind does not have is null. ``docs/events.md`` says what each field means; a test
holds the two, and the code that writes events, equal.
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
"""The version of ``docs/events.md`` that this schema reads; version 1 is read as well."""


def _struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


_INT, _LONG, _STRING = IntegerType(), LongType(), StringType()

PARTITION_SCHEMA: Final = _struct(
    partition=_INT,
    offset=_LONG,
    previous_offset=_LONG,
    leader_epoch=_INT,
    metadata=_STRING,
    commit_time_ms=_LONG,
    expire_time_ms=_LONG,
    lost_ts_ms=_LONG,
    reason=_STRING,
)
"""One entry of ``topics[].partitions[]``: of a commit, of offsets that went, of a snapshot or of a
sample of ends."""

TOPIC_SCHEMA: Final = _struct(
    topic=_STRING, topic_id=_STRING, partitions=ArrayType(PARTITION_SCHEMA)
)
"""One entry of ``topics[]``."""

EVENT_SCHEMA: Final = _struct(
    # of every event
    log_id=_STRING,
    seq=_LONG,
    ts_ms=_LONG,
    clock_ms=_LONG,
    shard=_INT,
    lease_epoch=_LONG,
    kind=_STRING,
    group=_STRING,
    group_type=_STRING,
    generation=_INT,
    member_id=_STRING,
    instance_id=_STRING,
    client_id=_STRING,
    client_host=_STRING,
    principal=_STRING,
    api=_STRING,
    # offsets
    topics=ArrayType(TOPIC_SCHEMA),
    commit_time_ms=_LONG,
    expire_time_ms=_LONG,
    lost=ArrayType(TOPIC_SCHEMA),
    # refusals
    error=_STRING,
    count=_LONG,
    # members and rebalances
    reason=_STRING,
    protocols=ArrayType(_STRING),
    session_timeout_ms=_LONG,
    rebalance_timeout_ms=_LONG,
    replaces=_STRING,
    members=_INT,
    duration_ms=_LONG,
    awaited=ArrayType(_STRING),
    protocol_name=_STRING,
    leader_id=_STRING,
    protocol_type=_STRING,
    partitions=MapType(_STRING, MapType(_STRING, ArrayType(_INT))),
    opaque_bytes=MapType(_STRING, _LONG),
    # groups, shards, administration
    groups=_LONG,
    offsets=_LONG,
    action=_STRING,
    target=_STRING,
    detail=_STRING,
)
"""An event as ``storage.event_codec`` renders it, its fields in the order of the document."""

ROW_FIELDS: Final = ("partition", "offset", "previous_offset", "leader_epoch", "metadata")
"""What a row of ``topics[].rows[]`` holds, by place: the partitions of a commit since version 2."""

_LINE_TOPIC_SCHEMA: Final = StructType(
    [*TOPIC_SCHEMA, StructField("rows", ArrayType(ArrayType(_STRING)))]
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
        StructField("segment", _STRING),
        StructField("dt", DateType()),
        StructField("batch_id", _STRING),
    ]
)
"""Events as they are, with the file they came in, their UTC day, and the batch that wrote them."""

SEGMENT_SCHEMA: Final = _struct(
    log_id=_STRING,
    segment=_STRING,
    dt=DateType(),
    first_seq=_LONG,
    last_seq=_LONG,
    events=_LONG,
    seq_sum=_LONG,
    batch_id=_STRING,
    file=_STRING,
    sha256=_STRING,
)
"""What a batch brought of one segment: one row a segment, day and batch. ``file`` and its checksum
are null for what was not read from a log's folder."""

TICKET_SCHEMA: Final = _struct(file=_STRING, file_bytes=_LONG, sha256=_STRING, schema_version=_INT)
"""A file of a log's folder that is to be read, and what its manifest says of it."""

VERDICT_SCHEMA: Final = _struct(
    file=_STRING,
    file_bytes=_LONG,
    modified_ms=_LONG,
    sha256=_STRING,
    listed_sha256=_STRING,
    problem=_STRING,
    batch_id=_STRING,
)
"""What a batch found out of a file: one row a file and batch."""

LACKING_SCHEMA: Final = _struct(file=_STRING, problem=_STRING)
"""A segment that ought to be in a log's folder and is not, or is not what it should be."""

CARRIED_EVENTS_SCHEMA: Final = StructType(
    [*EVENT_SCHEMA.fields, StructField("store", _STRING), StructField("dt", DateType())]
)
"""Events that still matter when the day ``dt`` is over."""

STANDING_SCHEMA: Final = _struct(
    store=_STRING,
    group=_STRING,
    topic=_STRING,
    partition=_INT,
    is_set=BooleanType(),
    lease_epoch=_LONG,
    topic_id=_STRING,
    offset=_LONG,
    leader_epoch=_INT,
    metadata=_STRING,
    commit_time_ms=_LONG,
    expire_time_ms=_LONG,
    client_id=_STRING,
    seq=_LONG,
    ts_ms=_LONG,
    dt=DateType(),
)
"""Committed offsets that stand when the day ``dt`` is over."""

ENDS_SCHEMA: Final = _struct(
    store=_STRING,
    topic=_STRING,
    partition=_INT,
    offset=_LONG,
    ts_ms=_LONG,
    lease_epoch=_LONG,
    seq=_LONG,
    dt=DateType(),
)
"""Ends of partitions: as they were sampled, or as they are known when the day ``dt`` is over."""

PUBLICATION_SCHEMA: Final = _struct(
    dt=DateType(),
    state=_STRING,
    fingerprint=_STRING,
    events=_LONG,
    missing=_STRING,
)
"""What a day was last computed from. ``missing`` says to a person what is missing of it and of
earlier ones, and is empty where nothing is."""

NOTE_SCHEMA: Final = StructType(
    [
        *PUBLICATION_SCHEMA.fields,
        StructField("accepted", ArrayType(_struct(store=_STRING, first_seq=_LONG, last_seq=_LONG))),
    ]
)
"""The same as it is written, with the gaps that a day is published with."""
