"""SQL with which other programs read the tables by name, without the code of groupkeeper (pure).

The SQL names the folders that are valid at one moment. A view of DuckDB reads exactly these
folders. An external table of a metastore has one partition for each day, and each run of the
pipeline changes the locations of partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import ArrayType, DataType, StructType

from groupkeeper.pipeline.log.columns import PUBLICATION_SCHEMA
from groupkeeper.pipeline.tables.columns import VIEWS
from groupkeeper.pipeline.tables.pointer import Pointer, has_version

PUBLICATIONS: Final = "publications"
"""The view with one row for each day: its state, and a text about its missing events."""

_DUCKDB_TYPES: Final = {
    "string": "VARCHAR",
    "bigint": "BIGINT",
    "int": "INTEGER",
    "boolean": "BOOLEAN",
    "date": "DATE",
}


def duckdb_views(pointer: Pointer, root: str) -> str:
    """Return the statements that create the views in DuckDB, all in one transaction."""
    root = root.replace("s3a://", "s3://", 1)
    lines = [
        "-- Views of DuckDB over the published tables. Read it again to see a newer version.\n"
    ]
    lines.append("BEGIN TRANSACTION;")
    for view, (table, schema) in VIEWS.items():
        folders = list(pointer.folders(table).values())
        rows = _duckdb_rows(root, folders, schema)
        lines.append(f"CREATE OR REPLACE VIEW {view} AS\n{rows};")
    lines.append(f"CREATE OR REPLACE VIEW {PUBLICATIONS} AS\n{_publications(pointer)};")
    lines.append("COMMIT;")
    return "\n".join(lines) + "\n"


def _duckdb_rows(root: str, folders: Sequence[str], schema: StructType) -> str:
    names = ", ".join(f'"{name}"' for name in schema.names)
    parts = []
    # DuckDB wants the same columns (dt, v) in the names of all paths of one list
    for is_versioned in (True, False):
        of_kind = [folder for folder in folders if has_version(folder) == is_versioned]
        if of_kind:
            paths = ",\n  ".join(_quoted(f"{root}/{folder}/*.parquet") for folder in of_kind)
            options = "hive_partitioning = true, union_by_name = true"
            parts.append(f"SELECT {names} FROM read_parquet([\n  {paths}], {options})")  # noqa: S608
    return "\nUNION ALL\n".join(parts) or _no_rows(schema)


def _no_rows(schema: StructType) -> str:
    columns = (f'CAST(NULL AS {_duckdb_type(each.dataType)}) AS "{each.name}"' for each in schema)
    return f"SELECT {', '.join(columns)} WHERE false"


def _duckdb_type(kind: DataType) -> str:
    if isinstance(kind, ArrayType):
        return f"{_duckdb_type(kind.elementType)}[]"
    if isinstance(kind, StructType):
        fields = (f'"{each.name}" {_duckdb_type(each.dataType)}' for each in kind)
        return f"STRUCT({', '.join(fields)})"
    return _DUCKDB_TYPES[kind.simpleString()]


def external_tables(pointer: Pointer, root: str) -> str:
    """Return the statements that create external tables in a metastore, and set the location of
    each partition.

    The statements are for Hive and Spark, and never drop a partition.
    """
    lines = ["-- External tables over the published tables. Run it after each run of the pipeline."]
    for view, (table, schema) in VIEWS.items():
        columns = ", ".join(
            f"`{each.name}` {each.dataType.simpleString()}" for each in schema if each.name != "dt"
        )
        lines.append(
            f"\nCREATE EXTERNAL TABLE IF NOT EXISTS {view} ({columns})\n"
            f"PARTITIONED BY (`dt` date) STORED AS PARQUET LOCATION {_quoted(f'{root}/{table}')};"
        )
        for day, folder in pointer.folders(table).items():
            at = f"(dt = '{day}')"
            place = f"LOCATION {_quoted(f'{root}/{folder}')}"
            lines.append(f"ALTER TABLE {view} ADD IF NOT EXISTS PARTITION {at} {place};")
            lines.append(f"ALTER TABLE {view} PARTITION {at} SET {place};")
    lines.append(f"\nCREATE OR REPLACE VIEW {PUBLICATIONS} AS\n{_publications(pointer)};")
    return "\n".join(lines) + "\n"


def publication_rows(pointer: Pointer) -> list[tuple[object, ...]]:
    """Return the rows of the view ``publications``, with the columns of ``PUBLICATION_SCHEMA``."""
    return [
        (day, note.state, note.fingerprint, note.events, note.missing)
        for day, note in sorted(pointer.days.items())
    ]


def _publications(pointer: Pointer) -> str:
    names = ", ".join(PUBLICATION_SCHEMA.names)
    rows = publication_rows(pointer)
    values = ",\n".join(f"  ({', '.join(map(_literal, row))})" for row in rows)
    if not rows:
        nothing = ", ".join(["DATE '1970-01-01'", "''", "''", "CAST(0 AS BIGINT)", "''"])
        values = f"  ({nothing})"
    no_rows = "" if rows else " WHERE false"
    return f"SELECT * FROM (VALUES\n{values}) AS days({names}){no_rows}"  # noqa: S608


def _literal(value: object) -> str:
    match value:
        case int():
            return f"CAST({value} AS BIGINT)"
        case str():
            return _quoted(value)
        case _:
            return f"DATE '{value}'"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
