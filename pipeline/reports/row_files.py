"""Writes the rows of a report as Parquet, CSV and JSON. There may be many, so they are written in
parts.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

Rows = list[dict[str, Any]]

PART_ROWS: Final = 10_000
"""The largest number of rows that this process holds at a time, about 10 MB."""


def write_rows(rows: DataFrame | Rows, schema: pa.Schema, path: Path) -> int:
    """Write three files: ``path`` with the endings ``.parquet``, ``.csv`` and ``.json``. Return the
    number of rows.
    """
    names = schema.names
    count = 0
    with (
        path.with_suffix(".csv").open("w", newline="") as of_csv,
        path.with_suffix(".json").open("w") as of_json,
        pq.ParquetWriter(path.with_suffix(".parquet"), schema) as parquet,
    ):
        writer = csv.DictWriter(of_csv, names)
        writer.writeheader()
        of_json.write("[")
        each = _each(rows)
        while part := list(islice(each, PART_ROWS)):
            parquet.write_table(pa.Table.from_pylist(part, schema=schema))
            writer.writerows({name: _flat(row[name]) for name in names} for row in part)
            texts = (json.dumps(row, default=str) for row in part)
            of_json.write(("," if count else "") + "\n" + ",\n".join(texts))
            count += len(part)
        of_json.write("\n]\n" if count else "]\n")
    return count


def _each(rows: DataFrame | Rows) -> Iterator[dict[str, Any]]:
    if isinstance(rows, list):
        return iter(rows)
    return (row.asDict(recursive=True) for row in rows.toLocalIterator())


def _flat(value: object) -> object:
    return json.dumps(value) if isinstance(value, list | dict) else value
