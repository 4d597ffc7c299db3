"""The schema that Spark reads events with has every field of every kind, and no other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructType

from groupkeeper.pipeline.log import columns
from groupkeeper.pipeline.log.columns import EVENT_SCHEMA, PARTITION_SCHEMA
from groupkeeper.storage.event_log.event_kinds import (
    COMMON_FIELDS,
    EVENT_SCHEMA_VERSION,
    KINDS,
    Field,
    FieldType,
)
from groupkeeper.storage.segment_lines import ROW_FIELDS

SMALL_INTEGERS = {"shard", "partition", "leader_epoch", "generation", "members"}
"""32 bits are enough for them."""


def named(schema: StructType, prefix: str = "") -> Iterator[tuple[str, DataType]]:
    """Name the fields as the document does: ``topics[].partitions[].offset``."""
    for field in schema.fields:
        yield prefix + field.name, field.dataType
        inner = field.dataType.elementType if isinstance(field.dataType, ArrayType) else None
        if isinstance(inner, StructType):
            yield from named(inner, f"{prefix}{field.name}[].")


def documented(fields: Iterable[Field], prefix: str = "") -> Iterator[tuple[str, Field]]:
    for field in fields:
        yield prefix + field.name, field
        yield from documented(field.fields, f"{prefix}{field.name}[].")


FIELDS = [
    *documented(COMMON_FIELDS),
    *(pair for kind in KINDS for pair in documented(kind.fields)),
]
SPARK = dict(named(EVENT_SCHEMA))


def test_every_field_that_is_written_is_read() -> None:
    assert {name for name, _ in FIELDS} <= set(SPARK)


def test_nothing_is_read_that_is_never_written() -> None:
    # one struct serves every kind that has topics, so fields of one may stand in another
    inner = {name.rpartition(".")[2] for name, _ in FIELDS if "." in name}
    outer = {name for name, _ in FIELDS if "." not in name}
    for name in SPARK:
        assert name.rpartition(".")[2] in (inner if "." in name else outer), name


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=[name for name, _ in FIELDS])
def test_a_field_is_read_as_what_it_is(name: str, field: Field) -> None:
    found = SPARK[name]
    match field.type:
        case FieldType.STRING | FieldType.STRING_OR_NULL:
            assert found == StringType()
        case FieldType.INTEGER:
            assert found == LongType() or field.name in SMALL_INTEGERS
        case FieldType.STRINGS:
            assert found == ArrayType(StringType())
        case FieldType.LIST:
            assert isinstance(found, ArrayType)
            assert isinstance(found.elementType, StructType)
        case (
            FieldType.PARTITIONS_BY_MEMBER
            | FieldType.PARTITIONS_BY_TOPIC
            | FieldType.BYTES_BY_MEMBER
        ):
            assert isinstance(found, MapType)


def test_the_version_is_that_of_the_events() -> None:
    assert columns.EVENT_SCHEMA_VERSION == EVENT_SCHEMA_VERSION


def test_the_rows_of_commits_are_read_as_they_are_written() -> None:
    assert columns.ROW_FIELDS == ROW_FIELDS
    assert set(ROW_FIELDS) <= set(PARTITION_SCHEMA.names)
