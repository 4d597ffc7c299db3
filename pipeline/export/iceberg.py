"""Writes the tables of gold (summaries for reports) as Iceberg tables: a catalog in SQLite and a
warehouse, both in one folder.
"""

from __future__ import annotations

import warnings
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

NAMESPACE: Final = "groupkeeper"
CATALOG: Final = "catalog.db"


class IcebergTarget:
    """Replaces or removes one day of a table with each call."""

    def __init__(self, to: Path) -> None:
        to.mkdir(parents=True, exist_ok=True)
        self._catalog = SqlCatalog(
            NAMESPACE, uri=f"sqlite:///{to.resolve() / CATALOG}", warehouse=to.resolve().as_uri()
        )
        self._catalog.create_namespace_if_not_exists(NAMESPACE)

    def replace_day(self, table: str, day: date, rows: pa.Table) -> None:
        found = self._catalog.create_table_if_not_exists(_name(table), schema=rows.schema)
        _add_columns(found, rows.schema)
        with warnings.catch_warnings():
            # pyiceberg warns of a day that is new
            warnings.filterwarnings("ignore", "Delete operation did not match any records")
            found.overwrite(rows, overwrite_filter=_of_day(day))

    def remove_day(self, table: str, day: date) -> None:
        self._catalog.load_table(_name(table)).delete(_of_day(day))

    def close(self) -> None:
        self._catalog.close()


def _name(table: str) -> str:
    return f"{NAMESPACE}.{table.rpartition('/')[2]}"


def _of_day(day: date) -> str:
    return f"dt = '{day.isoformat()}'"


def _add_columns(table: Table, schema: pa.Schema) -> None:
    """Add the columns of ``schema`` that the table does not have: a newer version of groupkeeper
    writes them.
    """
    if set(schema.names) - {field.name for field in table.schema().fields}:
        with table.update_schema() as update:
            update.union_by_name(schema)
