"""The Spark schemas of events, and of the tables about them.

A field means the same in every kind of event that has it. So an event is one flat row, and the
fields that its kind does not have are null. ``docs/reference/events.md`` explains each field. A
test checks that the page, the schema ``EVENT_SCHEMA``, and the code that writes events agree.

Events come from segments, the daemon's files of events. A run of the pipeline reads new segments in
batches into bronze, the table of unchanged events.
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
"""The version of ``docs/reference/events.md`` that ``EVENT_SCHEMA`` reads. It also reads version 1.
"""


INT, LONG, STRING = IntegerType(), LongType(), StringType()
BOOLEAN, DATE = BooleanType(), DateType()


def struct_of(*runs: tuple[DataType, str]) -> StructType:
    """Return a struct of nullable fields, in the order given.

    Each of ``runs`` is a type and a text: the names of the fields of this type, separated by
    spaces.
    """
    return StructType([StructField(name, kind) for kind, names in runs for name in names.split()])


def extended(struct: StructType, *runs: tuple[DataType, str]) -> StructType:
    """Return a struct with more fields at its end."""
    return StructType([*struct.fields, *struct_of(*runs).fields])


PARTITION_SCHEMA: Final = struct_of(
    (INT, "partition"),
    (LONG, "offset previous_offset"),
    (INT, "leader_epoch"),
    (STRING, "metadata"),
    (LONG, "commit_time_ms expire_time_ms lost_ts_ms"),
    (STRING, "reason"),
)
"""One entry of ``topics[].partitions[]`` in an event. The event is a commit, a deletion of offsets,
a snapshot (offsets that deleted events had set), or a sample of the end offsets of partitions.
"""

TOPIC_SCHEMA: Final = struct_of(
    (STRING, "topic topic_id"),
    (ArrayType(PARTITION_SCHEMA), "partitions"),
)
"""One topic in the list ``topics`` of an event, with its partitions."""

EVENT_SCHEMA: Final = struct_of(
    # of every event
    (STRING, "log_id"),
    (LONG, "seq ts_ms clock_ms"),
    (INT, "shard"),
    (LONG, "lease_epoch"),
    (STRING, "kind group group_type"),
    (INT, "generation"),
    (STRING, "member_id instance_id client_id client_host principal api"),
    # offsets
    (ArrayType(TOPIC_SCHEMA), "topics"),
    (LONG, "commit_time_ms expire_time_ms"),
    (ArrayType(TOPIC_SCHEMA), "lost"),
    # refusals
    (STRING, "error"),
    (LONG, "count"),
    # members and rebalances
    (STRING, "reason"),
    (ArrayType(STRING), "protocols"),
    (LONG, "session_timeout_ms rebalance_timeout_ms"),
    (STRING, "replaces"),
    (INT, "members"),
    (LONG, "duration_ms"),
    (ArrayType(STRING), "awaited"),
    (STRING, "protocol_name leader_id protocol_type"),
    (MapType(STRING, MapType(STRING, ArrayType(INT))), "partitions"),
    (MapType(STRING, LONG), "opaque_bytes"),
    # consumer groups
    (STRING, "assignor"),
    (LONG, "changed_members"),
    (MapType(STRING, MapType(STRING, ArrayType(INT))), "targets"),
    (STRING, "pattern"),
    (MapType(STRING, ArrayType(INT)), "gained_partitions lost_partitions"),
    (STRING, "from_type to_type"),
    # groups, shards, administration
    (LONG, "groups offsets"),
    (STRING, "action target detail"),
    # the log itself
    (STRING, "previous_log_id"),
    (LONG, "previous_seq"),
    (STRING, "store"),
)
"""An event as ``storage.codec.events`` encodes it. The fields are in the order of
``docs/reference/events.md``.

