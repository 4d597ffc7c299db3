"""Writes the tables of gold (summaries for reports) as Delta tables, one folder for each:
``<to>/lag_1m``.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake


class DeltaTarget:
    """Replaces or removes one day of a table with each call, in one commit of the Delta table."""

    def __init__(self, to: Path) -> None:
        self._to = to

    def replace_day(self, table: str, day: date, rows: pa.Table) -> None:
        path = self._path(table)
        if not DeltaTable.is_deltatable(path):
            write_deltalake(path, rows, partition_by=["dt"])
            return
        write_deltalake(path, rows, mode="overwrite", predicate=_of_day(day), schema_mode="merge")

    def remove_day(self, table: str, day: date) -> None:
        DeltaTable(self._path(table)).delete(_of_day(day))

    def _path(self, table: str) -> str:
        return str(self._to / table.rpartition("/")[2])


def _of_day(day: date) -> str:
    return f"dt = '{day.isoformat()}'"