In segments and in the table bronze, only ``log_started`` has ``store``. The functions that read
events from bronze set ``store`` in every event.
"""

ROW_FIELDS: Final = ("partition", "offset", "previous_offset", "leader_epoch", "metadata")
"""The values of each row in ``topics[].rows[]``, in order. A row is one partition of a commit.
Events of version 1 have ``partitions`` instead.
"""

_LINE_TOPIC_SCHEMA: Final = extended(TOPIC_SCHEMA, (ArrayType(ArrayType(STRING)), "rows"))

LINE_SCHEMA: Final = StructType(
    [
        StructField("topics", ArrayType(_LINE_TOPIC_SCHEMA)) if field.name == "topics" else field
        for field in EVENT_SCHEMA
    ]
)
"""An event as a line of a segment, in version 1 or 2: the partitions of its topics are in
``partitions`` or in ``rows``.
"""

BRONZE_SCHEMA: Final = extended(
    EVENT_SCHEMA,
    (STRING, "rest segment"),
    (DATE, "dt"),
    (STRING, "batch_id"),
)
"""The events of segments, unchanged. Each has its file (``segment``), its UTC day (``dt``), and the
batch that wrote it (``batch_id``).

``rest`` is the whole line of the event (JSON), if the line has a field that was unknown when it was
read. Otherwise ``rest`` is null.
"""

SEGMENT_SCHEMA: Final = struct_of(
    (STRING, "log_id segment"),
    (DATE, "dt"),
    (LONG, "first_seq last_seq events seq_sum"),
    (STRING, "batch_id file sha256 previous_log_id"),
    (LONG, "began_ms with_rest"),
    (STRING, "store"),
)
"""One row for each segment, day and batch: the events that the batch added to bronze.

``file`` and ``sha256`` are null if the segment did not come from a log's folder. Only a segment
with the event ``log_started`` has ``previous_log_id`` and ``began_ms``, the time when its log
began. ``store`` is the name in the manifest, or in ``log_started``. ``with_rest`` is the number of
events that have a ``rest``.
"""

VERDICT_SCHEMA: Final = struct_of(
    (STRING, "file"),
    (LONG, "file_bytes modified_ms"),
    (STRING, "sha256 listed_sha256 problem batch_id"),
)
"""The result of checking a file: one row for each file and each batch that checked it."""

LACKING_SCHEMA: Final = struct_of((STRING, "file problem"))
"""A segment that is missing from a log's folder, or has a problem."""

CARRIED_EVENTS_SCHEMA: Final = extended(EVENT_SCHEMA, (DATE, "dt"))
"""Events of the day ``dt`` or earlier that the computation of later days needs."""

STANDING_SCHEMA: Final = struct_of(
    (STRING, "store group topic"),
    (INT, "partition"),
    (BOOLEAN, "is_set"),
    (LONG, "lease_epoch"),
    (STRING, "topic_id"),
    (LONG, "offset"),
    (INT, "leader_epoch"),
    (STRING, "metadata"),
    (LONG, "commit_time_ms expire_time_ms"),
    (STRING, "client_id"),
    (LONG, "seq ts_ms"),
    (DATE, "dt"),
)
"""Committed offsets that are valid at the end of the day ``dt``."""

ENDS_SCHEMA: Final = struct_of(
    (STRING, "store topic"),
    (INT, "partition"),
    (LONG, "offset ts_ms lease_epoch seq"),
    (DATE, "dt"),
)
"""End offsets of partitions on the day ``dt``. One table has every sample. Another one has the last
sample that is known at the end of the day.
"""

PUBLICATION_SCHEMA: Final = struct_of(
    (DATE, "dt"),
    (STRING, "state fingerprint"),
    (LONG, "events"),
    (STRING, "missing"),
)
"""One row for each day: whether it is published (``state``), and from which events it was computed.

``missing`` is a text about the missing events of this day and of earlier days; empty if no event is
missing."""

NOTE_SCHEMA: Final = extended(
    PUBLICATION_SCHEMA,
    (ArrayType(struct_of((STRING, "store"), (LONG, "first_seq last_seq"))), "accepted"),
    (INT, "version"),
)
"""A row of ``PUBLICATION_SCHEMA`` as versions before 0.2.0.dev5 stored it. It has two more columns:
``accepted``, the missing events without which the day was published, and the version of the
computation.
"""
